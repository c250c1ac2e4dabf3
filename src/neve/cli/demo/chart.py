"""Bars in a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from neve.cli.bars import growing_bar


def bar_chart(values: Mapping[str, int], columns: int, encoding: str | None) -> str:
    """Draw a bar for each value, with its name before and its number after it.

    Args:
        columns: how long the longest bar is.
        encoding: of the terminal; one that has no blocks gets `#`.
    """
    widest_name = max(map(len, values), default=0)
    most = max(values.values(), default=0) or 1
    return "\n".join(
        f"   {name:>{widest_name}}  {growing_bar(value / most, columns, encoding)} {value:,}"
        for name, value in values.items()
    )
