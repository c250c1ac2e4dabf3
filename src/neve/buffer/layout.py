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
# A sealed file on disk carries its length in its name: sealing then needs no space, and a file cut
# short afterwards is noticed.
_NAME = re.compile(
    r"(?P<stream>[a-z]+/[^/.]+)/(?P<number>[0-9]{12})"
    r"(?:\.(?P<size>[0-9]+))?\.(?P<kind>open|segment|retired)"
)


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


def new_stream(signal: str) -> str:
    """Return a new stream's name: the time it starts at, and random digits that make it unique."""
    started = datetime.fromtimestamp(time.time(), tz=timezone.utc)
    return f"{signal}/{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(6)}"


def lease_path(name: str) -> str:
    """Return where a lease is kept: beside the streams."""
    return f"{LEASES}/{name}.lease"
