"""Builders of buffered requests."""

from __future__ import annotations

import hashlib
import time

from neve.buffer.payload import NO_SENDER, Codec, Request, pack


def buffered(
    content: bytes,
    *,
    sender: bytes = NO_SENDER,
    sender_name: str = "",
    received_unix_nano: int | None = None,
) -> Request:
    """Build a request whose payload is `content`, stored as the receiver would store it."""
    payload, codec = pack(content)
    return Request(
        payload=payload,
        codec=Codec(codec),
        raw_bytes=len(content),
        records=1,
        received_unix_nano=time.time_ns() if received_unix_nano is None else received_unix_nano,
        sender=sender,
        content_hash=hashlib.sha256(content).digest(),
        sender_name=sender_name,
    )
