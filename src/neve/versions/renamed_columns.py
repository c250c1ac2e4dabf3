"""Which columns got another name between two schemas of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from neve.lake.metadata_json import field_names


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


def changed_inside(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> str | None:
    """Return a column inside of which a field was renamed or dropped; None: at most added ones.

    Rows that are in a copy have the old field, and no change of a row says that it went.
    """
    new = {field["id"]: _paths(field) for field in after}
    for field in before:
        inside = new.get(field["id"])
        if inside is not None and not _paths(field).items() <= inside.items():
            return str(field["name"])
    return None


def _paths(field: Mapping[str, Any]) -> dict[int, str]:
    """Return the paths of what is inside a field, by id; its own name does not matter."""
    return dict(field_names([{**field, "name": ""}]))
