"""The learning rate of a round, by hand: lr 8, ten rounds."""

import pytest

from fedseq.options.resolve import resolve
from fedseq.rounds.loop import learning_rate


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({}, {1: 8, 10: 8}),
        ({"lr_scheduler": "exponential", "lr_decay": 0.5}, {1: 8, 2: 4, 4: 1}),
        ({"lr_scheduler": "cosine"}, {1: 8, 6: 4}),  # cos(pi/2) = 0
        ({"lr_scheduler": "cosine", "lr_final": 0.5}, {1: 8, 6: 6}),  # from 8 towards 4
        ({"lr_scheduler": "linear"}, {1: 8, 6: 4, 10: 0.8}),
        ({"lr_scheduler": "linear", "lr_final": 0.25}, {1: 8, 6: 5, 10: 2.6}),  # 8 (1/4 + 3/4 * 1/10)
        ({"lr_scheduler": "linear", "lr_final": 1.0}, {1: 8, 10: 8}),
        ({"warmup_rounds": 4}, {1: 2, 2: 4, 3: 6, 4: 8, 5: 8}),
        ({"warmup_rounds": 1}, {1: 8, 2: 8}),
        ({"warmup_rounds": 4, "lr_scheduler": "linear"}, {1: 2, 2: 3.6, 6: 4}),  # 8 * 9/10 * 2/4
    ],
)
def test_by_hand(options, rates):
    config = resolve({"lr": 8.0, "rounds": 10, **options})
    assert {round_: learning_rate(config, round_) for round_ in rates} == pytest.approx(rates)
