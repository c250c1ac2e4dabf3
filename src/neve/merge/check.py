"""Is what a configuration says of mirrors possible? Asks the catalog; needs no Spark."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
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


def check_columns(spec: MergeSpec, changelog: Schema) -> None:
    """Refuse columns that do not exist, and types that cannot be keys or sequences.

    Raises:
        ConfigError: it names the setting, the column and what is there.
    """
    present = {field.name: field.field_type for field in changelog.fields}
    for setting, columns in (
        ("primary_keys", spec.keys),
        ("sequence_column", spec.sequence),
        ("operation_column", (spec.operation_column,)),
        ("include_columns", sorted(spec.include)),
        ("exclude_columns", sorted(spec.exclude)),
    ):
        for column in columns:
            if column not in present:
                near = difflib.get_close_matches(column, present, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(present)}"
                raise ConfigError(
                    f"merge.tables: {spec.name}: {setting} names {column}, which "
                    f"{spec.changelog_name} does not have",
                    hint=hint,
                )
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
            found = look(lake, spec)
            require_side_tables(lake, spec)
            partition_spec(spec, found.schema)
        if found.mirror is None:
            return f"of {spec.changelog_name}, to be made"
        waiting = found.pending.lag_snapshots
        return f"of {spec.changelog_name}, {waiting} snapshots behind" if waiting else "up to date"

    return probe
