"""Requests that were acknowledged and cannot become rows: kept with the reason, once.

`dead-letters/<stream>/<segment>-<position>.json` for a request of which a record or all was set
aside, `dead-letters/<stream>/<segment>.segment` for a segment that is damaged. A name says the
place, and is written only if it is not there: doing the same work again adds nothing.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neve.buffer.layout import NUMBER_DIGITS
from neve.buffer.payload import pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neve.buffer.reader import Segment
    from neve.buffer.store import BufferStore

PREFIX = "dead-letters"


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

    @property
    def path(self) -> str:
        name = f"{self.segment:0{NUMBER_DIGITS}d}-{self.position:06d}.json"
        return f"{PREFIX}/{self.stream}/{name}"


def set_aside(store: BufferStore, dead: DeadRequest) -> None:
    """Keep a request with its reasons. Idempotent, durable on return."""
    stored, codec = pack(dead.payload)
    document = {
        "stream": dead.stream,
        "segment": dead.segment,
        "position": dead.position,
        "received_unix_nano": dead.received_unix_nano,
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


def read_dead_letters(store: BufferStore) -> Iterator[dict[str, Any]]:
    """Yield what was set aside, in the order of streams and segments, without the payloads."""
    for file in store.files(PREFIX):
        if file.path.endswith(".json"):
            document = json.loads(store.read(file.path))
            document.pop("payload", None)
            yield {**document, "file": file.path}


def dead_request(
    requests: pa.RecordBatch, row: int, reasons: Sequence[tuple[str, str]]
) -> DeadRequest:
    """Take a request out of what `BufferReader.read` yields."""
    (found,) = requests.slice(row, 1).to_pylist()
    return DeadRequest(
        stream=found["stream"],
        segment=found["segment"],
        position=found["position"],
        received_unix_nano=found["received_unix_nano"],
        reasons=tuple(reasons),
        payload=found["payload"],
    )
