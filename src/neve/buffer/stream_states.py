"""Whether a stream is in this buffer, was dropped, or is simply not found.

That a stream is not listed proves nothing: it may be another buffer's, or its directory may be
away for a while. So a dropped stream leaves a note, `dropped/<signal>/<stream>`, which is durable
before any of its files is removed.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TYPE_CHECKING

from neve.buffer import dead_letters
from neve.buffer.layout import DROPPED, drop_note_path
from neve.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from neve.buffer.layout import StoredFile
    from neve.buffer.store import BufferStore

READS_AT_ONCE = 16
# Notes that other processes put are listed so often. Nothing waits for their removal.
LOOK_SECONDS = 600.0


class StreamState(str, Enum):
    """What a buffer can say of a stream."""

    PRESENT = "present"
    # It ended, every table consumed it, and a note says so.
    DROPPED = "dropped"
    # Nothing is known: it may be another buffer's, or away.
    MISSING = "missing"


def list_dropped(store: BufferStore, signal: str) -> list[str]:
    """Return the streams of a signal whose note is still there, sorted."""
    return [file.path.partition("/")[2] for file in store.files(f"{DROPPED}/{signal}")]


def is_dropped(store: BufferStore, stream: str) -> bool:
    """Tell whether there is a note that a stream was dropped."""
    try:
        store.read(drop_note_path(stream))
    except NotFoundError:
        return False
    return True


def put_drop_note(store: BufferStore, stream: str, retired_through: int) -> None:
    """Note that a stream is dropped. Idempotent, durable on return."""
    note = json.dumps({"stream": stream, "retired_through": retired_through})
    store.put_new(drop_note_path(stream), note.encode())


class DropNotes:
    """The notes of dropped streams that a process knows. A dropped stream never comes back."""

    def __init__(self, store: BufferStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: set[str] = set()
        # By signal, and by stream.
        self._next_look: dict[str, float] = {}
        self._next_removal: dict[str, float] = {}

    def add(self, stream: str) -> None:
        """Remember a note that this process has put."""
        self._known.add(stream)

    def known(self, signal: str) -> list[str]:
        """Return the streams of a signal whose note is there, sorted; listed now and then."""
        now = self._clock()
        if now >= self._next_look.get(signal, now):
            self._next_look[signal] = now + LOOK_SECONDS
            self._known.update(list_dropped(self._store, signal))
        return sorted(stream for stream in self._known if _signal_of(stream) == signal)

    def removable(self, signal: str) -> list[str]:
        """Return the streams of a signal whose note was not tried to be removed a moment ago."""
        now = self._clock()
        return [name for name in self.known(signal) if now >= self._next_removal.get(name, now)]

    def find(self, names: Iterable[str]) -> set[str]:
        """Return those of some streams that have a note; it is read for those not known yet."""
        wanted = set(names)
        unknown = sorted(wanted - self._known)
        if unknown:
            with ThreadPoolExecutor(min(READS_AT_ONCE, len(unknown))) as pool:
                noted = list(pool.map(lambda name: is_dropped(self._store, name), unknown))
            self._known.update(
                name for name, is_noted in zip(unknown, noted, strict=True) if is_noted
            )
        return wanted & self._known

    def remove(self, stream: str) -> None:
        """Remove a note that nobody needs any more; until then it stays. Idempotent.

        It is needed while files of the stream are left, and while there are dead letters of it: the
        note says that no batch can set them aside again, so that they may be replayed.
        """
        store = self._store
        if store.files(stream) or store.files(f"{dead_letters.PREFIX}/{stream}"):
            self._next_removal[stream] = self._clock() + LOOK_SECONDS
            return
        store.delete([drop_note_path(stream)])
        self._known.discard(stream)
        self._next_removal.pop(stream, None)

    def stream_states(
        self, names: Iterable[str], listed_files: Callable[[str], Sequence[StoredFile]]
    ) -> dict[str, StreamState]:
        """Return the state of each of these streams, as it is now.

        Args:
            listed_files: of a stream, as far as known: one that is still there saves a listing.
        """
        wanted = list(names)
        dropped = self.find(wanted)
        states = dict.fromkeys(dropped, StreamState.DROPPED)
        # A dropped stream has a note until its files are gone, and they never come back. So files
        # that are there after no note was found are of a stream that was not dropped before.
        for name in wanted:
            if name not in dropped:
                is_present = self._has_one_of(listed_files(name)) or self._store.files(name)
                states[name] = StreamState.PRESENT if is_present else StreamState.MISSING
        missing = [name for name, state in states.items() if state is StreamState.MISSING]
        # Dropped in between.
        states.update(dict.fromkeys(self.find(missing), StreamState.DROPPED))
        return {name: states[name] for name in wanted}

    def _has_one_of(self, files: Sequence[StoredFile]) -> bool:
        if not files:
            return False
        try:
            # The newest stays longest.
            self._store.read(max(files, key=lambda file: file.path).path, 0, 1)
        except NotFoundError:
            return False
        return True


def load_stream_states(store: BufferStore, names: Iterable[str]) -> dict[str, StreamState]:
    """Return the state of each of these streams, as it is now."""
    return DropNotes(store).stream_states(names, lambda _: ())


def _signal_of(stream: str) -> str:
    return stream.partition("/")[0]
