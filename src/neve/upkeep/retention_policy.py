"""How long versions, rows and orphans of a table stay: defaults by its kind, then policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from neve.upkeep.table_kind import TableKind, table_kind

if TYPE_CHECKING:
    from neve.config import Settings
    from neve.lake.identifier import Identifier
    from neve.lake.metadata_json import MetadataJson

_PATTERN_LETTERS = frozenset("*?[")


@dataclass(frozen=True)
class RowAge:
    """Rows whose time in a column is longer ago are deleted; None: the partition's column."""

    after_seconds: float
    column: str | None


@dataclass(frozen=True)
class RetentionPolicy:
    """What upkeep may remove of one table, and after which time."""

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
    delete_rows_after: RowAge | None = None


def retention_policy(
    settings: Settings, identifier: Identifier, metadata: MetadataJson
) -> RetentionPolicy:
    """Return what the configuration asks for a table."""
    upkeep, kind = settings.upkeep, table_kind(settings, identifier, metadata)
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

    return RetentionPolicy(
        kind,
        expire=choose("expire", kind.is_own),
        retain_seconds=choose("retain", retain),
        retain_min=retain_min,
        keep_hourly_seconds=choose("keep_hourly", upkeep.keep_hourly if has_versions else 0.0),
        keep_daily_seconds=choose("keep_daily", upkeep.keep_daily if has_versions else 0.0),
        reader_grace_seconds=upkeep.reader_grace,
        follow_horizon_seconds=upkeep.follow_horizon_seconds,
        remove_orphans=choose("remove_orphans", kind.is_own),
        orphan_age_seconds=upkeep.orphan_age,
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


def has_policy(settings: Settings, identifier: Identifier) -> bool:
    """Tell whether a policy of the configuration names a table."""
    return any(_fits(pattern, ".".join(identifier)) for pattern in settings.upkeep.tables)


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
