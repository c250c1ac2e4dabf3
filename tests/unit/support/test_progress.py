"""How far a long run is, by what its tests took the last time."""

from types import SimpleNamespace

import pytest

from tests.support.progress import Progress


class Cache(dict):
    def set(self, key, value):
        self[key] = value


def after(cache, took, names="abcd"):
    """Return a run of four tests after some of them."""
    progress = Progress(SimpleNamespace(cache=cache))
    session = SimpleNamespace(items=[SimpleNamespace(nodeid=name) for name in names])
    progress.pytest_collection_finish(session)
    for nodeid, seconds in took.items():
        for part in (seconds / 4, seconds * 3 / 4):
            report = SimpleNamespace(nodeid=nodeid, duration=part)
            progress.pytest_runtest_logreport(report)
        progress.pytest_runtest_logfinish(nodeid)
    return progress


@pytest.mark.parametrize(
    ("last", "line"),
    [
        ({}, "[2/4] 6 min, about 6 min left"),
        ({"a": 120, "b": 60, "c": 600, "d": 120}, "[2/4] 6 min, about 24 min left"),
        ({"a": 120, "c": 600}, "[2/4] 6 min, about 23 min left"),
    ],
)
def test_what_is_left_is_weighed_by_the_last_run(last, line):
    progress = after(Cache({"neve/durations": last}), {"a": 240, "b": 120})
    assert progress.line(360) == line


def test_the_next_run_knows_what_tests_took():
    cache = Cache({"neve/durations": {"a": 1, "z": 5}})
    after(cache, {"a": 240}).pytest_sessionfinish()
    assert cache["neve/durations"] == {"a": 240, "z": 5}
