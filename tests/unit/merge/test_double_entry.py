"""A batch whose counts do not add up is refused with its numbers."""

import json

import pytest

from neve.errors import UnbalancedError
from neve.merge.double_entry import EVENTS, event_summary, require_balance, require_written
from neve.merge.report import Counts

COUNTS = Counts(
    scanned=21, applied=6, superseded=5, late=4, repeated=3, set_aside=2, truncated=1, upserted=5
)


@pytest.mark.parametrize("events", [21, None])
def test_every_event_is_counted_once(events):
    require_balance("shop.orders", events, COUNTS)
    told = json.loads(event_summary(COUNTS)[EVENTS])
    assert told.pop("read") == sum(told.values())


@pytest.mark.parametrize("events", [20, 22])
def test_a_missing_event_is_told_with_the_numbers(events):
    with pytest.raises(
        UnbalancedError, match=rf"^shop.orders: .* {events} events were read"
    ) as told:
        require_balance("shop.orders", events, COUNTS)
    assert "6 applied + 5 superseded + 4 late + 3 repeated + 2 rejected + 1 truncated = 21" in (
        told.value.message
    )
    assert not told.value.retryable


def test_rows_that_were_counted_are_written():
    require_written("shop.orders", "rows", 5, 5)
    with pytest.raises(UnbalancedError, match="5 rows were counted, and 4 are written"):
        require_written("shop.orders", "rows", 5, 4)
