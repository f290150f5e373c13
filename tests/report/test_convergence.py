"""Rounds to targets, over seeds, against FedAvg; expected numbers are worked out beside them."""

import re

import pytest

from fedseq.cli import main
from fedseq.report import figures
from fedseq.report.convergence import Bound, by_dataset, compare, crossing_text, find_bound, smooth_crossing
from fedseq.report.formats import TextTable, to_latex
from fedseq.report.run_tables import comparison_table, cost_table
from fedseq.report.series import labels, make_series, stat
from fedseq.runs.reading import read

from .builders import make_run

HALF = Bound(1.0, "as given")  # targets .7, .8, .9


def runs(*folders):
    return [read(folder) for folder in folders]


def test_first_crossing_is_the_first_evaluation_at_the_target_and_the_mean_needs_five(tmp_path):
    rising = [0.1, 0.75, 0.5, 0.7, 0.7, 0.8, 0.8, 0.8]
    run = read(make_run(tmp_path / "a", rising))
    (row,) = compare([run], HALF)
    assert row.crossings[0].first == (2,)
    # means of five end at round 5: .55; 6: .69; 7: (.5+.7+.7+.8+.8)/5 = .70
    assert row.crossings[0].smooth == (7,)
    assert row.crossings[2].first == (None,)


def test_mean_crossing_counts_evaluations_whatever_lies_between_them():
    evaluations = [(10 * (i + 1), 0.6) for i in range(4)] + [(50, 0.6)]
    assert smooth_crossing(evaluations, 0.6) == 50
    assert smooth_crossing(evaluations[:4], 0.6) is None


def test_runs_that_differ_only_in_seed_are_one_row(tmp_path):
    found = runs(
        make_run(tmp_path / "a", [0.5, 0.7], seed=0),
        make_run(tmp_path / "b", [0.7, 0.7], seed=1, engine="serial"),
        make_run(tmp_path / "c", [0.7, 0.7], seed=1, alpha=0.2),
    )
    rows = compare(found, HALF)
    assert [row.series.seeds for row in rows] == [(0, 1), (1,)]
    assert [row.label for row in rows] == ["fedavg (alpha 0)", "fedavg (alpha 0.2)"]
    assert rows[0].crossings[0].first == (2, 1)
    assert stat(rows[0].crossings[0].first).mean == 1.5
    assert rows[0].final.std == pytest.approx(0)


def test_the_same_seed_twice_is_not_averaged_with_itself(tmp_path):
    series = make_series(runs(make_run(tmp_path / "a", [0.5]), make_run(tmp_path / "b", [0.6])))
    assert [len(one.runs) for one in series] == [1, 1]
    assert [one.label for one in series] == [f"fedavg ({tmp_path / name})" for name in "ab"]


def test_speedup_is_fedavgs_rounds_over_ours_and_a_bound_where_fedavg_never_came(tmp_path):
    slow = make_run(tmp_path / "avg", [0.1, 0.1, 0.1, 0.1, 0.1, 0.75])
    fast = make_run(tmp_path / "seq", [0.1, 0.75, 0.85, 0.85, 0.85, 0.85], algorithm="fedseq")
    avg, seq = compare(runs(slow, fast), HALF)
    assert [str(factor) for factor in seq.speedups] == ["3.0x", "> 2.0x", "None"]
    assert [str(factor) for factor in avg.speedups] == ["1.0x", "None", "None"]
    # Time: a hop takes 1 step / 10 a second + 200 bytes / 1e6. FedAvg's round is one hop, FedSeq's four; before, all
    # clients make ten epochs, a step each.
    hop, pretrained = 0.1 + 200e-6, 1 + 200e-6
    assert seq.time_speedups[0].factor == pytest.approx(6 * hop / (pretrained + 2 * 4 * hop))


def test_a_speedup_is_over_the_fedavg_that_is_there_first(tmp_path):
    """However like ours the options of a weaker one are; of those that never come, the one that ends best counts."""
    weak = make_run(tmp_path / "weak", [0.1] * 8 + [0.72], lr=0.1)
    strong = make_run(tmp_path / "strong", [0.1, 0.1, 0.1, 0.75, 0.75, 0.75], lr=0.5)
    ours = make_run(tmp_path / "seq", [0.1, 0.75, 0.85], algorithm="fedseq", lr=0.1)
    rows = {row.series.runs[0].folder.name: row for row in compare(runs(weak, strong, ours), HALF)}
    assert [str(factor) for factor in rows["seq"].speedups] == [
        "2.0x",
        "> 2.0x",
        "None",
    ]  # 4 / 2; 6 rounds and more / 3
    assert str(rows["weak"].speedups[0]) == "0.4x"  # 4 / 9
    assert str(rows["strong"].speedups[0]) == "1.0x"


