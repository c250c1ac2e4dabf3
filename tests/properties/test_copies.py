"""Requests that reach several receivers, in any order: each is once in each of its tables."""

import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import neve
from neve.buffer.buffer import open_buffer
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.requests import buffered
from tests.support.wait import until

METRICS = Signal.METRICS.value
# Which metrics a request has, by its number.
KINDS = (("gauge",), ("gauge", "sum"), ("sum",), ("gauge",), ("sum", "gauge"))
CONSOLIDATE = "consolidate"

requests = st.tuples(st.integers(0, 2), st.integers(0, len(KINDS) - 1))
# Each step is a receiver and the number of a request, or a run of one of the workers.
steps = st.lists(st.one_of(requests, requests, st.tuples(st.just(CONSOLIDATE), st.integers(0, 1))))


def request_of(number):
    request = Signal.METRICS.request()
    scope = request.resource_metrics.add().scope_metrics.add()
    for kind in KINDS[number]:
        getattr(scope.metrics.add(name=str(number)), kind).data_points.add(as_double=1.0)
    return buffered(request.SerializeToString())


def deliver(bench, steps):
    """Send requests to receivers that do not know each other, and consolidate now and then."""
    workers = [bench.worker(), bench.worker()]
    apart = replace(bench.buffer, dedup_seconds=0)
    with ExitStack() as stack:
        receivers = [stack.enter_context(open_buffer(apart, [METRICS])) for _ in range(3)]
        for target, number in steps:
            if target != CONSOLIDATE:
                receivers[target].append(METRICS, request_of(number)).durable.result(10)
                continue
            until(lambda: not any(s.open_bytes for s in workers[0].reader.streams(METRICS)))
            workers[number].run_once()
    workers[0].run_once()


@pytest.mark.soak
@settings(deadline=None, derandomize=True, max_examples=60)
@given(steps)
@example([(0, 1), (CONSOLIDATE, 0), (0, 0), (CONSOLIDATE, 0), (1, 1), (CONSOLIDATE, 1)])
def test_each_copy_but_one_is_dropped_from_each_table(steps):
    with (
        tempfile.TemporaryDirectory() as directory,
        neve.open(sqlite_settings(Path(directory))) as lake,
    ):
        bench = Bench(lake, Path(directory))
        deliver(bench, steps)
        sent = {number for target, number in steps if target != CONSOLIDATE}
        for kind in ("gauge", "sum"):
            wanted = Counter(str(number) for number in sent if kind in KINDS[number])
            assert (bench.names(f"metrics_{kind}") if sent else Counter()) == wanted
