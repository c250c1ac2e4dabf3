"""What the configuration asks for each table: defaults by its kind, then policies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from neve.config.merging import REJECTED_SUFFIX as MIRROR_REJECTED_SUFFIX
from neve.config.merging import TOMBSTONES_SUFFIX
from neve.lake.horizons import KEYS, SIDE_OF, SOURCE
from neve.publish import ledger
from neve.publish.rejected_rows import REJECTED_SUFFIX
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from neve.config import Settings
    from neve.lake.identifier import Identifier

_PATTERN_LETTERS = frozenset("*?[")


class TableKind(Enum):
    """Whose table it is, which decides what happens to it without a policy."""

    TELEMETRY = "telemetry table"
    MIRROR = "mirror"
    SIDE = "side table"
    LEDGER = "ledger"
    CHANGELOG = "changelog"
    OTHER = "other table"

    @property
    def is_ours(self) -> bool:
        """Whether Neve alone makes and writes it."""
        return self not in (TableKind.CHANGELOG, TableKind.OTHER)


@dataclass(frozen=True)
class RowAge:
    """Rows whose time in a column is longer ago are deleted; None: the partition's column."""

    after_seconds: float
    column: str | None


@dataclass(frozen=True)
class TablePolicy:
    """What upkeep may do to one table, and by which limits."""

    kind: TableKind
    expire: bool
    retain_seconds: float
    retain_min: int
    keep_hourly_seconds: float
    keep_daily_seconds: float
    reader_grace_seconds: float
    follow_horizon_seconds: float
    remove_orphans: bool
    orphan_age_seconds: float
    compact: bool
    target_file_bytes: int
    zorder: tuple[str, ...] = ()
    delete_rows_after: RowAge | None = None


def table_kind(
    settings: Settings, identifier: Identifier, properties: Mapping[str, str]
) -> TableKind:
    """Tell whose table it is, by the configuration and by what merges have noted in it."""
    namespace = tuple(settings.telemetry.namespace.split("."))
    if identifier == ledger.IDENTIFIER:
        return TableKind.LEDGER
    if identifier[:-1] == namespace:
        if identifier[-1] in SCHEMAS:
            return TableKind.TELEMETRY
        if identifier[-1].removesuffix(REJECTED_SUFFIX) in SCHEMAS:
            return TableKind.SIDE
    if SIDE_OF in properties:
        return TableKind.SIDE
    if KEYS in properties and SOURCE in properties:
        return TableKind.MIRROR
    return _kind_by_merges(settings, ".".join(identifier))


def _kind_by_merges(settings: Settings, name: str) -> TableKind:
    for table in settings.merge.tables:
        mirror = f"{table.namespace}.{table.mirror_table}"
        if name == mirror:
            return TableKind.MIRROR
        if name in (mirror + TOMBSTONES_SUFFIX, mirror + MIRROR_REJECTED_SUFFIX):
            return TableKind.SIDE
        if name == f"{table.namespace}.{table.changelog_table}":
            return TableKind.CHANGELOG
    return TableKind.OTHER


def table_policy(
    settings: Settings, identifier: Identifier, properties: Mapping[str, str]
) -> TablePolicy:
    """Return what the configuration asks for a table."""
    upkeep, kind = settings.upkeep, table_kind(settings, identifier, properties)
    chosen = _chosen(settings, ".".join(identifier))
    retain, retain_min = upkeep.retain, upkeep.retain_min
    if kind is TableKind.TELEMETRY:
        retain = settings.consolidate.retain_snapshots_seconds or retain
        retain_min = settings.consolidate.retain_snapshots_min or retain_min
    # Nobody asks for a former version of these: a mirror's versions keep those they belong to.
    has_versions = kind not in (TableKind.LEDGER, TableKind.SIDE)
    age = chosen.get("delete_rows_after")

    def choose(key: str, default: Any) -> Any:
        value = chosen.get(key)
        return default if value is None else value

    return TablePolicy(
        kind,
        expire=choose("expire", kind.is_ours),
        retain_seconds=choose("retain", retain),
        retain_min=retain_min,
        keep_hourly_seconds=choose("keep_hourly", upkeep.keep_hourly if has_versions else 0.0),
        keep_daily_seconds=choose("keep_daily", upkeep.keep_daily if has_versions else 0.0),
        reader_grace_seconds=upkeep.reader_grace,
        follow_horizon_seconds=upkeep.follow_horizon_seconds,
        remove_orphans=choose("remove_orphans", kind.is_ours),
        orphan_age_seconds=upkeep.orphan_age,
        compact=choose("compact", kind.is_ours),
        target_file_bytes=choose("target_file_bytes", upkeep.target_file_bytes),
        zorder=choose("zorder", ()),
        delete_rows_after=RowAge(age.after, age.column) if age else None,
    )


def _chosen(settings: Settings, name: str) -> dict[str, Any]:
    """Return each key of the policies of a table, from the longest pattern that sets it."""
    fitting = [each for each in settings.upkeep.tables if _fits(each, name)]
    chosen: dict[str, Any] = {}
    for pattern in sorted(fitting, key=lambda each: (each == name, len(each), each)):
        policy = settings.upkeep.tables[pattern]
        chosen |= {key: getattr(policy, key) for key in policy.model_fields_set}
    return chosen


def _fits(pattern: str, name: str) -> bool:
    return pattern == name or fnmatchcase(name, pattern)


def policies_without_table(settings: Settings, identifiers: Iterable[Identifier]) -> list[str]:
    """Return a line for each policy of the configuration that no table has."""
    names = [".".join(each) for each in identifiers]
    return [
        f"upkeep.tables: {pattern} fits no table"
        if _PATTERN_LETTERS & set(pattern)
        else f"upkeep.tables: there is no table {pattern}"
        for pattern in settings.upkeep.tables
        if not any(_fits(pattern, name) for name in names)
    ]
