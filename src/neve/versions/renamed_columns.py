"""Which columns got another name between two schemas of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class NameReusedError(Exception):
    """A name means another column than before, so that renaming does not bring a copy there."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def renamed_columns(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return new names by old ones, in an order in which no new name is taken; ids stay the same.

    Args:
        before, after: the fields of the two schemas. Columns that were dropped keep their names.

    Raises:
        NameReusedError: names were exchanged, or one of a dropped column was given again.
    """
    old = {field["id"]: field["name"] for field in before}
    new = {field["id"]: field["name"] for field in after}
    taken = {name.lower() for name in old.values()}
    pending = {name: new[number] for number, name in old.items() if new.get(number, name) != name}
    renamed: dict[str, str] = {}
    while pending:
        free = (name for name in pending if pending[name].lower() not in taken - {name.lower()})
        name = next(free, None)
        if name is None:
            raise NameReusedError(next(iter(pending.values())))
        renamed[name] = pending.pop(name)
        taken = (taken - {name.lower()}) | {renamed[name].lower()}
    for number, name in new.items():
        if number not in old and name.lower() in taken:
            raise NameReusedError(name)
    return renamed
