"""Names in a buffer: `signal/stream-id/number.kind`, the same in a directory and a bucket."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

NUMBER_DIGITS = 12
LEASES = "leases"
IDENTITY = "identity"
DROPPED = "dropped"
RETAINED = "retained"
DUPLICATES_SUFFIX = ".duplicates"
BUFFER_ID_BYTES = 8
# A sealed file on disk carries its length in its name: sealing then needs no space, and a file cut
# short afterwards is noticed.
_NAME = re.compile(
    r"(?P<stream>[a-z]+/[^/.]+)/(?P<number>[0-9]{12})"
    r"(?:\.(?P<size>[0-9]+))?\.(?P<kind>open|segment|retired)"
)

_BUFFER_ID = re.compile(r"[0-9a-f]{16}")


class Kind(str, Enum):
    """What a file of a stream is."""

    OPEN = "open"
    SEGMENT = "segment"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file or object as a listing shows it."""

    path: str
    size: int
    modified_unix_nano: int


@dataclass(frozen=True, slots=True)
class Part:
    """A file that belongs to a stream, by what its name says."""

    stream: str
    number: int
    kind: Kind
    file: StoredFile
    sealed_bytes: int | None


def part_path(stream: str, number: int, kind: Kind, sealed_bytes: int | None = None) -> str:
    """Return the name of a stream's part."""
    size = "" if sealed_bytes is None else f".{sealed_bytes}"
    return f"{stream}/{number:0{NUMBER_DIGITS}d}{size}.{kind.value}"


def parse_part(file: StoredFile) -> Part | None:
    """Return what a name says; None if it is not the name of a stream's part."""
    match = _NAME.fullmatch(file.path)
    if match is None:
        return None
    return Part(
        stream=match["stream"],
        number=int(match["number"]),
        kind=Kind(match["kind"]),
        file=file,
        sealed_bytes=int(match["size"]) if match["size"] else None,
    )


def new_buffer_id() -> str:
    """Return an id that no other buffer has."""
    return secrets.token_hex(BUFFER_ID_BYTES)


def is_buffer_id(text: str) -> bool:
    """Tell whether a text has the form of a buffer's id."""
    return _BUFFER_ID.fullmatch(text) is not None


def new_stream(signal: str, buffer_id: str, purpose: str = "") -> str:
    """Return a new stream's name: its buffer's id, the time it starts at, and random digits.

    Args:
        purpose: put between the id and the time, such as `replay-`.
    """
    started = datetime.fromtimestamp(time.time(), tz=timezone.utc)
    return f"{signal}/{buffer_id}-{purpose}{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(6)}"


def buffer_id_of(stream: str) -> str | None:
    """Return the buffer id in a stream's name; None for a stream named before buffers had ids."""
    first, dash, _ = stream.partition("/")[2].partition("-")
    return first if dash and is_buffer_id(first) else None


def drop_note_path(stream: str) -> str:
    """Return where it is noted that a stream was dropped: beside the streams."""
    return f"{DROPPED}/{stream}"


def retained_path(path: str) -> str:
    """Return where a stream, or a segment of it, is kept after it was consumed."""
    return f"{RETAINED}/{path}"


def is_retained_path(path: str) -> bool:
    """Tell whether this is the path of a segment that is kept after it was consumed."""
    return path.startswith(f"{RETAINED}/")


def duplicates_path(stream: str, number: int) -> str:
    """Return where it is noted which requests of a retained segment were stored elsewhere."""
    return retained_path(f"{stream}/{number:0{NUMBER_DIGITS}d}{DUPLICATES_SUFFIX}")


def lease_path(name: str) -> str:
    """Return where a lease is kept: beside the streams."""
    return f"{LEASES}/{name}.lease"


def signal_lease_path(signal: str) -> str:
    """Return where the lease on a signal is kept: among its streams, none of which has a dot."""
    return f"{signal}/.lease"
