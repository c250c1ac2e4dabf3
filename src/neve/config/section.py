"""What every part of the settings tree is made of."""

from __future__ import annotations

import re
import typing
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kKMGT]i?B|B)?")
# Largest first, as `Bytes` prints them. As everywhere: MB is 1000 * 1000, MiB is 1024 * 1024.
_BYTES = {
    "TiB": 2**40,
    "TB": 10**12,
    "GiB": 2**30,
    "GB": 10**9,
    "MiB": 2**20,
    "MB": 10**6,
    "KiB": 2**10,
    "kB": 10**3,
    "B": 1,
}


class Section(BaseModel):
    """A frozen part of the tree that refuses keys it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True
    )


def plain_type(annotation: Any) -> Any:
    """Return a type without the validators that `Annotated` adds to it."""
    is_annotated = typing.get_origin(annotation) is Annotated
    return typing.get_args(annotation)[0] if is_annotated else annotation


def seconds(value: Any) -> Any:
    """Return a duration in seconds: 30d, 12h, 5m, 30s, 500ms, or a number. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        try:
            return float(value)  # environment variables are always text
        except ValueError:
            raise ValueError("write seconds, or a number with ms, s, m, h or d") from None
    return float(match["number"]) * _SECONDS[match["unit"]]


# Seconds; in the file also as 500ms, 30s, 5m, 12h or 7d.
Duration = Annotated[float, BeforeValidator(seconds)]


def byte_count(value: Any) -> Any:
    """Return a size in bytes: 64MiB, 64MB, 500kB, 100B, or a number. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("write bytes, or a number with B, kB, MB, GB, KiB, MiB or GiB")
    unit = match["unit"] or "B"
    factor = _BYTES[{"KB": "kB", "kiB": "KiB"}.get(unit, unit)]
    # Not a float: 0.1 GB is a whole number of bytes.
    size = Decimal(match["number"]) * factor
    if size % 1:
        raise ValueError("it is not a whole number of bytes")
    return int(size)


# Bytes; in the file also as 64MiB or 64MB.
ByteCount = Annotated[int, BeforeValidator(byte_count)]


class ShownBytes(int):
    """A size that is printed as it would be written in the file, and is a number in JSON."""

    def __str__(self) -> str:
        unit = next((unit for unit, factor in _BYTES.items() if self and self % factor == 0), "B")
        return f"{int(self) // _BYTES[unit]}{unit}"
