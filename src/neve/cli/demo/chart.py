"""Bars in a terminal."""

from __future__ import annotations

from collections.abc import Mapping

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar_chart(values: Mapping[str, int], columns: int, encoding: str | None) -> str:
    """Draw a bar for each value, with its name before and its number after it.

    Args:
        columns: how long the longest bar is.
        encoding: of the terminal; one that has no blocks gets `#`.
    """
    has_blocks = _can_encode(_EIGHTHS, encoding)
    widest_name = max(map(len, values), default=0)
    most = max(values.values(), default=0) or 1
    lines = []
    for name, value in values.items():
        eighths = round(value / most * columns * 8)
        bar = _blocks(eighths) if has_blocks else "#" * round(eighths / 8)
        lines.append(f"   {name:>{widest_name}}  {bar} {value:,}")
    return "\n".join(lines)


def _blocks(eighths: int) -> str:
    whole, part = divmod(eighths, 8)
    return _EIGHTHS[8] * whole + (_EIGHTHS[part] if part else "")


def _can_encode(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
