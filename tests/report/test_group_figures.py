import numpy as np
from matplotlib import image

from fedseq.report.figures import similarity_norm, violins


def test_the_label_of_one_panel_is_not_cut(tmp_path):
    counts = np.random.default_rng(0).integers(0, 20, (40, 10))
    picture = image.imread(violins(counts, {"kl greedy": [range(20), range(20, 40)]}, tmp_path / "violins.png"))
    margin = picture[:, :28, :3]  # where the upright label stands
    assert margin.min() < 0.5
    assert margin[:8].min() == margin[-8:].min() == 1.0  # white above and below


def test_the_norm_is_1_where_all_clients_are_alike_however_many_there_are():
    for clients in (3, 50):
        assert similarity_norm(np.ones((clients, clients))) == 1.0
    assert similarity_norm(np.eye(4)) == 0.5  # sqrt(4) / 4: nobody is like anybody else
