"""How ages are written."""

import pytest

from neve.ages import age_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (3600, "1h"),
        (3601, "1h"),
        (90_000, "1d 1h"),
        (259_200, "3d"),
        # Of a commit of a machine whose clock is ahead.
        (-5, "0s"),
    ],
)
def test_the_two_largest_units_count(seconds, text):
    assert age_text(seconds) == text
