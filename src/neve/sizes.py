"""Sizes for people."""

from __future__ import annotations


def size_text(size: float) -> str:
    """Write a number of bytes with two or three digits: 999 B, 13.9 kB, 114 kB, 1.2 GB."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 99.95:
            return f"{size:.1f} {unit}"
        if size < 999.5:
            return f"{size:.0f} {unit}"
    return f"{size / 1000:.1f} TB"
