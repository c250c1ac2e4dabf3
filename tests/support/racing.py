"""Two callers of `ensure_table` that meet at each step, so that both take it at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import neve
from neve.lake.create import ensure_table

MEETING_SECONDS = 60


def _meet(catalog, step, barrier, after=False):
    """Let the first call of a catalog's method wait for the other caller's, before or after it."""
    method = getattr(catalog, step)
    calls = []

    def meeting(*args, **kwargs):
        is_first = not calls
        calls.append(step)
        if is_first and not after:
            barrier.wait(MEETING_SECONDS)
        result = method(*args, **kwargs)
        if is_first and after:
            barrier.wait(MEETING_SECONDS)
        return result

    setattr(catalog, step, meeting)


def race_to_ensure(settings, spec, steps):
    """Call `ensure_table` twice at once; return both tables and the steps where they met."""
    met = []
    barriers = {
        step: threading.Barrier(2, action=lambda step=step: met.append(step)) for step in steps
    }

    def ensure():
        try:
            with neve.open(settings) as lake:
                catalog = lake.catalog()
                for step, barrier in barriers.items():
                    # PyIceberg's SQL catalogs look for a namespace before they insert it.
                    _meet(catalog, step, barrier, after=step == "namespace_exists")
                return ensure_table(lake.profile, catalog, spec)
        except BaseException:
            for barrier in barriers.values():
                barrier.abort()
            raise

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(ensure) for _ in range(2)]
        errors = [one.exception(2 * MEETING_SECONDS) for one in running]
    for error in errors:
        if error is not None and not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [one.result() for one in running], met


def check_racing(settings, narrow, wide, creation_steps):
    """Race to make a table, then to give it the same columns; both end with the same table."""
    (left, right), met = race_to_ensure(settings, narrow, creation_steps)
    assert met == list(creation_steps)
    assert left.metadata.table_uuid == right.metadata.table_uuid
    (left, right), met = race_to_ensure(settings, wide, ["commit_table"])
    assert met == ["commit_table"]
    assert left.schema() == right.schema()
    assert left.schema().column_names == wide.schema.names
