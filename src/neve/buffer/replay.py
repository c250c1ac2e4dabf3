"""Store again what was set aside, exactly once: `neve buffer dead-letters replay`.

A replay is a stream of its own, `<signal>/<buffer id>-replay-<time>-<random>`. The requests are in
its segment 1, the end is in segment 2. Consolidation reads it as any other.

1. An *intent* names the stream and the dead letters: `replays/<signal>-….json`.
2. Segment 1 is put: from now on the records are stored.
3. Segment 2 is put.
4. A *record* of the replay is put, `replayed/<signal>-….json`, and the dead letters are removed.
5. The intent is removed.

A replay that was cut off is finished by the next one. Whether segment 1 was put decides how: with
it, steps 3 to 5 follow. Without it, a closing segment is put in its place, so that a put in doubt
cannot arrive later, and the dead letters stay. `may_be_forgotten` keeps the stream until then.

A consolidation worker that hung for long may write a dead letter again that was replayed meanwhile.
The record tells it apart: such a dead letter is removed and not replayed.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve import failpoints
from neve.buffer.dead_letters import (
    list_dead_letters,
    read_dead_letter,
    remove_dead_letters,
    stored_request,
)
from neve.buffer.frame import (
    EMPTY_SEGMENT_BYTES,
    NO_SALT,
    frame_parts,
    heads_only,
    is_closing,
    preamble,
)
from neve.buffer.identity import ensure_identity
from neve.buffer.layout import Kind, buffer_id_of, new_stream, part_path
from neve.buffer.replay_requests import build_request
from neve.buffer.stream import StreamParts, load_stream
from neve.buffer.stream_states import is_dropped
from neve.buffer.window import NANOS
from neve.errors import ConflictError, CorruptionError, NotFoundError
from neve.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from neve.buffer.layout import StoredFile
    from neve.buffer.payload import Request
    from neve.buffer.store import BufferStore

PREFIX = "replays"
RECORDS_PREFIX = "replayed"
REPLAY = "replay-"
# Of one stream, as stored: it is built in memory.
MAX_REPLAY_BYTES = 32 * MIB
MAX_REPLAY_LETTERS = 1000
# A retired stream is kept for so long: a put of a process that hung finds it, and adds nothing.
KEEP_SECONDS = 3600.0
# No worker hangs for longer than this and still writes dead letters.
KEEP_RECORDS_SECONDS = 7 * 86_400.0


@dataclass(frozen=True)
class Replayed:
    """What a replay did."""

    requests: int
    records: int
    streams: tuple[str, ...]
    # (file, why it was not replayed)
    skipped: tuple[tuple[str, str], ...]
    # Replays that were cut off before, and whose requests are stored.
    finished: tuple[str, ...]


@dataclass(frozen=True)
class Intent:
    """Which dead letters are replayed in which stream."""

    stream: str
    letters: tuple[str, ...]

    @property
    def path(self) -> str:
        return _intent_path(self.stream)

    @property
    def record_path(self) -> str:
        return f"{RECORDS_PREFIX}/{_file_name(self.stream)}"

    def encode(self) -> bytes:
        return json.dumps({"stream": self.stream, "letters": self.letters}).encode()


def replay(store: BufferStore, files: Iterable[str] | None = None) -> Replayed:
    """Replay dead letters, all of them without `files`; finish what was cut off before.

    Only the records that were set aside are stored: the others of their request already are.
    Exactly once, whatever is killed and whoever else replays.

    Raises:
        ConflictError: another process replays the same dead letters.
    """
    finished = finish_interrupted(store)
    _remove_replayed(store)
    replayable, skipped = _choose(store, None if files is None else set(files))
    requests = records = 0
    streams = []
    for letters in _chunks(replayable):
        stream, put = _replay_chunk(store, letters)
        if put:
            streams.append(stream)
        requests += len(put)
        records += sum(request.records for request in put)
    return Replayed(requests, records, tuple(streams), tuple(skipped), finished)


def _choose(
    store: BufferStore, wanted: set[str] | None
) -> tuple[list[StoredFile], list[tuple[str, str]]]:
    """Return the dead letters to replay; of the others, why not."""
    listed = list_dead_letters(store)
    missing = sorted((wanted or set()) - {file.path for file in listed})
    skipped = [(path, "there is no such file") for path in missing]
    replayable = []
    retired = _RetiredSegments(store)
    for file in listed:
        if wanted is not None and file.path not in wanted:
            continue
        reason = _obstacle(store, file.path, retired)
        if reason is None:
            replayable.append(file)
        else:
            skipped.append((file.path, reason))
    return replayable, skipped


def finish_interrupted(store: BufferStore) -> tuple[str, ...]:
    """Finish or withdraw the replays that were cut off; return the streams that were finished."""
    intents = _intents(store)
    return tuple(intent.stream for intent in intents if _finish_or_withdraw(store, intent))


def may_be_forgotten(store: BufferStore, stream: StreamParts) -> bool:
    """Tell whether a retired stream is needed no more to decide what became of a replay."""
    if not _is_replay(stream.name):
        return True
    changed = max((part.file.modified_unix_nano for part in stream.retired), default=0)
    if time.time_ns() - changed < KEEP_SECONDS * NANOS:
        return False
    try:
        store.read(_intent_path(stream.name))
    except NotFoundError:
        return True
    return False


def _is_replay(stream: str) -> bool:
    name = stream.partition("/")[2]
    buffer_id = buffer_id_of(stream)
    return name.removeprefix(f"{buffer_id}-" if buffer_id else "").startswith(REPLAY)


def _intent_path(stream: str) -> str:
    return f"{PREFIX}/{_file_name(stream)}"


def _file_name(stream: str) -> str:
    return f"{stream.replace('/', '-')}.json"


def _intents(store: BufferStore, prefix: str = PREFIX) -> list[Intent]:
    """Return the intents that are there; of the other prefix, the records."""
    intents = []
    for file in store.files(prefix):
        try:
            document = json.loads(store.read(file.path))
            intents.append(Intent(document["stream"], tuple(document["letters"])))
        except NotFoundError:
            continue
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(
                f"{file.path} is damaged, so nobody knows which dead letters were replayed in it",
                hint="replay none of those before you know; then remove the file",
            ) from error
    return intents


def _remove_replayed(store: BufferStore) -> None:
    """Remove dead letters that were written again after their replay, and old records."""
    for record in _intents(store, RECORDS_PREFIX):
        remove_dead_letters(store, record.letters)
    before_unix_nano = time.time_ns() - int(KEEP_RECORDS_SECONDS * NANOS)
    records = store.files(RECORDS_PREFIX)
    store.delete([file.path for file in records if file.modified_unix_nano < before_unix_nano])


def _finish_or_withdraw(store: BufferStore, intent: Intent) -> bool:
    stream = load_stream(store, intent.stream)
    if not stream.segments and not stream.retired:
        # If this put is refused, the one in doubt has arrived.
        store.put_new(part_path(intent.stream, 1, Kind.SEGMENT), heads_only([], closing=True))
    if _is_withdrawn(store, intent.stream):
        store.delete([intent.path])
        return False
    _finish(store, intent)
    return True


def _is_withdrawn(store: BufferStore, name: str) -> bool:
    """Tell whether a closing segment took the place of the requests."""
    stream = load_stream(store, name)
    first = [part for part in stream.retired if part.number == 1]
    if 1 in stream.segments and stream.segments[1].file.size == EMPTY_SEGMENT_BYTES:
        first.append(stream.segments[1])
    try:
        return any(is_closing(store.read(part.file.path)) for part in first)
    except NotFoundError:
        # It was retired after it was listed.
        return _is_withdrawn(store, name)


def _finish(store: BufferStore, intent: Intent) -> None:
    if load_stream(store, intent.stream).retired_through < 2:
        store.put_new(part_path(intent.stream, 2, Kind.SEGMENT), heads_only([], closing=True))
    failpoints.reach("replay.closed")
    store.put_new(intent.record_path, intent.encode())
    remove_dead_letters(store, intent.letters)
    failpoints.reach("replay.removed")
    store.delete([intent.path])


def _replay_chunk(
    store: BufferStore, letters: Sequence[StoredFile]
) -> tuple[str, Sequence[Request]]:
    signal = letters[0].path.split("/")[1]
    stream = new_stream(signal, ensure_identity(store), REPLAY)
    intent = Intent(stream, tuple(file.path for file in letters))
    store.put_new(intent.path, intent.encode())
    failpoints.reach("replay.intended")
    # Behind the intent: of two replays at the same time, at least one sees the other's.
    _refuse_overlap(store, intent)
    # Read only now: another replay may have stored and removed some of them before.
    requests = list(_present_requests(store, intent.letters))
    if not requests:
        store.delete([intent.path])
        return stream, []
    _put_requests(store, stream, requests)
    failpoints.reach("replay.put")
    _finish(store, intent)
    return stream, requests


def _refuse_overlap(store: BufferStore, intent: Intent) -> None:
    for other in _intents(store):
        if other.stream != intent.stream and set(other.letters) & set(intent.letters):
            store.delete([intent.path])
            raise ConflictError(
                "another process replays the same dead letters",
                hint="run the command again when that one has ended",
            )


def _present_requests(store: BufferStore, files: Iterable[str]) -> Iterator[Request]:
    for file in files:
        try:
            document = read_dead_letter(store, file)
        except NotFoundError:
            continue
        dead = stored_request(document)
        if dead is not None:
            yield build_request(dead)


def _put_requests(store: BufferStore, stream: str, requests: Sequence[Request]) -> None:
    path = part_path(stream, 1, Kind.SEGMENT)
    data = preamble(NO_SALT) + b"".join(frame_parts(requests, NO_SALT))
    # A put that was repeated inside the client finds its own first attempt.
    is_ours = store.put_new(path, data) or store.read(path) == data
    # Also when it was put: the closing segment in its place may be retired already.
    if not is_ours or _is_withdrawn(store, stream):
        raise ConflictError(
            "another replay has withdrawn this one; the dead letters are still there",
            hint="run the command again",
        )


class _RetiredSegments:
    """Which segments can never be consolidated again; each stream is looked up once."""

    def __init__(self, store: BufferStore) -> None:
        self._store = store
        self._streams: dict[str, StreamParts] = {}

    def has(self, stream: str, number: int) -> bool:
        if stream not in self._streams:
            self._streams[stream] = load_stream(self._store, stream)
        parts = self._streams[stream]
        if parts.segments or parts.retired:
            return number <= parts.retired_through
        # Streams that were named before buffers had ids were dropped without a note.
        return buffer_id_of(stream) is None or is_dropped(self._store, stream)


def _obstacle(store: BufferStore, file: str, retired: _RetiredSegments) -> str | None:
    """Return why a dead letter cannot be replayed; None if it can."""
    try:
        dead = stored_request(read_dead_letter(store, file))
        if dead is None:
            return "a damaged segment is for a person to look at"
        # A batch that is done again would set the same record aside once more.
        if not retired.has(dead.stream, dead.segment):
            return "its segment is being consolidated; replay it later"
        build_request(dead)
    except (CorruptionError, NotFoundError) as error:
        return error.message
    return None


def _chunks(files: Sequence[StoredFile]) -> Iterator[list[StoredFile]]:
    """Cut dead letters, sorted by signal, into what one stream takes."""
    chunk: list[StoredFile] = []
    size = 0
    for file in files:
        is_other_signal = bool(chunk) and file.path.split("/")[1] != chunk[0].path.split("/")[1]
        is_full = len(chunk) >= MAX_REPLAY_LETTERS or size + file.size > MAX_REPLAY_BYTES
        if chunk and (is_other_signal or is_full):
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += file.size
    if chunk:
        yield chunk
