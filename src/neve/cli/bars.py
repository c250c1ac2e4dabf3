"""Bars in a terminal, of blocks where its encoding has them."""

from __future__ import annotations

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, columns: int, encoding: str | None) -> str:
    """Draw a bar of a share from 0 to 1, padded to the whole width."""
    return growing_bar(share, columns, encoding).ljust(columns)


def growing_bar(share: float, columns: int, encoding: str | None) -> str:
    """Draw a bar that ends where its value does.

    Args:
        encoding: of the terminal; one that has no blocks gets `#`.
    """
    eighths = round(share * columns * 8)
    if not _can_encode(_EIGHTHS, encoding):
        return "#" * round(eighths / 8)
    whole, part = divmod(eighths, 8)
    return _EIGHTHS[8] * whole + (_EIGHTHS[part] if part else "")


def _can_encode(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
