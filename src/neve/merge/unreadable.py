"""Columns that Spark, or Neve itself, cannot read. They can be left out with `exclude_columns`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyiceberg.types import (
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimeType,
)

from neve.errors import ConfigError
from neve.merge.columns import FILE, OWN_PREFIX, POSITION

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from neve.merge.drift import Drift
    from neve.merge.spec import MergeSpec

# Iceberg adds them to the columns of every table.
_METADATA_COLUMNS = frozenset(
    {
        *(FILE, POSITION, "_partition", "_spec_id", "_deleted"),
        *("_row_id", "_last_updated_sequence_number"),
    }
)
_UNREADABLE_TYPES: Mapping[type[IcebergType], str] = MappingProxyType(
    {
        TimeType: "which Spark cannot read",
        TimestampNanoType: "which Spark cannot read",
        TimestamptzNanoType: "which Spark cannot read",
        GeometryType: "which PyIceberg cannot write",
        GeographyType: "which PyIceberg cannot write",
    }
)


def fields_to_read(spec: MergeSpec, changelog: Schema) -> tuple[NestedField, ...]:
    """Return the changelog's columns; only those that merging needs, if others are unreadable."""
    if any(_problem(field, changelog.fields) for field in changelog.fields):
        return _needed(spec, changelog)
    return changelog.fields


def check_readable(spec: MergeSpec, changelog: Schema) -> None:
    """Refuse columns that merging needs and that cannot be read.

    Raises:
        ConfigError: it names the column and says what to do.
    """
    fields = _needed(spec, changelog)
    fixed = {*spec.keys, *spec.sequence, spec.operation_column}
    # Of two columns that are the same to Spark, the one is named that can be left out.
    for field in sorted(fields, key=lambda each: each.name in fixed):
        if problem := _problem(field, fields):
            raise ConfigError(
                f"merge.tables: {spec.name}: column {field.name} of {spec.changelog_name} "
                f"{problem}",
                hint="give it another name or type in the changelog"
                if field.name in fixed
                else f"leave it out: exclude_columns: [{field.name}]",
            )


def check_added(spec: MergeSpec, mirror: Schema, drift: Drift) -> None:
    """Refuse a new column that has the name of one of the mirror's in another case.

    Raises:
        ConfigError: it names both, and says what to do.
    """
    renamed = dict(drift.renamed)
    present = {name.lower(): name for name in (renamed.get(f.name, f.name) for f in mirror.fields)}
    for name in drift.added:
        if name.lower() in present:
            other = present[name.lower()]
            raise ConfigError(
                f"{spec.name} has a column {other}, and {spec.changelog_name} has {name}, which "
                "is the same to Spark",
                hint=f"set rename: {{{other}: {name}}}, so that the mirror's column is renamed, or "
                f"leave it out: exclude_columns: [{name}]",
            )


def _needed(spec: MergeSpec, changelog: Schema) -> tuple[NestedField, ...]:
    return tuple(
        field
        for field in changelog.fields
        if spec.takes(field.name) or field.name == spec.operation_column
    )


def _problem(field: NestedField, fields: Sequence[NestedField]) -> str | None:
    """Say why a column cannot be read among others; None if it can."""
    name = field.name.lower()
    alike = _alike(field, fields)
    if name in _METADATA_COLUMNS:
        return "has the name of a metadata column of Iceberg"
    if name.startswith(OWN_PREFIX):
        return f"has a name that begins with {OWN_PREFIX}, which Neve uses while it merges"
    if alike:
        return f"is the same as {alike[0]} to Spark, which ignores case"
    return next(_type_problems(field.field_type), None)


def _alike(field: NestedField, fields: Sequence[NestedField]) -> list[str]:
    name = field.name.lower()
    return [each.name for each in fields if each is not field and each.name.lower() == name]


def _type_problems(kind: IcebergType) -> Iterator[str]:
    if type(kind) in _UNREADABLE_TYPES:
        yield f"has the type {kind}, {_UNREADABLE_TYPES[type(kind)]}"
    elif isinstance(kind, StructType):
        for field in kind.fields:
            for other in _alike(field, kind.fields):
                yield f"has fields {field.name} and {other}, which are the same to Spark"
            yield from _type_problems(field.field_type)
    elif isinstance(kind, ListType):
        yield from _type_problems(kind.element_type)
    elif isinstance(kind, MapType):
        yield from _type_problems(kind.key_type)
        yield from _type_problems(kind.value_type)
