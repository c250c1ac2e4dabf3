"""The requests of retained segments, in eight bytes each: which of them may be copies of others."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from neve.consolidate.duplicates import Identity
from neve.errors import CorruptionError

if TYPE_CHECKING:
    import numpy.typing as npt

    from neve.buffer.frame import Entry
    from neve.buffer.reader import Segment

logger = logging.getLogger(__name__)

_NOTHING_RECEIVED = -1


@dataclass
class RetainedRequests:
    """Reads the entries of segments, and keeps of each the first bytes of its content's hash.

    A day of a thousand requests a second would take 28 GB as objects. Only requests whose hash
    occurs twice become objects, by a second read.

    Args:
        entries: yields what identifies a segment's requests. Raises CorruptionError at damage:
            what comes before it counts, and the task keeps the rest as a dead letter.
    """

    entries: Callable[[Segment], Iterable[Entry]]
    _hashes: dict[Segment, array[int]] = field(default_factory=dict)
    _newest: dict[Segment, int] = field(default_factory=dict)

    def read(self, segment: Segment) -> None:
        """Take in a segment."""
        hashes, newest = array("Q"), _NOTHING_RECEIVED
        for entry in self._whole_entries(segment):
            hashes.append(_hash(entry))
            newest = max(newest, entry.received_unix_nano)
        self._hashes[segment], self._newest[segment] = hashes, newest

    def has_since(self, segment: Segment, unix_nano: int) -> bool:
        """Tell whether a segment has a request received since then."""
        return self._newest[segment] != _NOTHING_RECEIVED and self._newest[segment] >= unix_nano

    def count(self, segments: Iterable[Segment]) -> int:
        return sum(len(self._hashes[segment]) for segment in segments)

    def possible_copies(self, segments: Sequence[Segment]) -> Iterator[Identity]:
        """Yield the requests of some segments whose hash occurs twice in them, or more often."""
        hashes = [_numbers(self._hashes[segment]) for segment in segments]
        ordered = np.sort(np.concatenate(hashes)) if hashes else np.empty(0, np.uint64)
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        for segment, of_segment in zip(segments, hashes, strict=True):
            positions = set(np.flatnonzero(np.isin(of_segment, repeated)).tolist())
            if not positions:
                continue
            for position, entry in enumerate(self._whole_entries(segment)):
                if position in positions:
                    yield Identity(
                        entry.received_unix_nano,
                        segment.stream,
                        segment.number,
                        position,
                        entry.key,
                    )

    def _whole_entries(self, segment: Segment) -> Iterator[Entry]:
        try:
            yield from self.entries(segment)
        except CorruptionError as error:
            logger.warning("%s is damaged: %s", segment.path, error)


def _hash(entry: Entry) -> int:
    return int.from_bytes(entry.content_hash[:8], "little")


def _numbers(hashes: array[int]) -> npt.NDArray[np.uint64]:
    return np.frombuffer(hashes, np.uint64) if hashes else np.empty(0, np.uint64)
