"""A power cut inside the test's own process, or something that others do at that moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from neve import failpoints


@contextmanager
def power_cut(point: str, passes: int = 1) -> Iterator[None]:
    """End the block at the given pass of a failpoint; the test fails if it is never reached."""
    with failpoints.armed(point, passes):
        try:
            yield
        except failpoints.PowerCut:
            return
    pytest.fail(f"the block never came to pass {passes} of the failpoint {point}")


@contextmanager
def meanwhile(point: str, action: Callable[[], None]) -> Iterator[None]:
    """Do something when the block first comes to a failpoint; it fails if it never does."""
    reach, done = failpoints.reach, []

    def reached(name: str) -> None:
        if name == point and not done:
            done.append(name)
            action()
        reach(name)

    assert point in failpoints.POINTS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "reach", reached)
        yield
    assert done, f"the block never came to the failpoint {point}"
