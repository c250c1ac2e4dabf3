"""A mirror that is kept by nobody: turns that end as a list says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from neve.merge.report import TableReport

if TYPE_CHECKING:
    from collections.abc import Callable


class ListedMerger:
    """Ends each turn as the list says, then with nothing to do.

    A turn is a report's fields, with the exception that ends it under `raises`; or that alone.
    """

    def __init__(self, name: str, *turns: dict | Exception) -> None:
        self.name = name
        self.turns = list(turns)
        self.taken = 0
        self.during: Callable[[threading.Event], None] = lambda stop: None

    def merge(self, stop: threading.Event, report: TableReport) -> TableReport:
        self.taken += 1
        self.during(stop)
        turn = self.turns.pop(0) if self.turns else {}
        fields = {"raises": turn} if isinstance(turn, Exception) else {"lag_seconds": 0.0, **turn}
        error = fields.pop("raises", None)
        vars(report).update(fields)
        if error is not None:
            raise error
        return report
