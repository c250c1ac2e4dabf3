"""How a changelog's columns differ from its mirror's. Pure, and looked at before any write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from neve.lake.widening import widens
from neve.merge.check import fields_to_read
from neve.merge.dropped import DroppedColumn, dropped_columns, schema_to_read

if TYPE_CHECKING:
    from neve.merge.spec import MergeSpec

# In the mirror's properties: which column of it was made of which of the changelog, by field id.
COLUMNS = "neve.merge.columns"


class Fit(Enum):
    """How a type of the changelog goes into a column of the mirror."""

    FITS = "fits"
    WIDENS = "widens"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True)
class IncompatibleColumn:
    """A column whose values cannot go into the mirror, and why."""

    name: str
    reason: str
    remedy: str
    # The mirror's column, if the changelog's has got another name since.
    renamed_from: str | None = None


@dataclass(frozen=True)
class Drift:
    """What has to happen to a mirror before the next batch, and what cannot."""

    # Columns of the changelog that the mirror lacks, or that are wider than the mirror's.
    changed_fields: tuple[NestedField, ...]
    added: tuple[str, ...]
    widened: tuple[str, ...]
    # Old and new name of columns of the mirror that are renamed, as the configuration says.
    renamed: tuple[tuple[str, str], ...]
    incompatible: tuple[IncompatibleColumn, ...]
    # Columns of the changelog whose values go into the mirror.
    mirrored: tuple[str, ...]
    # Columns of the mirror that the changelog has dropped, and files from before still have.
    dropped: tuple[DroppedColumn, ...]
    # What the changelog is read with, so that it has them; None: its own schema.
    read_schema: Schema | None

    @property
    def changes_mirror(self) -> bool:
        return bool(self.changed_fields or self.renamed)


def mirrored_fields(spec: MergeSpec, changelog: Schema) -> tuple[NestedField, ...]:
    """Return the changelog's columns that belong into the mirror, in their order."""
    return tuple(field for field in changelog.fields if spec.takes(field.name))


def renamed_columns(spec: MergeSpec, changelog: Schema, mirror: Schema) -> dict[str, str]:
    """Return old and new name of the mirror's columns that are still to be renamed."""
    theirs = {field.name for field in changelog.fields}
    ours = {field.name for field in mirror.fields}
    by_new_name = {
        new: old
        for old in ours - theirs
        if (new := spec.renamed(old)) in theirs and new not in ours
    }
    return {old: new for new, old in by_new_name.items()}


def find_drift(
    spec: MergeSpec,
    changelog: Schema,
    mirror: Schema,
    origins: Mapping[int, int],
    older: Sequence[Schema] = (),
) -> Drift:
    """Compare the two schemas.

    Args:
        origins: field id in the changelog → field id in the mirror, as `origin_ids` had them.
        older: the changelog's schemas from before, the newest first.
    """
    renamed = renamed_columns(spec, changelog, mirror)
    mirror = _with_names(mirror, renamed)
    columns = {field.name: field.field_type for field in mirror.fields}
    incompatible = _incompatible_columns(spec, changelog, mirror, origins)
    names = {column.name for column in incompatible}
    mirrored = [field for field in mirrored_fields(spec, changelog) if field.name not in names]
    dropped = tuple(
        each
        for each in dropped_columns(changelog, older, mirror, origins)
        if spec.takes(each.column.name)
        and fit_of(each.column.field_type, each.field.field_type) is not Fit.INCOMPATIBLE
    )
    before = [each.field.model_copy(update={"name": each.column.name}) for each in dropped]
    changed = {
        field.name: field
        for field in (*before, *mirrored)
        if field.name not in columns or fit_of(columns[field.name], field.field_type) is Fit.WIDENS
    }
    return Drift(
        changed_fields=tuple(changed.values()),
        added=tuple(name for name in changed if name not in columns),
        widened=tuple(name for name in changed if name in columns),
        renamed=tuple(renamed.items()),
        incompatible=incompatible,
        mirrored=tuple(field.name for field in mirrored),
        dropped=dropped,
        read_schema=schema_to_read(
            changelog, fields_to_read(spec, changelog), older, mirror, dropped
        ),
    )


