"""Make tables on demand, and let live ones grow; never touch what is not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServerError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from sqlalchemy.exc import IntegrityError

from neve.errors import CatalogError, NeveError
from neve.lake.catalog import load_table, read_table
from neve.lake.commit_errors import committing
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.faults import explained
from neve.lake.identifier import Identifier
from neve.lake.paths import require_usable_places
from neve.lake.profile import CatalogProfile
from neve.lake.pyiceberg_private import schema_without_ids
from neve.lake.widening import widens

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_FIRST_PARTITION_ID = 1000
# What the Iceberg specification lets a column become, beside a decimal of more digits.

# For a table that is committed to every few seconds: otherwise each commit leaves a file behind.
FEW_METADATA_FILES: Mapping[str, str] = MappingProxyType(
    {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
    }
)


@dataclass(frozen=True)
class TableSpec:
    """A table as it should be."""

    identifier: Identifier
    schema: pa.Schema
    partition_by_day: str | None = None
    sort_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def load_if_exists(
    profile: CatalogProfile, catalog: Catalog, identifier: Identifier
) -> Table | None:
    with explained(profile):
        try:
            return read_table(catalog, identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def ensure_table(
    profile: CatalogProfile,
    catalog: Catalog,
    spec: TableSpec,
    retry: RetryPolicy | None = None,
    *,
    present: Table | None = None,
) -> Table:
    """Return the table, made or given the columns it lacks.

    Idempotent. Several callers may do it at once, in one process or in many: all get the same
    table, and each missing column is added once.

    Args:
        present: the table as the caller has just loaded it.

    Raises:
        CatalogError: a table with other columns is in the way; nothing is changed then.
    """
    table = present or load_if_exists(profile, catalog, spec.identifier)
    if table is None:
        table = _create(profile, catalog, spec)
    if not lacks_columns(table.schema(), spec):
        return table
    return _add_missing_columns(profile, catalog, spec, retry or RetryPolicy())


def unregistered_metadata(spec: TableSpec) -> TableMetadata:
    """Return a table's metadata without a table, for those who only write its files."""
    schema = _iceberg_schema(spec.schema)
    return new_table_metadata(
        schema,
        _partition_spec(schema, spec.partition_by_day),
        _sort_order(schema, spec.sort_by),
        location="",
        properties=dict(spec.properties),
    )


def _create(profile: CatalogProfile, catalog: Catalog, spec: TableSpec) -> Table:
    require_usable_places(*spec.identifier)
    schema = _iceberg_schema(spec.schema)
    try:
        with explained(profile):
            create_namespace(catalog, spec.identifier[:-1])
            return catalog.create_table(
                spec.identifier,
                schema,
                partition_spec=_partition_spec(schema, spec.partition_by_day),
                sort_order=_sort_order(schema, spec.sort_by),
                properties={"format-version": "2", **spec.properties},
            )
    except TableAlreadyExistsError:
        return load_table(profile, catalog, spec.identifier)
    except NoSuchNamespaceError as error:
        raise CatalogError(
            f"table {'.'.join(spec.identifier)} cannot be made: its namespace was dropped",
            hint="try again",
            retryable=True,
        ) from error
    except NeveError:
        # The answer may have been lost after the table was made, by this call or by another.
        table = load_if_exists(profile, catalog, spec.identifier)
        if table is None:
            raise
        return table


def create_namespace(catalog: Catalog, namespace: Identifier) -> None:
    """Make a namespace if there is none; errors are the catalog's."""
    try:
        catalog.create_namespace(namespace)
    except NamespaceAlreadyExistsError:
        return
    except (IntegrityError, ServerError):
        # Of two that create it at once, databases refuse the second by their primary key, and
        # some REST servers answer it with a 500.
        if not catalog.namespace_exists(namespace):
            raise


