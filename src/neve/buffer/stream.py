"""What a listing says of one stream."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from neve.buffer.frame import EMPTY_SEGMENT_BYTES, is_closing
from neve.buffer.layout import Kind, Part, parse_part
from neve.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neve.buffer.layout import StoredFile
    from neve.buffer.part_index import PartIndexes
    from neve.buffer.store import BufferStore

logger = logging.getLogger(__name__)


# Compared by identity: what was found out of a stream counts for this listing of it alone.
@dataclass(frozen=True, slots=True, eq=False)
class StreamParts:
    """The parts of a stream. `retired_through` is durable before any segment is removed."""

    name: str
    segments: dict[int, Part]
    retired: tuple[Part, ...]
    open_bytes: int
    retired_through: int = field(init=False)

    def __post_init__(self) -> None:
        # Once: a lake may have a hundred streams, of which each is asked ten times a batch.
        through = max((part.number for part in self.retired), default=0)
        object.__setattr__(self, "retired_through", through)

    @property
    def files(self) -> list[StoredFile]:
        """The files of its segments and declarations."""
        return [part.file for part in (*self.segments.values(), *self.retired)]

    @property
    def last_number(self) -> int:
        """The highest number of a segment, also of one that was retired."""
        return max((*self.segments, self.retired_through))

    def waiting(self, after: int = 0) -> list[Part]:
        """Return the sealed segments after a number, up to the first that is missing."""
        waiting = []
        number = max(after, self.retired_through) + 1
        while number in self.segments:
            waiting.append(self.segments[number])
            number += 1
        return waiting

    @property
    def missing(self) -> int | None:
        """The number of a segment that later ones wait for."""
        if not self.segments:
            return None
        waiting = self.waiting()
        expected = (waiting[-1].number if waiting else self.retired_through) + 1
        return expected if any(number > expected for number in self.segments) else None


def load_streams(store: BufferStore, prefix: str) -> list[StreamParts]:
    """Return the streams under a prefix, which is a signal or the name of a stream."""
    return parse_streams(store.files(prefix))


def parse_streams(files: Iterable[StoredFile]) -> list[StreamParts]:
    """Return the streams that files belong to, sorted by name."""
    parts = [part for part in map(parse_part, files) if part]
    parts.sort(key=lambda part: part.stream)
    by_stream = groupby(parts, key=lambda part: part.stream)
    return [_stream(name, list(group)) for name, group in by_stream]


def load_stream(store: BufferStore, name: str) -> StreamParts:
    """Return a stream; without parts if there is none of that name."""
    return next(iter(load_streams(store, name)), StreamParts(name, {}, (), 0))


def _stream(name: str, parts: list[Part]) -> StreamParts:
    return StreamParts(
        name=name,
        segments={part.number: part for part in parts if part.kind is Kind.SEGMENT},
        retired=tuple(part for part in parts if part.kind is Kind.RETIRED),
        open_bytes=sum(part.file.size for part in parts if part.kind is Kind.OPEN),
    )


def last_part(stream: StreamParts) -> Part | None:
    """Return the segment or declaration with the highest number."""
    parts = (*stream.segments.values(), *stream.retired)
    return max(parts, key=lambda part: part.number, default=None)


def may_close(part: Part) -> bool:
    """Say whether a part may end its stream, by its name and size."""
    return part.kind is not Kind.SEGMENT or part.file.size == EMPTY_SEGMENT_BYTES


def is_closed(known: PartIndexes, stream: StreamParts) -> bool:
    """Say whether a stream has ended, so that no segment can follow.

    If its last part is damaged, nobody knows: it counts as open, so that nothing of it is removed.
    """
    last = last_part(stream)
    return last is not None and may_close(last) and known.is_closing(last)


def ends_stream(store: BufferStore, part: Part) -> bool:
    """Say whether the last part of a stream ends it; not if it is damaged, as `is_closed` does."""
    if not may_close(part):
        return False
    try:
        return is_closing(store.read(part.file.path))
    except CorruptionError as error:
        logger.warning("whether %s ends its stream is unknown: %s", part.file.path, error)
        return False
