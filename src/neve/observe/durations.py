"""Durations counted in buckets, cheap enough for every request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

# From a fast disk's fraction of a millisecond to the longest that a sender waits.
BUCKET_SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


@dataclass(frozen=True, slots=True)
class Durations:
    """What a histogram has counted: how many took at most so long, for each bucket."""

    buckets: tuple[tuple[str, int], ...]
    sum_seconds: float


class DurationHistogram:
    """Counts durations. One thread observes; any thread may read.

    Not Prometheus' own class, whose lock and labels cost more than the rest of a small request's
    counting.
    """

    __slots__ = ("_bounds", "_counts", "_sum_seconds")

    def __init__(self, bucket_seconds: Sequence[float] = BUCKET_SECONDS) -> None:
        self._bounds = tuple(bucket_seconds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum_seconds += seconds

    def read(self) -> Durations:
        """Return what was counted so far, cumulated as Prometheus wants it."""
        names = (*map(str, self._bounds), "+Inf")
        cumulated = accumulate(tuple(self._counts))
        return Durations(tuple(zip(names, cumulated, strict=True)), self._sum_seconds)
