"""Segments that were consumed and are kept for a while: `retained/<stream>/<number>.segment`.

They lie beside the streams, so that consolidation and the receiver's quota do not list them. A
stream is dropped only after its retained segments are gone: a stream with a note has none.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from neve.buffer.layout import (
    DUPLICATES_SUFFIX,
    RETAINED,
    Kind,
    duplicates_path,
    parse_part,
    retained_path,
)
from neve.buffer.window import NANOS
from neve.errors import NeveError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from neve.buffer.layout import Part, StoredFile
    from neve.buffer.store import BufferStore

logger = logging.getLogger(__name__)

# How often retained segments are listed to find expired ones: a share of the retention, within
# bounds. A listing costs money on an object store.
LOOK_SHARE = 1 / 20
LEAST_LOOK_SECONDS = 60.0
MOST_LOOK_SECONDS = 3600.0


def retain_or_delete(store: BufferStore, parts: Iterable[Part], retain_seconds: float) -> None:
    """Take segments out of their stream, which has declared them retired. Idempotent."""
    paths = [part.file.path for part in parts]
    if retain_seconds > 0:
        store.move({path: retained_path(path) for path in paths})
    else:
        store.delete(paths)


def list_retained(store: BufferStore, prefix: str = "") -> list[Part]:
    """Return the retained segments of a signal or a stream, or all, sorted by path.

    The time of a part's file is when it was consumed.
    """
    return [
        part
        for file in store.files(retained_path(prefix) if prefix else RETAINED)
        if (part := parse_part(replace(file, path=file.path.removeprefix(f"{RETAINED}/"))))
        and part.kind is Kind.SEGMENT
    ]


def note_duplicates(
    store: BufferStore, stream: str, number: int, positions: Mapping[str, Sequence[int]]
) -> None:
    """Note which requests of a segment were not stored, as a table had another copy. Idempotent.

    Args:
        positions: for each table, the requests' positions in the segment.
    """
    document = {table: sorted(of_table) for table, of_table in sorted(positions.items())}
    store.put_new(duplicates_path(stream, number), json.dumps(document).encode())


def read_duplicates(store: BufferStore, signal: str) -> dict[tuple[str, int], dict[str, list[int]]]:
    """Return what was noted of retained segments: by stream and number, positions by table."""
    noted = {}
    for file in store.files(retained_path(signal)):
        if file.path.endswith(DUPLICATES_SUFFIX):
            stream, _, name = file.path.removeprefix(f"{RETAINED}/").rpartition("/")
            number = int(name.removesuffix(DUPLICATES_SUFFIX))
            noted[stream, number] = json.loads(store.read(file.path))
    return noted


def remove_retained(store: BufferStore, stream: str) -> None:
    """Remove all that is retained of a stream. Idempotent."""
    directory = retained_path(stream)
    store.delete([file.path for file in store.files(directory)])
    store.remove_stream(directory)


@dataclass
class RetentionLimit:
    """Removes retained segments past their time, now and then."""

    store: BufferStore
    retain_seconds: float
    clock: Callable[[], float] = time.time
    next_look: float = 0.0

    def enforce_when_due(self) -> int:
        """Remove what is past its time, unless the last look was a short while ago.

        Best effort: what fails is tried again at the next look.
        """
        now = self.clock()
        if now < self.next_look:
            return 0
        share = self.retain_seconds * LOOK_SHARE if self.retain_seconds else MOST_LOOK_SECONDS
        self.next_look = now + min(MOST_LOOK_SECONDS, max(LEAST_LOOK_SECONDS, share))
        try:
            return self.enforce()
        except NeveError as error:
            logger.warning("the retained segments were not looked at: %s", error)
            return 0

    def enforce(self) -> int:
        """Remove what is past its time, all of it without a retention. Raises StorageError."""
        keep_since = (self.clock() - self.retain_seconds) * NANOS
        expired = []
        # What lies beside a segment goes together with it.
        for _, group in groupby(self.store.files(RETAINED), key=_place):
            files = list(group)
            newest = max(file.modified_unix_nano for file in files)
            if not self.retain_seconds or newest < keep_since:
                expired += [file.path for file in files]
        self.store.delete(expired)
        if expired:
            logger.info("removed %s retained files past their time", len(expired))
        return len(expired)


def _place(file: StoredFile) -> str:
    """Return the stream and the number of a file."""
    directory, _, name = file.path.rpartition("/")
    return f"{directory}/{name.partition('.')[0]}"