def test_that_fedavg_needs_more_than_half_of_our_rounds_says_nothing(tmp_path):
    short = make_run(tmp_path / "avg", [0.1])
    ours = make_run(tmp_path / "seq", [0.1, 0.75], algorithm="fedseq")
    assert compare(runs(short, ours), HALF)[1].speedups[0] is None


def test_a_speedup_needs_fedavg_on_the_same_data(tmp_path):
    other = make_run(tmp_path / "avg", [0.1, 0.75], alpha=0.5)
    ours = make_run(tmp_path / "seq", [0.75], algorithm="fedseq")
    assert compare(runs(other, ours), HALF)[1].speedups == (None, None, None)


@pytest.mark.parametrize(
    "trouble",
    [
        {"attack": "sign-flip"},
        {"client_dropout": 0.5},
        {"dp_clip_norm": 1.0, "dp_noise_multiplier": 1.0},
        {"trainable": "head"},
    ],
)
def test_a_speedup_needs_fedavg_under_the_same_troubles(tmp_path, trouble):
    other = make_run(tmp_path / "avg", [0.1, 0.75], **trouble)
    ours = make_run(tmp_path / "seq", [0.75], algorithm="fedseq")
    assert compare(runs(other, ours), HALF)[1].speedups == (None, None, None)


def test_some_seeds_that_never_cross_are_told(tmp_path):
    found = runs(make_run(tmp_path / "a", [0.8], seed=0), make_run(tmp_path / "b", [0.1], seed=1))
    assert crossing_text((1, None), found) == "1 (1 of 2 never)"
    assert crossing_text((None, None), found) == "> 1"
    assert compare(found, HALF)[0].speedups[0] is None


def test_bound_is_given_or_centralized_or_the_best(tmp_path):
    one = make_run(tmp_path / "a", [0.5], algorithm="centralized", seed=0)
    two = make_run(tmp_path / "b", [0.7], algorithm="centralized", seed=1)
    best = make_run(tmp_path / "c", [0.9], algorithm="fedseq")
    assert find_bound(runs(one, two, best)).accuracy == pytest.approx(0.6)
    assert "add a centralized run" in find_bound(runs(best)).source
    assert find_bound(runs(best), 0.3).accuracy == 0.3
    assert find_bound([]) is None


def test_an_unfinished_centralized_run_or_nothing_learned_is_no_bound(tmp_path):
    central = make_run(tmp_path / "a", [0.2], algorithm="centralized", finished=False, rounds=9)
    best = make_run(tmp_path / "b", [0.9], algorithm="fedseq")
    bound = find_bound(runs(central, best))
    assert bound.accuracy == pytest.approx(0.9)
    assert not bound.central
    assert "the centralized run is not finished" in bound.source
    assert find_bound(runs(central)) is None
    assert find_bound(runs(make_run(tmp_path / "c", [0.0]))) is None
    assert find_bound(runs(make_run(tmp_path / "d", [0.0, 0.0], algorithm="centralized"), best)).accuracy == 0.9


def test_the_figure_says_centralized_only_where_it_is_and_ticks_whole_rounds(tmp_path):
    central = make_run(tmp_path / "a", [0.5, 1.0], algorithm="centralized")
    best = make_run(tmp_path / "b", [0.2, 0.9, 0.9], algorithm="fedseq")
    for found, words in ((runs(best), "bound"), (runs(best, central), "centralized")):
        text = figures.curves(found, tmp_path / "c.svg", find_bound(found)).read_text()
        written = re.findall("<!-- (.*) -->", text)  # matplotlib's note beside each text it draws
        assert ("centralized" in written) == (words == "centralized")
        assert {"70 % of bound", "80 % of bound", "90 % of bound", words} <= set(written)
        rounds = [word for word in written if re.fullmatch(r"[\d.]+", word)]
        assert rounds == ["1", "2", "3"]


def test_labels_tell_what_differs_and_no_more(tmp_path):
    found = runs(
        make_run(tmp_path / "a", [0.5], algorithm="fedseq", grouping="random"),
        make_run(tmp_path / "b", [0.5], algorithm="fedseq", grouping="kmeans", seed=3),
        make_run(tmp_path / "c", [0.5]),
        make_run(tmp_path / "d", [0.5], algorithm="fedseq", grouping_metric="cosine"),
        make_run(tmp_path / "e", [0.5], algorithm="fedseq", superclient_epochs=2),
    )
    told = ["fedseq (random)", "fedseq (kmeans)", "fedavg", "fedseq (greedy, cosine)", "fedseq (E_S 2, greedy)"]
    assert labels(found) == told


@pytest.mark.parametrize("first", [0, 1])
def test_a_run_is_called_the_same_in_whatever_order_it_is_given(tmp_path, first):
    """Each of the two differs from the defaults in one option, of which the other has the default."""
    found = runs(make_run(tmp_path / "a", [0.5], lr=0.1), make_run(tmp_path / "b", [0.5, 0.6], batch_size=8))
    names = ["fedavg (lr 0.1)", "fedavg (batch size 8)"]
    assert labels([found[first], found[1 - first]]) == [names[first], names[1 - first]]


