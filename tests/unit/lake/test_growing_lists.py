"""Which members two documents of a table share."""

import pytest

from neve.lake.growing_lists import kept_members

SNAPSHOTS = [{"snapshot-id": number} for number in range(9)]


def members(*numbers):
    return [SNAPSHOTS[number] for number in numbers]


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        ((), (), range(0)),
        ((), (1,), range(0)),
        ((1, 2), (1, 2), range(2)),
        ((1, 2), (1, 2, 3), range(2)),
        ((1, 2, 3), (2, 3, 4), range(1, 3)),
        ((1, 2), (), range(2, 2)),
        # Nothing in common, and members that were removed from the middle or the end.
        ((1, 2), (3, 4), range(2, 2)),
        ((1, 2, 3), (1, 3), range(0)),
        ((1, 2, 3), (1, 2), range(0)),
        ((1, 2), (1, 3, 2), range(0)),
    ],
)
def test_members_are_kept_from_one_list_to_the_next(before, now, kept):
    assert list(kept_members(members(*before), members(*now))) == list(kept)


def test_equal_members_that_were_read_anew_are_not_the_same():
    before = members(1, 2)
    assert not kept_members(before, [dict(each) for each in before])
