"""Ages for people."""

from __future__ import annotations


def age_text(seconds: float) -> str:
    """Write an age with its two largest units, without zeros: 3d 4h, 5h, 7m 3s."""
    # Of another machine whose clock is ahead it may be negative.
    left = max(0, int(seconds))
    if not left:
        return "0s"
    counts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or counts:
            counts.append((count, unit))
    return " ".join(f"{count}{unit}" for count, unit in counts[:2] if count)
