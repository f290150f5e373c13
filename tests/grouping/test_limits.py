"""The closing rule and the last group, by hand."""

import numpy as np

from fedseq.grouping.methods import Limits, cut, deal_out_last, short_groups


def test_groups_close_when_they_have_enough_examples():
    # 3 + 2 reach 5, so do 4 + 1, and the 5 of the last client alone.
    assert cut(range(5), np.array([3, 2, 4, 1, 5]), Limits(5, 9)) == [[0, 1], [2, 3], [4]]


def test_groups_close_when_they_have_enough_clients():
    # Two clients of 1 stay short of 5 but fill the group; the last group reaches 5.
    sizes, limits = np.array([1, 1, 5]), Limits(5, 2)
    assert cut(range(3), sizes, limits) == [[0, 1], [2]]
    assert short_groups([[0, 1], [2]], sizes, limits) == (0,)


def test_short_last_group_goes_to_the_smallest_groups_with_room():
    # Groups of 4, 3 and 3 examples; the last has 1 + 1. The first of these goes to group 1, the earlier of the two
    # with 3 examples, which then has 4, the second to group 2.
    sizes = np.array([4, 3, 3, 1, 1])
    assert deal_out_last([[0], [1], [2], [3, 4]], sizes, Limits(3, 3)) == [[0], [1, 3], [2, 4]]


def test_clients_without_a_place_stay_behind():
    # Group 0 takes one client and is full then, the other two stay.
    sizes, limits = np.array([3, 1, 1, 1]), Limits(4, 2)
    assert deal_out_last([[0], [1, 2, 3]], sizes, limits) == [[0, 1], [2, 3]]
    assert short_groups([[0, 1], [2, 3]], sizes, limits) == (1,)


def test_no_clients_make_no_groups():
    assert cut([], np.array([]), Limits(1, 1)) == []


def test_only_group_is_never_dealt_out():
    assert deal_out_last([[0, 1]], np.array([1, 1]), Limits(5, 2)) == [[0, 1]]
