"""Is what a configuration says of mirrors possible? Asks the catalog; needs no Spark."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
)

from neve.errors import ConfigError
from neve.merge.columns import FILE, OWN_PREFIX, POSITION
from neve.merge.spec import MergeSpec, merge_specs

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from neve.config import Settings
    from neve.lake import Lake
    from neve.merge.drift import Drift

_SEQUENCES: tuple[type[IcebergType], ...] = (
    IntegerType,
    LongType,
    DecimalType,
    GeographyType,
    GeometryType,
    DateType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
    StringType,
    BinaryType,
)
_NOT_KEYS: tuple[type[IcebergType], ...] = (StructType, ListType, MapType, UnknownType)
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


def check_columns(spec: MergeSpec, changelog: Schema, older: Sequence[Schema] = ()) -> None:
    """Refuse columns that do not exist, and types that cannot be keys or sequences.

    Args:
        older: the changelog's schemas from before; columns that it has dropped may be left out, or
            have been renamed.

    Raises:
        ConfigError: it names the setting, the column and what is there.
    """
    present = {field.name: field.field_type for field in changelog.fields}
    before = {field.name for schema in older for field in schema.fields}
    _check_names(spec, present, before)
    _check_renames(spec, present, before)
    check_readable(spec, changelog)
    for column in spec.sequence:
        if not isinstance(present[column], _SEQUENCES):
            raise ConfigError(
                f"merge.tables: {spec.name}: sequence_column {column} is {present[column]}, which "
                "has no order to rely on",
                hint="use integers, decimals, dates, timestamps, strings or binary",
            )
    for column in spec.keys:
        if isinstance(present[column], _NOT_KEYS):
            raise ConfigError(
                f"merge.tables: {spec.name}: the key column {column} is {present[column]}",
                hint="keys are plain values",
            )


def _check_names(spec: MergeSpec, present: Collection[str], before: Collection[str]) -> None:
    for setting, columns, known in (
        ("primary_keys", spec.keys, present),
        ("sequence_column", spec.sequence, present),
        ("operation_column", (spec.operation_column,), present),
        ("include_columns", sorted(spec.include), {*present, *before}),
        ("exclude_columns", sorted(spec.exclude), {*present, *before}),
    ):
        for column in columns:
            if column not in known:
                near = difflib.get_close_matches(column, present, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(present)}"
                raise ConfigError(
                    f"merge.tables: {spec.name}: {setting} names {column}, which "
                    f"{spec.changelog_name} does not have",
                    hint=hint,
                )


def _check_renames(spec: MergeSpec, present: Collection[str], before: Collection[str]) -> None:
    for old, new in spec.rename.items():
        if old in present:
            raise ConfigError(
                f"merge.tables: {spec.name}: rename names {old}, which {spec.changelog_name} "
                "still has",
                hint="rename is for columns that have another name in the changelog now",
            )
        # A rename may stay, also when the column is dropped later.
        if spec.renamed(new) not in {*present, *before}:
            raise ConfigError(
                f"merge.tables: {spec.name}: rename gives {old} the name {new}, which "
                f"{spec.changelog_name} does not have",
                hint=f"it has {', '.join(present)}",
            )


# Columns that Spark, or Neve itself, cannot read. They can be left out with `exclude_columns`.


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


def checks(
    settings: Settings, opened: Callable[[], Lake]
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Return a name and a probe for each configured mirror."""
    for spec in merge_specs(settings):
        yield f"mirror {spec.name}", _probe(spec, opened)


def _probe(spec: MergeSpec, opened: Callable[[], Lake]) -> Callable[[], str]:
    def probe() -> str:
        from neve.merge.mirror import partition_spec
        from neve.merge.plan import look, require_side_tables

        with opened() as lake:
            tables = look(lake, spec)
            require_side_tables(lake, spec)
            partition_spec(spec, tables.schema)
        if tables.mirror is None:
            return f"of {spec.changelog_name}, to be made"
        waiting = tables.pending.lag_snapshots
        return f"of {spec.changelog_name}, {waiting} snapshots behind" if waiting else "up to date"

    return probe
