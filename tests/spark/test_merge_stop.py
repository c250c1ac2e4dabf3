"""Being asked to stop: the batch in progress is finished, and nothing long is begun."""

from __future__ import annotations

import threading
import time

import pytest

from neve.errors import ConflictError
from neve.lake.commit_loop import RetryPolicy
from neve.merge.carry_out import WrittenBatch
from neve.merge.report import TableReport
from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event


@pytest.fixture
def mirrored(embedded_lake, monkeypatch):
    """A mirror that is to have an index, and a batch for it."""
    monkeypatch.setattr("neve.merge.strategy.INDEXED_ROWS", 10)
    found = Mirrored(embedded_lake, strategy=Strategy.AUTO)
    found.append(*(event("I", 1, n, f"v{n}") for n in range(40)))
    found.merge()
    found.append(event("U", 2, 1, "b"))
    return found


def test_no_index_is_built_once_a_stop_is_asked_for(mirrored):
    stop = threading.Event()
    report = mirrored.merger(progress=lambda _: stop.set()).merge(stop)
    assert (report.batches, report.strategy, report.index_rebuilds) == (1, "scan", 0)
    mirrored.check()
    mirrored.append(event("U", 3, 1, "c"))
    assert mirrored.merge().index_rebuilds == 1


def test_a_stop_ends_the_wait_for_another_attempt(mirrored, monkeypatch):
    stop, report = threading.Event(), TableReport(mirrored.mirror)

    def refused(self, summary):
        threading.Timer(0.2, stop.set).start()
        raise ConflictError("main has moved", retryable=True)

    monkeypatch.setattr(WrittenBatch, "commit", refused)
    merger = mirrored.merger()
    merger.retry = RetryPolicy(first_seconds=60, most_seconds=60)
    began = time.monotonic()
    with pytest.raises(ConflictError):
        merger.merge(stop, report)
    assert time.monotonic() - began < 25
    assert report.conflicts == 1
    monkeypatch.undo()
    mirrored.merge()
    mirrored.check()
