"""Build the requests that a replay stores: only the records that were set aside. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from neve.buffer.payload import Request, pack
from neve.buffer.record_paths import select_records
from neve.errors import CorruptionError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from neve.buffer.dead_letters import DeadRequest
    from neve.signals import Signal


def build_request(dead: DeadRequest) -> Request:
    """Build a request of only the records that were set aside. Raises CorruptionError."""
    paths = [path for path, _ in dead.reasons]
    if "" in paths:
        raw, records = dead.payload, _count(dead.signal, dead.payload)
    else:
        selected = select_records(parse_payload(dead.signal, dead.payload), paths)
        raw, records = selected.SerializeToString(), len(set(paths))
    payload, codec = pack(raw)
    return Request(
        payload=payload,
        codec=codec,
        raw_bytes=len(raw),
        records=records,
        received_unix_nano=dead.received_unix_nano,
        sender=dead.sender,
        # Not the request's own hash: its first copy was stored and would make this a duplicate.
        content_hash=hashlib.sha256(dead.path.encode() + b"\0" + raw).digest(),
        sender_name=dead.sender_name,
    )


def parse_payload(signal: Signal, payload: bytes) -> Message:
    """Parse a request. Raises CorruptionError."""
    request = signal.request()
    try:
        request.ParseFromString(payload)
    except DecodeError as error:
        raise CorruptionError("this version of Neve cannot read the request") from error
    return request


def _count(signal: Signal, payload: bytes) -> int:
    try:
        request = parse_payload(signal, payload)
    except CorruptionError:
        return 1
    resources, scopes, records = signal.levels
    return sum(
        len(getattr(scope, records))
        for resource in getattr(request, resources)
        for scope in getattr(resource, scopes)
    )
