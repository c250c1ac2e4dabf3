"""How a changelog's columns differ from its mirror's. Pure, and looked at before any write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from neve.lake.widening import widens

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from neve.merge.spec import MergeSpec

# In the mirror's properties: which column of it was made of which of the changelog, by field id.
COLUMNS = "neve.merge.columns"


class Fit(Enum):
    """How a type of the changelog goes into a column of the mirror."""

    FITS = "fits"
    WIDENS = "widens"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True)
class Unfit:
    """A column whose values cannot go into the mirror, and why."""

    column: str
    why: str
    remedy: str


@dataclass(frozen=True)
class Drift:
    """What has to happen to a mirror before the next batch, and what cannot."""

    # Columns of the changelog to be united with the mirror's: new ones and wider ones.
    united: tuple[NestedField, ...] = ()
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    # Columns of the mirror that the changelog lacks now; they stay, and new rows have NULL there.
    kept: tuple[str, ...] = ()
    unfit: tuple[Unfit, ...] = ()
    # Column of the changelog → column of the mirror.
    taken: tuple[str, ...] = ()

    @property
    def changes_mirror(self) -> bool:
        return bool(self.united)


def taken_fields(spec: MergeSpec, changelog: Schema) -> tuple[NestedField, ...]:
    """Return the changelog's columns that belong into the mirror, in their order."""
    return tuple(field for field in changelog.fields if spec.takes(field.name))


def find_drift(
    spec: MergeSpec, changelog: Schema, mirror: Schema, origins: Mapping[int, int]
) -> Drift:
    """Compare the two schemas.

    Args:
        origins: field id in the changelog → field id in the mirror, as `origin_ids` had them.
    """
    by_name = {field.name: field for field in mirror.fields}
    by_id = {field.field_id: field for field in mirror.fields}
    united: list[NestedField] = []
    unfit: list[Unfit] = []
    added: list[str] = []
    widened: list[str] = []
    taken: list[str] = []
    for field in taken_fields(spec, changelog):
        origin = by_id.get(origins.get(field.field_id, -1))
        if origin is not None and origin.name != field.name:
            unfit.append(_renamed(spec, field, origin))
            continue
        column = by_name.get(field.name)
        fit = Fit.WIDENS if column is None else fit_of(column.field_type, field.field_type)
        if fit is Fit.INCOMPATIBLE and column is not None:
            unfit.append(_incompatible(spec, field, column))
            continue
        taken.append(field.name)
        if fit is Fit.WIDENS:
            united.append(field)
            (added if column is None else widened).append(field.name)
    bad = {one.column for one in unfit}
    kept = [name for name in by_name if name not in taken and name not in bad]
    return Drift(
        tuple(united), tuple(added), tuple(widened), tuple(kept), tuple(unfit), tuple(taken)
    )


def origin_ids(
    drift: Drift, changelog: Schema, mirror: Schema, before: Mapping[int, int]
) -> dict[int, int]:
    """Return which column of the mirror each column of the changelog goes into, by field ids.

    What was known before stays known: a column that is renamed is set aside until the mirror's is
    renamed, too. A column that only has the name of one it does not fit into comes from nowhere.
    """
    by_name = {field.name: field.field_id for field in mirror.fields}
    taken = {
        field.field_id: by_name[field.name]
        for field in changelog.fields
        if field.name in drift.taken and field.name in by_name
    }
    return {**before, **taken}


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


def _renamed(spec: MergeSpec, field: NestedField, origin: NestedField) -> Unfit:
    return Unfit(
        field.name,
        f"column {origin.name} of {spec.changelog_name} was renamed to {field.name}",
        f"rename it in the mirror too: ALTER TABLE {spec.name} RENAME COLUMN {origin.name} TO "
        f"{field.name}",
    )


def _incompatible(spec: MergeSpec, field: NestedField, column: NestedField) -> Unfit:
    return Unfit(
        field.name,
        f"column {field.name} of {spec.changelog_name} is {field.field_type} now, and "
        f"{column.field_type} in the mirror",
        f"rename it in the mirror ({spec.name}), so that a new one is made, or leave it out with "
        "exclude_columns",
    )