def test_tables_show_unfinished_and_damaged_runs_in_their_place(tmp_path):
    found = runs(make_run(tmp_path / "a", [0.5, 0.6], finished=False, rounds=9), make_run(tmp_path / "b", []))
    table = comparison_table(compare(found, HALF), HALF, [])
    assert table.columns[:2] == ["algorithm", "rounds"]
    assert "(unfinished)" in table.rows[0][0]
    assert table.rows[0][1] == "2 of 9"
    assert len(cost_table(compare(found, HALF), "10 steps/s").rows) == 2
    assert list(by_dataset(found)) == ["digits"]


def test_final_accuracy_of_a_run_that_goes_on_counts_back_from_its_last_evaluation(tmp_path):
    """Of 21 rounds with 20 evaluated, the last tenth of 20: rounds 19 and 20."""
    accuracies = [0.1] * 18 + [0.5, 0.7, None]
    assert read(make_run(tmp_path / "run", accuracies)).final_accuracy() == pytest.approx(0.6)


@pytest.mark.parametrize(("text", "written"), [
    ("50 % ± 1_a", r"50 \% $\pm$ 1\_a"), ("alpha 0", r"$\alpha$ 0"), ("alphabet", "alphabet"),
    (r"C:\{x}~^$<>", r"C:\textbackslash{}\{x\}\textasciitilde{}\textasciicircum{}\$$<$$>$"),
])  # fmt: skip
def test_latex_is_escaped_once(text, written):
    assert written in to_latex(TextTable(["name"], [[text]]))


def test_a_figure_is_drawn_of_names_that_are_no_formulas(tmp_path):
    """Two dollars would begin mathematics; and a run without an evaluation has no curve to explain."""
    unevaluated = read(make_run(tmp_path / "none", [None]))
    figure, axes = figures.plt.subplots()
    axes.set_title("of $x_$y^$")
    for drawn in (figures.save(figure, tmp_path / "named.png"), figures.curves([unevaluated], tmp_path / "none.png")):
        assert drawn.stat().st_size > 0


def test_seeds_that_have_just_begun_do_not_count_among_those_that_are_done(tmp_path):
    """By hand: 0.7 and 0.9 are 0.8 in the mean; with the first evaluation of a third seed, 0.1, they would be 0.57."""
    folders = [make_run(tmp_path / str(seed), [0.1, final], seed=seed) for seed, final in ((0, 0.7), (1, 0.9))]
    begun = make_run(tmp_path / "2", [0.1], seed=2, rounds=2, finished=False)
    done, unfinished = compare(runs(*folders, begun), HALF)
    assert (done.label, done.series.seeds, done.final.mean) == ("fedavg", (0, 1), pytest.approx(0.8))
    assert (unfinished.label, unfinished.series.title) == ("fedavg (unfinished)", "fedavg (unfinished)")
    (alone,) = compare(runs(begun), HALF)
    assert (alone.label, alone.series.title) == ("fedavg", "fedavg (unfinished)")


@pytest.fixture
def drawn(monkeypatch):
    """The axes of every figure that is drawn."""
    found = []
    monkeypatch.setattr(figures, "save", lambda figure, path: found.append(figure.axes[0]))
    return found


def test_seeds_that_end_at_different_rounds_are_curves_of_their_own(tmp_path, drawn):
    """By hand: one seed is at its target after two rounds, the other after four; a mean would end below it."""
    told = {0: [0.1, 0.6], 1: [0.1, 0.2, 0.3, 0.6]}
    folders = [make_run(tmp_path / str(s), told[s], seed=s, rounds=4, target_accuracy=0.6) for s in told]
    figures.curves(runs(*folders), tmp_path / "c.png")
    lines = drawn[0].lines
    assert [list(line.get_xdata()) for line in lines] == [[1, 2], [1, 2, 3, 4]]
    assert len({line.get_color() for line in lines}) == 1
    assert [text.get_text() for text in drawn[0].get_legend().get_texts()] == ["fedavg"]


def test_curves_of_several_data_sets_name_them(tmp_path, drawn):
    found = runs(
        make_run(tmp_path / "a", [0.1]), make_run(tmp_path / "b", [0.2], algorithm="fedseq", dataset="fashion-mnist")
    )
    figures.curves(found, tmp_path / "c.png")
    assert [text.get_text() for text in drawn[0].get_legend().get_texts()] == [
        "fedavg, digits",
        "fedseq, fashion-mnist",
    ]


def test_a_picture_of_an_unknown_kind_is_refused_before_any_table(tmp_path, capsys):
    assert main(["compare", str(make_run(tmp_path / "a", [0.1])), "--figure", str(tmp_path / "c.jpg")]) == 2
    told = capsys.readouterr()
    assert "ends in .png, .pdf, .svg" in told.err
    assert not told.out
