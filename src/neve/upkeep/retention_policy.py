"""How long versions, rows and orphans of a table stay: defaults by its kind, then policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.lake.identifier import name_of
from neve.upkeep.table_kind import TableKind, table_kind

if TYPE_CHECKING:
    from neve.config import Settings
    from neve.lake.identifier import Identifier
    from neve.lake.metadata_json import MetadataJson


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
    chosen = upkeep.policy_of(name_of(identifier))
    retain, retain_min = upkeep.retain, upkeep.retain_min
    if kind is TableKind.TELEMETRY:
        retain = settings.consolidate.retain_snapshots_seconds or retain
        retain_min = settings.consolidate.retain_snapshots_min or retain_min
    # Nobody asks for a former version of these: a mirror's versions keep those they belong to.
    has_versions = kind not in (TableKind.LEDGER, TableKind.SIDE)
    age = chosen.delete_rows_after

    def choose(key: str, default: Any) -> Any:
        value = getattr(chosen, key)
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
