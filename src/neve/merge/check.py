"""Is what a configuration says of mirrors possible? Asks the catalog; needs no Spark."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UnknownType,
)

from neve.errors import ConfigError
from neve.merge.spec import MergeSpec, merge_specs
from neve.merge.unreadable import check_readable

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from neve.config import Settings
    from neve.lake import Lake

_SEQUENCES: tuple[type[IcebergType], ...] = (
    IntegerType,
    LongType,
    DecimalType,
    DateType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
    StringType,
    BinaryType,
)
_NOT_KEYS: tuple[type[IcebergType], ...] = (StructType, ListType, MapType, UnknownType)


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
