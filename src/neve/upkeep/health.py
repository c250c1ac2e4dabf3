"""The health of tables: what makes them slow or large, what would help, and how much."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neve.errors import NeveError
from neve.lake.followers import follower_states
from neve.lake.identifier import name_of
from neve.lake.metadata_json import MetadataJson
from neve.observe.failures import failure_of
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX
from neve.sizes import size_text
from neve.upkeep.choose import choose_tables
from neve.upkeep.findings import Finding, allow, find, maintain
from neve.upkeep.mirror_facts import index_facts, lag_facts
from neve.upkeep.observed_table import ObservedTable, observe_table

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.lake.unconfirmed import ReadUnconfirmed
    from neve.upkeep.removals import PlannedOrphans

    ListOrphans = Callable[[ObservedTable], PlannedOrphans]

PART = "health"
# Metadata documents that are in memory together.
_TABLES_AT_ONCE = 20


@dataclass(frozen=True)
class TableHealth:
    """What is known of one table.

    Args:
        score: 100 is as good as it gets; 0 for a table that cannot be read.
        files_per_key: how many files hold a value of the leading sort column, in one hour or
            partition; None: the table has no sort order.
        writes_per_row: how often a row of a telemetry table was written so far, at most.
        skew: the largest partition against the mean.
        index: of a mirror: fresh, behind, missing, or none, since it is too small to need one.
        index_behind: commits that the index lacks; `index_behind_seconds`: the age of the oldest.
        lag_snapshots: of a mirror: commits of its changelog that are not merged yet.
        notes: what was not looked at, and why.
        error: why the table could not be read; nothing is done to it then.
    """

    table: str
    score: int
    kind: str | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    small_bytes: int = 0
    delete_files: int = 0
    deleted_rows: int = 0
    files_with_deletes: int = 0
    files_per_key: float | None = None
    partitions: int = 0
    skew: float = 1.0
    manifests: int = 0
    manifest_bytes: int = 0
    snapshots: int = 0
    metadata_bytes: int = 0
    staged: int = 0
    held: int = 0
    index: str | None = None
    index_behind: int | None = None
    index_behind_seconds: float | None = None
    lag_snapshots: int | None = None
    lag_rows: int | None = None
    lag_seconds: float | None = None
    followers: int = 0
    follower_lag_seconds: float | None = None
    unreferenced_files: int | None = None
    unreferenced_bytes: int | None = None
    writes_per_row: float | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None


def check_health(
    lake: Lake,
    patterns: Sequence[str] = (),
    now: float | None = None,
    listing: ReadUnconfirmed | None = None,
) -> list[TableHealth]:
    """Look at tables, or at all; one that cannot be read is in the list with its error.

    Args:
        listing: list the files of each table for those that no snapshot names. It returns the
            direct writes that are not confirmed.

    Raises:
        NotFoundError: a pattern fits no table.
    """
    lake.profile.require_catalog("the health of tables")
    for line in policies_without_table(lake):
        lake.progress(line)
    at = time.time() if now is None else now
    # Loads libraries that a look at metadata does not need.
    list_orphans = _orphan_listing(lake, listing, at) if listing is not None else None
    reports = []
    for observed in observe_tables(lake, patterns):
        try:
            report = assess(observed, at)
            if list_orphans is not None and isinstance(observed, ObservedTable):
                report = _with_orphans(report, observed, list_orphans)
        except Exception as error:  # noqa: BLE001 - a table that is odd costs no other its turn
            failure = failure_of(error, PART, observed.name)
            report = assess(UnreadableTable(observed.name, str(failure)), at)
        reports.append(report)
    return reports


def _orphan_listing(lake: Lake, unconfirmed: ReadUnconfirmed, now: float) -> ListOrphans:
    from neve.upkeep.orphans import OrphanSearch
    from neve.upkeep.removals import PlannedOrphans, plan_orphans, read_writes
    from neve.upkeep.table_places import TablePlaces

    places, recorded = TablePlaces(lake), read_writes(unconfirmed)

    def list_orphans(observed: ObservedTable) -> PlannedOrphans:
        if recorded.damage is not None:
            raise recorded.damage
        planned = plan_orphans(lake, observed, recorded.writes, now, places)
        if planned is not None:
            return planned
        # Nobody may remove them without a policy: here they are only counted.
        search = OrphanSearch(lake, observed.ref, recorded.writes, places)
        age_seconds = observed.retention.orphan_age_seconds
        return PlannedOrphans(search.plan(now - age_seconds), search, age_seconds)

    return list_orphans


def _with_orphans(
    report: TableHealth, observed: ObservedTable, list_orphans: ListOrphans
) -> TableHealth:
    try:
        orphans = list_orphans(observed)
        unknown = orphans.plan.skipped
    except NeveError as error:
        # All that is current was read.
        unknown = str(error)
    if unknown:
        note = f"its files were not listed: {unknown}"
        return replace(report, notes=(*report.notes, note))
    files, size = len(orphans.files), orphans.plan.bytes
    report = replace(report, unreferenced_files=files, unreferenced_bytes=size)
    if not files:
        return report
    more = "" if orphans.plan.is_complete else " or more"
    text = f"files that no snapshot names: {files:,}{more}, {size_text(size)}"
    is_allowed = observed.retention.remove_orphans
    action = maintain(observed) if is_allowed else allow(observed, "remove_orphans")
    finding = Finding("orphans", text, 5, action, f"{size_text(size)} fewer")
    return replace(report, score=max(1, report.score - 5), findings=(*report.findings, finding))


@dataclass(frozen=True)
class UnreadableTable:
    """A table that is left alone."""

    name: str
    error: str


def policies_without_table(lake: Lake) -> list[str]:
    """Return a line for each policy of the configuration that names no table."""
    upkeep = lake.settings.upkeep
    if not upkeep.tables:
        return []
    return upkeep.policies_without_table(map(name_of, lake.reader().list_tables()))


def observe_tables(
    lake: Lake, patterns: Sequence[str] = ()
) -> Iterator[ObservedTable | UnreadableTable]:
    """Read tables one after the other; what one holds in memory is freed before the next."""
    reader = lake.reader()
    names = choose_tables(lake, patterns)
    for start in range(0, len(names), _TABLES_AT_ONCE):
        for name, metadata in reader.read_all(names[start : start + _TABLES_AT_ONCE]).items():
            yield _observe(lake, name, metadata)


def _observe(
    lake: Lake, name: Identifier, metadata: MetadataJson | NeveError | None
) -> ObservedTable | UnreadableTable:
    ref = lake.ref(name)
    if not isinstance(metadata, MetadataJson):
        return UnreadableTable(ref.name, str(metadata or "it was dropped meanwhile"))
    try:
        return observe_table(lake, ref, metadata)
    except Exception as error:  # noqa: BLE001 - a table that is odd costs no other its turn
        return UnreadableTable(ref.name, str(failure_of(error, PART, ref.name)))


def assess(observed: ObservedTable | UnreadableTable, now: float) -> TableHealth:
    """Score a table. Pure."""
    if isinstance(observed, UnreadableTable):
        return TableHealth(observed.name, 0, error=observed.error)
    metadata, layout = observed.metadata, observed.layout
    followers = follower_states(observed.name, metadata, now)
    facts: dict[str, Any] = {
        "kind": observed.kind.value,
        "rows": layout.records - layout.deleted_rows,
        "files": layout.files,
        "bytes": layout.bytes,
        "small_files": layout.small_files,
        "small_bytes": layout.small_bytes,
        "delete_files": layout.delete_files,
        "deleted_rows": layout.deleted_rows,
        "files_with_deletes": layout.files_with_deletes,
        "files_per_key": None if layout.files_per_key is None else round(layout.files_per_key, 1),
        "writes_per_row": observed.writes_per_row,
        "partitions": len(layout.bytes_by_partition),
        "skew": round(layout.skew, 1),
        "manifests": len(observed.manifests),
        "manifest_bytes": observed.manifest_bytes,
        "snapshots": len(metadata.snapshots),
        "metadata_bytes": observed.metadata_bytes,
        "staged": sum(ref.startswith(STAGED_PREFIX) for ref in metadata.refs),
        "held": sum(ref.startswith(HELD_PREFIX) for ref in metadata.refs),
        **index_facts(observed, now),
        **lag_facts(observed, now),
        "followers": len(followers),
        "follower_lag_seconds": max((each.lag_seconds or 0.0 for each in followers), default=None),
    }
    findings = tuple(find(observed, facts, now))
    score = max(1, 100 - sum(finding.penalty for finding in findings))
    return TableHealth(observed.name, score, findings=findings, **facts)
