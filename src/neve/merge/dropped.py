"""Columns that a changelog has dropped and its mirror still has.

A dropped column stays in the data files that were written with it. Iceberg finds it there by its
field id, if the schema that is read with names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from neve.errors import CatalogError
from neve.lake.ancestry import ancestors, main_ancestors
from neve.merge.columns import DROPPED

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from neve.merge.drift import Drift
    from neve.merge.spec import MergeSpec


@dataclass(frozen=True)
class DroppedColumn:
    """A column as the changelog had it, and the mirror's column that it was merged into."""

    field: NestedField
    column: NestedField

    @property
    def read_as(self) -> str:
        """Its name while it is read: by now another column may have the old one."""
        return f"{DROPPED}{self.field.field_id}_{self.field.name}"


def older_schemas(changelog: TableMetadata) -> tuple[Schema, ...]:
    """Return the schemas that a table had, as far as its metadata keeps them, the newest first."""
    older = (each for each in changelog.schemas if each.schema_id != changelog.current_schema_id)
    return tuple(sorted(older, key=lambda schema: -schema.schema_id))


def dropped_columns(
    changelog: Schema, older: Sequence[Schema], mirror: Schema, origins: Mapping[int, int]
) -> tuple[DroppedColumn, ...]:
    """Return the dropped columns that the mirror still has and that an older schema describes."""
    present = {field.field_id for field in changelog.fields}
    columns = {field.field_id: field for field in mirror.fields}
    dropped = []
    for field_id, column_id in origins.items():
        versions = (field for schema in older for field in schema.fields)
        field = next((each for each in versions if each.field_id == field_id), None)
        if field_id not in present and field is not None and column_id in columns:
            dropped.append(DroppedColumn(field, columns[column_id]))
    return tuple(dropped)


def schema_to_read(
    changelog: Schema,
    fields_to_read: Sequence[NestedField],
    older: Sequence[Schema],
    mirror: Schema,
    dropped: Iterable[DroppedColumn],
) -> Schema | None:
    """Return the schema to read a changelog with; None if that is its own.

    It has what the changelog has dropped, and lacks what cannot be read.
    """
    columns = {field.name: field.field_type for field in mirror.fields}
    fields = [
        field
        if field.name not in columns
        else _with_type(field, _completed(field, older, columns[field.name]))
        for field in fields_to_read
    ]
    missing = [
        NestedField(each.field.field_id, each.read_as, each.field.field_type, required=False)
        for each in dropped
    ]
    if not missing and fields == list(changelog.fields):
        return None
    return Schema(*fields, *missing, schema_id=changelog.schema_id)


def _completed(field: NestedField, older: Sequence[Schema], column: IcebergType) -> IcebergType:
    """Return a field's type with the fields inside it that were dropped and the mirror has."""
    kind = field.field_type
    if isinstance(kind, StructType) and isinstance(column, StructType):
        inner = {each.name: each.field_type for each in column.fields}
        names = {each.name for each in kind.fields}
        ids = {each.field_id for each in kind.fields}
        fields = [
            _with_type(each, _completed(each, older, inner[each.name]))
            if each.name in inner
            else each
            for each in kind.fields
        ]
        for each in _fields_before(field.field_id, older):
            if each.name in inner and each.name not in names and each.field_id not in ids:
                names.add(each.name)
                fields.append(
                    NestedField(each.field_id, each.name, each.field_type, required=False)
                )
        return StructType(*fields)
    if isinstance(kind, ListType) and isinstance(column, ListType):
        element = _completed(kind.element_field, older, column.element_type)
        return kind.model_copy(update={"element_type": element})
    if isinstance(kind, MapType) and isinstance(column, MapType):
        value = _completed(kind.value_field, older, column.value_type)
        return kind.model_copy(update={"value_type": value})
    return kind


def _fields_before(field_id: int, older: Sequence[Schema]) -> Iterator[NestedField]:
    for schema in older:
        if field_id in schema.field_ids:
            kind = schema.find_type(field_id)
            if isinstance(kind, StructType):
                yield from kind.fields


def _with_type(field: NestedField, kind: IcebergType) -> NestedField:
    return field if kind == field.field_type else field.model_copy(update={"field_type": kind})


def needs_schema(
    changelog: TableMetadata, schema: Schema, after_id: int | None, until_id: int
) -> bool:
    """Tell whether snapshots of a range must be read with `schema_to_read`.

    So it is if columns must not be read, or if others were dropped after the snapshots.
    """
    present, wanted = set(changelog.schema().field_ids), set(schema.field_ids)
    if present - wanted:
        return True
    ids = {each.schema_id: set(each.field_ids) for each in changelog.schemas}
    for snapshot in ancestors(changelog, until_id):
        if snapshot.snapshot_id == after_id:
            return False
        if snapshot.schema_id is None or (wanted - present) & ids.get(snapshot.schema_id, wanted):
            return True
    return True


def require_no_loss(
    spec: MergeSpec, changelog: TableMetadata, mirror: Schema, drift: Drift
) -> None:
    """Refuse a rebuild after which a column of the mirror would have lost its values.

    Raises:
        CatalogError: it names the column, and says why.
    """
    for renamed in drift.incompatible:
        if renamed.renamed_from is not None:
            raise CatalogError(f"{spec.name}: {renamed.reason}", hint=renamed.remedy)
    names = {column.field_id: column.name for column in mirror.fields}
    for each in drift.dropped:
        if _was_compacted_without(changelog, each.field.field_id):
            why = "and files that had it were compacted since"
            raise _loss(spec, changelog, names[each.column.field_id], why)
    known = {field.name for field in changelog.schema().fields} | {old for old, _ in drift.renamed}
    known |= {names[each.column.field_id] for each in drift.dropped}
    for column in mirror.fields:
        if column.name not in known and spec.takes(column.name):
            why = "and no schema that it still knows says which one that was"
            raise _loss(spec, changelog, column.name, why)


def _loss(spec: MergeSpec, changelog: TableMetadata, column: str, why: str) -> CatalogError:
    is_there = column in changelog.schema().column_names
    what = f"another column {column} than before" if is_there else f"no column {column} any more"
    return CatalogError(
        f"{spec.changelog_name} has {what}, {why}: a rebuild of {spec.name} would lose its values",
        hint="go on without a rebuild, or give the values up: ALTER TABLE "
        f"{spec.name} DROP COLUMN {column}",
    )


def _was_compacted_without(changelog: TableMetadata, field_id: int) -> bool:
    """Tell whether files that may have a column were rewritten after it was dropped."""
    ids = {each.schema_id: set(each.field_ids) for each in changelog.schemas}
    had_it = False
    for snapshot in reversed(list(main_ancestors(changelog))):
        has_it = snapshot.schema_id is None or field_id in ids.get(snapshot.schema_id, {field_id})
        if had_it and not has_it and _rewrote_files(snapshot):
            return True
        had_it = had_it or has_it
    return False


def _rewrote_files(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    if summary is None or summary.operation is not Operation.REPLACE:
        return False
    # A rewrite of manifests alone deletes no data file.
    return summary["deleted-data-files"] not in (None, "0")
