"""A power cut inside the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
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