def _incompatible_columns(
    spec: MergeSpec, changelog: Schema, mirror: Schema, origins: Mapping[int, int]
) -> tuple[IncompatibleColumn, ...]:
    by_name = {field.name: field for field in mirror.fields}
    by_id = {field.field_id: field for field in mirror.fields}
    incompatible = []
    for field in mirrored_fields(spec, changelog):
        origin = by_id.get(origins.get(field.field_id, -1))
        column = by_name.get(field.name)
        if origin is not None and origin.name != field.name:
            incompatible.append(_renamed(spec, field, origin))
        elif column and fit_of(column.field_type, field.field_type) is Fit.INCOMPATIBLE:
            incompatible.append(_of_another_type(spec, field, column))
    return tuple(incompatible)


def _with_names(schema: Schema, names: Mapping[str, str]) -> Schema:
    return Schema(
        *(
            field.model_copy(update={"name": names[field.name]}) if field.name in names else field
            for field in schema.fields
        )
    )


def origin_ids(
    drift: Drift, changelog: Schema, mirror: Schema, before: Mapping[int, int]
) -> dict[int, int]:
    """Return which column of the mirror each column of the changelog goes into, by field ids.

    What was known before stays known: a column that is renamed is set aside until the mirror's is
    renamed, too. A column that only has the name of one it does not fit into comes from nowhere.
    """
    by_name = {field.name: field.field_id for field in mirror.fields}
    mirrored = {
        field.field_id: by_name[field.name]
        for field in changelog.fields
        if field.name in drift.mirrored and field.name in by_name
    }
    return {**before, **mirrored}


def fit_of(column: IcebergType, value: IcebergType) -> Fit:
    """Tell how values of one type go into a column of another."""
    if column == value:
        return Fit.FITS
    if isinstance(column, StructType) and isinstance(value, StructType):
        return _fit_of_fields(column, value)
    if isinstance(column, ListType) and isinstance(value, ListType):
        return fit_of(column.element_type, value.element_type)
    if isinstance(column, MapType) and isinstance(value, MapType):
        if fit_of(column.key_type, value.key_type) is not Fit.FITS:
            return Fit.INCOMPATIBLE
        return fit_of(column.value_type, value.value_type)
    if widens(column, value):
        return Fit.WIDENS
    return Fit.FITS if widens(value, column) else Fit.INCOMPATIBLE


def _fit_of_fields(column: StructType, value: StructType) -> Fit:
    present = {field.name: field.field_type for field in column.fields}
    fits = [
        fit_of(present[field.name], field.field_type) if field.name in present else Fit.WIDENS
        for field in value.fields
    ]
    for worst in (Fit.INCOMPATIBLE, Fit.WIDENS):
        if worst in fits:
            return worst
    return Fit.FITS


def _renamed(spec: MergeSpec, field: NestedField, origin: NestedField) -> IncompatibleColumn:
    return IncompatibleColumn(
        field.name,
        f"column {origin.name} of {spec.changelog_name} was renamed to {field.name}",
        f"rename it in the mirror too, with rename: {{{origin.name}: {field.name}}} in "
        f"merge.tables or ALTER TABLE {spec.name} RENAME COLUMN {origin.name} TO {field.name}",
        origin.name,
    )


def _of_another_type(
    spec: MergeSpec, field: NestedField, column: NestedField
) -> IncompatibleColumn:
    return IncompatibleColumn(
        field.name,
        f"column {field.name} of {spec.changelog_name} is {field.field_type} now, and "
        f"{column.field_type} in the mirror",
        f"rename it in the mirror ({spec.name}), so that a new one is made, or leave it out with "
        "exclude_columns",
    )