def _add_missing_columns(
    profile: CatalogProfile, catalog: Catalog, spec: TableSpec, retry: RetryPolicy
) -> Table:
    """Add the columns that the table lacks at the moment of the commit."""
    name = ".".join(spec.identifier)
    table = load_table(profile, catalog, spec.identifier)

    def refresh() -> None:
        nonlocal table
        table = load_table(profile, catalog, spec.identifier)

    def attempt() -> Table:
        missing = _missing_columns(table.schema(), spec)
        if missing:
            with (
                committing(profile, name, f"adding {', '.join(missing)}"),
                table.update_schema() as update,
            ):
                for column, kind in missing.items():
                    update.add_column(column, kind)
            refresh()
        return table

    def find_applied() -> Table | None:
        return None if lacks_columns(table.schema(), spec) else table

    return commit_until_known(
        refresh, attempt, find_applied, policy=retry, counters=CommitCounters()
    )


def lacks_columns(schema: Schema, spec: TableSpec) -> bool:
    """Tell whether a table has to be given columns. Raises CatalogError: it has other ones."""
    return bool(_missing_columns(schema, spec))


def _missing_columns(schema: Schema, spec: TableSpec) -> dict[str, IcebergType]:
    wanted = {column.name: column for column in _iceberg_schema(spec.schema).fields}
    present = {column.name: column for column in schema.fields}
    foreign = [
        f"{name} is {present[name].field_type}"
        for name, column in wanted.items()
        if name in present and not _can_hold(present[name].field_type, column.field_type)
    ]
    lacking = [name for name, column in wanted.items() if column.required and name not in present]
    if foreign or lacking:
        raise CatalogError(
            f"table {'.'.join(spec.identifier)} is in the way, with other columns: "
            f"{'; '.join([*foreign, *(f'{name} is missing' for name in lacking)])}",
            hint="rename or drop that table, choose another telemetry.namespace, or for a promoted "
            "attribute another column",
        )
    return {name: column.field_type for name, column in wanted.items() if name not in present}


def widen_columns(profile: CatalogProfile, catalog: Catalog, spec: TableSpec) -> None:
    """Widen the columns of a table of ours that are narrower than wanted. Idempotent.

    Not those inside of structs, lists and maps.
    """
    table = load_if_exists(profile, catalog, spec.identifier)
    if table is None:
        return
    wanted = {column.name: column.field_type for column in _iceberg_schema(spec.schema).fields}
    wider = {
        column.name: kind
        for column in table.schema().fields
        if isinstance(kind := wanted.get(column.name), PrimitiveType)
        and kind != column.field_type
        and _can_hold(kind, column.field_type)
    }
    if wider:
        with explained(profile), table.update_schema() as update:
            for name, kind in wider.items():
                update.update_column(name, kind)


def _can_hold(present: IcebergType, wanted: IcebergType) -> bool:
    """Tell whether a column takes our values: it has our type, or somebody has widened it.

    Compares no field ids, which differ from table to table.
    """
    if isinstance(present, StructType) and isinstance(wanted, StructType):
        return [field.name for field in present.fields] == [
            field.name for field in wanted.fields
        ] and all(
            _can_hold(mine.field_type, ours.field_type) and (ours.required or not mine.required)
            for mine, ours in zip(present.fields, wanted.fields, strict=True)
        )
    if isinstance(present, ListType) and isinstance(wanted, ListType):
        return _can_hold(present.element_type, wanted.element_type)
    if isinstance(present, MapType) and isinstance(wanted, MapType):
        return _can_hold(present.key_type, wanted.key_type) and _can_hold(
            present.value_type, wanted.value_type
        )
    return present == wanted or widens(wanted, present)


def _iceberg_schema(schema: pa.Schema) -> Schema:
    return assign_fresh_schema_ids(schema_without_ids(schema))


def _partition_spec(schema: Schema, column: str | None) -> PartitionSpec:
    if column is None:
        return UNPARTITIONED_PARTITION_SPEC
    source = schema.find_field(column).field_id
    return PartitionSpec(
        PartitionField(
            source_id=source,
            field_id=_FIRST_PARTITION_ID,
            transform=DayTransform(),
            name=f"{column}_day",
        )
    )


def _sort_order(schema: Schema, columns: Sequence[str]) -> SortOrder:
    if not columns:
        return UNSORTED_SORT_ORDER
    return SortOrder(
        *(
            SortField(source_id=schema.find_field(name).field_id, transform=IdentityTransform())
            for name in columns
        )
    )
