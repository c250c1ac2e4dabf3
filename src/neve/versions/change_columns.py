"""The columns that changes have besides the table's own, and those that identify a row. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from neve.errors import UnsupportedError, UsageError
from neve.index.indexed_table import KEYS
from neve.lake.metadata_json import MetadataJson, field_names

CHANGE_TYPE, SNAPSHOT_ID, TIMESTAMP = "_change_type", "_commit_snapshot_id", "_commit_timestamp"


@dataclass(frozen=True)
class Key:
    """A column that identifies a row, by its place; inside a struct by the path to it."""

    place: int
    inner: tuple[str, ...] = ()


def require_free_names(name: str, metadata: MetadataJson, schema_id: int) -> None:
    """Raise UnsupportedError where the table has a column that is called as one of ours."""
    ours = {CHANGE_TYPE, SNAPSHOT_ID, TIMESTAMP}
    for field in metadata.schema(schema_id)["fields"]:
        if field["name"].lower() in ours:
            raise UnsupportedError(
                f"{name} has a column {field['name']}, and changes have one of that name, too",
                hint="rename the column of the table",
            )


def find_keys(
    name: str, metadata: MetadataJson, schema_id: int, keys: Sequence[str] | None
) -> list[Key]:
    """Return the columns that identify a row: the given ones, else those the table itself names.

    Raises:
        UsageError: the table has no such column.
    """
    names = [str(field["name"]) for field in metadata.schema(schema_id)["fields"]]
    exact = {each: place for place, each in enumerate(names)}
    # Other letters will do, as in Spark; the same letters come first.
    any_case = {each.casefold(): place for each, place in exact.items()} | exact
    found = []
    for path in keys_of(metadata, schema_id) if keys is None else keys:
        column, *inner = [path] if path in exact else path.split(".")
        place = any_case.get(column, any_case.get(column.casefold()))
        if place is None:
            raise UsageError(
                f"{name} has no column {path} to be a key",
                hint=f"columns are: {', '.join(exact)}",
            )
        found.append(Key(place, tuple(inner)))
    return found


def keys_of(metadata: MetadataJson, schema_id: int) -> list[str]:
    """Return the columns that a table itself says identify a row."""
    if KEYS in metadata.properties:
        keys: list[str] = json.loads(metadata.properties[KEYS])
        return keys
    schema = metadata.schema(schema_id)
    names = dict(field_names(schema["fields"]))
    return [names[number] for number in schema.get("identifier-field-ids") or ()]
