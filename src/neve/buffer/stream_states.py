"""Whether a stream is in this buffer, was dropped, or is simply not found.

That a stream is not listed proves nothing: it may be another buffer's, or its directory may be
away for a while. So a dropped stream leaves a note, `dropped/<signal>/<stream>`, which is durable
before any of its files is removed.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING

from neve.buffer import dead_letters
from neve.buffer.layout import DROPPED, drop_note_path
from neve.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neve.buffer.store import BufferStore


class StreamState(str, Enum):
    """What a buffer can say of a stream."""

    PRESENT = "present"
    # It ended, every table consumed it, and a note says so.
    DROPPED = "dropped"
    # Nothing is known: it may be another buffer's, or away.
    MISSING = "missing"


def load_stream_states(store: BufferStore, names: Iterable[str]) -> dict[str, StreamState]:
    """Return the state of each of these streams.

    One listing of streams and one of notes for each signal among them. The notes are listed last:
    a stream that is dropped in between is then found dropped and not missing.
    """
    by_signal: dict[str, list[str]] = {}
    for name in names:
        by_signal.setdefault(name.partition("/")[0], []).append(name)
    states: dict[str, StreamState] = {}
    for signal, streams in by_signal.items():
        present = {_stream_of(file.path) for file in store.files(signal)}
        dropped = set(list_dropped(store, signal))
        for stream in streams:
            if stream in dropped:
                states[stream] = StreamState.DROPPED
            else:
                is_present = stream in present
                states[stream] = StreamState.PRESENT if is_present else StreamState.MISSING
    return states


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


def remove_drop_note(store: BufferStore, stream: str) -> None:
    """Remove a note that nobody needs any more; until then it stays. Idempotent.

    It is needed while files of the stream are left, and while there are dead letters of it: the
    note says that no batch can set them aside again, so that they may be replayed.
    """
    if not store.files(stream) and not store.files(f"{dead_letters.PREFIX}/{stream}"):
        store.delete([drop_note_path(stream)])


def _stream_of(path: str) -> str:
    return "/".join(path.split("/")[:2])
