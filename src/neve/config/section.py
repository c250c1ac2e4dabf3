"""What every part of the settings tree is made of."""

from __future__ import annotations

import re
import typing
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


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
