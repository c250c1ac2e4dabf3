"""Ages as people type them, such as `--older-than 7d`."""

from __future__ import annotations

import math

from neve.errors import UsageError


def parse_age(option: str, text: str) -> float:
    """Return an age in seconds from 7d, 12h, 30m, 45s, 500ms or a number. Raises UsageError."""
    from neve.config.section import seconds  # loads pydantic, which --help does without

    try:
        age = float(seconds(text))
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
    if not math.isfinite(age):
        raise UsageError(f"{option} {text}: write seconds, or a number with ms, s, m, h or d")
    if age < 0:
        raise UsageError(f"{option} {text} is in the future")
    return age
