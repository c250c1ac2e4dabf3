"""Requests that were acknowledged and cannot become rows: kept with the reason, once.

`dead-letters/<stream>/<segment>-<position>.json` for a request of which a record or all was set
aside, `dead-letters/<stream>/<segment>.segment` and `.json` for a segment that is damaged. A name
says where the request was stored, and a file is written only if there is none of that name, so
doing the same work again adds nothing.

They lie beside the streams: neither the receiver's quota nor consolidation lists them.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neve.buffer.layout import NUMBER_DIGITS
from neve.buffer.payload import NO_SENDER, SENDER_BYTES, Codec, pack, unpack
from neve.errors import CorruptionError, NotFoundError, UsageError
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from neve.buffer.layout import StoredFile
    from neve.buffer.reader import Segment
    from neve.buffer.store import BufferStore

PREFIX = "dead-letters"
_SIGNALS = "|".join(signal.value for signal in Signal)
_FILE = re.compile(rf"{PREFIX}/({_SIGNALS})/[^/.]+/[0-9]{{{NUMBER_DIGITS}}}(-[0-9]+)?\.json")
# What each has, also that of a damaged segment.
_KEYS = {"stream", "segment", "position", "received_unix_nano", "reasons"}


@dataclass(frozen=True)
class DeadRequest:
    """A request of which something could not be stored: where it was, why, and all of it."""

    stream: str
    segment: int
    position: int
    received_unix_nano: int
    # (path within the request, reason); an empty path is the whole request.
    reasons: tuple[tuple[str, str], ...]
    payload: bytes
    sender: bytes = NO_SENDER
    sender_name: str = ""

    @property
    def path(self) -> str:
        name = f"{self.segment:0{NUMBER_DIGITS}d}-{self.position:06d}.json"
        return f"{PREFIX}/{self.stream}/{name}"

    @property
    def signal(self) -> Signal:
        return Signal(self.stream.partition("/")[0])


def set_aside(store: BufferStore, dead: DeadRequest) -> None:
    """Keep a request with its reasons. Idempotent, durable on return."""
    stored, codec = pack(dead.payload)
    document = {
        "stream": dead.stream,
        "segment": dead.segment,
        "position": dead.position,
        "received_unix_nano": dead.received_unix_nano,
        "sender": dead.sender.hex(),
        "sender_name": dead.sender_name or None,
        "reasons": [{"path": path, "reason": reason} for path, reason in dead.reasons],
        "codec": codec.name.lower(),
        "payload": base64.b64encode(stored).decode(),
        "payload_bytes": len(dead.payload),
    }
    store.put_new(dead.path, json.dumps(document).encode())


def set_segment_aside(store: BufferStore, segment: Segment, data: bytes, reason: str) -> None:
    """Keep a damaged segment as it is, for a person. Idempotent, durable on return."""
    place = f"{PREFIX}/{segment.stream}/{segment.number:0{NUMBER_DIGITS}d}"
    store.put_new(f"{place}.segment", data)
    document = {
        "stream": segment.stream,
        "segment": segment.number,
        "position": None,
        "received_unix_nano": None,
        "reasons": [{"path": "", "reason": reason}],
    }
    store.put_new(f"{place}.json", json.dumps(document).encode())


def list_dead_letters(store: BufferStore) -> list[StoredFile]:
    """Return the files of the dead letters, sorted by stream and segment."""
    return [file for file in store.files(PREFIX) if _FILE.fullmatch(file.path)]


def read_dead_letters(store: BufferStore) -> Iterator[dict[str, Any]]:
    """Yield what was set aside, in the order of streams and segments, without the payloads.

    Of a file that is damaged: what its name says, and the damage as the reason.
    """
    for file in list_dead_letters(store):
        try:
            document = read_dead_letter(store, file.path)
        except NotFoundError:
            # It was replayed or removed after it was listed.
            continue
        except CorruptionError as error:
            document = _damaged(file.path, error.message)
        document.pop("payload", None)
        yield {**document, "file": file.path}


def _damaged(file: str, reason: str) -> dict[str, Any]:
    stream, _, name = file.removeprefix(f"{PREFIX}/").rpartition("/")
    return {
        "stream": stream,
        "segment": int(name[:NUMBER_DIGITS]),
        "position": None,
        "received_unix_nano": None,
        "reasons": [{"path": "", "reason": reason}],
    }


def check_file_name(file: str) -> None:
    """Raise UsageError if a name cannot be that of a dead letter."""
    if not _FILE.fullmatch(file):
        raise UsageError(
            f"{file} is not a dead letter", hint="take FILE from: neve buffer dead-letters"
        )


def read_dead_letter(store: BufferStore, file: str) -> dict[str, Any]:
    """Return one dead letter as it is stored.

    Raises:
        NotFoundError: there is none of that name.
        CorruptionError: the file is damaged.
    """
    try:
        document = json.loads(store.read(file))
    except ValueError as error:
        raise CorruptionError(f"{file} is not a dead letter: {error}") from error
    if not isinstance(document, dict) or not document.keys() >= _KEYS:
        raise CorruptionError(f"{file} is not a dead letter: it lacks what each one has")
    reasons = document["reasons"]
    if not isinstance(reasons, list) or not all(isinstance(each, dict) for each in reasons):
        raise CorruptionError(f"{file} is not a dead letter: its reasons are none")
    return document


def stored_request(document: dict[str, Any]) -> DeadRequest | None:
    """Return the request of a dead letter; None for a damaged segment. Raises CorruptionError."""
    try:
        return None if document["position"] is None else _stored_request(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"a dead letter lacks what it should have: {error}") from error


def _stored_request(document: dict[str, Any]) -> DeadRequest:
    stored = base64.b64decode(document["payload"])
    codec = Codec[document["codec"].upper()]
    sender = document.get("sender")
    dead = DeadRequest(
        stream=document["stream"],
        segment=document["segment"],
        position=document["position"],
        received_unix_nano=document["received_unix_nano"],
        reasons=tuple((reason["path"], reason["reason"]) for reason in document["reasons"]),
        payload=unpack(stored, codec, document["payload_bytes"]),
        # The first version did not keep the sender.
        sender=bytes.fromhex(sender) if sender else NO_SENDER,
        sender_name=document.get("sender_name") or "",
    )
    _require_storable(dead)
    return dead


def _require_storable(dead: DeadRequest) -> None:
    """Raise ValueError if a request cannot be stored again: one odd letter must stop no other."""
    numbers = dead.segment, dead.position, dead.received_unix_nano
    if not all(isinstance(number, int) and 0 <= number < 1 << 63 for number in numbers):
        raise ValueError(f"segment, position and time are {numbers}")
    if not _FILE.fullmatch(dead.path):
        raise ValueError(f"no request is at {dead.path}")
    if len(dead.sender) != SENDER_BYTES or not isinstance(dead.sender_name, str):
        raise ValueError("the sender is none")
    if not all(isinstance(path, str) for path, _ in dead.reasons):
        raise ValueError("a path is no text")


def remove_dead_letters(store: BufferStore, files: Iterable[str]) -> None:
    """Remove dead letters, and the damaged segments they are about. Idempotent."""
    paths = [path for file in files for path in _files_of(file)]
    store.delete(paths)


def _files_of(file: str) -> list[str]:
    """Return a dead letter's file, and with it the copy of the segment that it is about."""
    stem = file.removesuffix(".json")
    is_request = "-" in stem.rpartition("/")[2]
    return [file] if is_request else [file, f"{stem}.segment"]


def dead_request(
    requests: pa.RecordBatch, row: int, reasons: Sequence[tuple[str, str]]
) -> DeadRequest:
    """Take a request out of what `BufferReader.read` yields."""
    (request,) = requests.slice(row, 1).to_pylist()
    return DeadRequest(
        stream=request["stream"],
        segment=request["segment"],
        position=request["position"],
        received_unix_nano=request["received_unix_nano"],
        reasons=tuple(reasons),
        payload=request["payload"],
        sender=request["sender"],
        sender_name=request["sender_name"] or "",
    )
