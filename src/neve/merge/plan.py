"""What a merge would do: the changelog, the mirror and the difference, looked at without writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema

from neve.errors import CatalogError, ConfigError
from neve.lake.catalog import load_table
from neve.lake.create import load_if_exists
from neve.lake.java_tables import JavaTable
from neve.merge.check import check_columns
from neve.merge.checkpoint import MirrorState, mirror_state
from neve.merge.drift import Drift, find_drift
from neve.merge.mirror import mirror_schema, origins_of, require_ours
from neve.merge.pending import Batch, Pending, file_slices, pending, whole_snapshots

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake import Lake
    from neve.merge.spec import MergeSpec


@dataclass(frozen=True)
class Look:
    """Changelog and mirror as the catalog has them at one moment."""

    changelog: TableMetadata
    # None: the mirror is still to be made.
    mirror: TableMetadata | None
    state: MirrorState | None
    pending: Pending
    drift: Drift
    # The mirror's columns, as they are or will be.
    schema: Schema

    @property
    def mirror_is_empty(self) -> bool:
        if self.mirror is None or self.state is None:
            return True
        main = self.mirror.snapshot_by_id(self.state.main_id)
        total = main.summary["total-records"] if main and main.summary else None
        return total == "0"


def look(lake: Lake, spec: MergeSpec) -> Look:
    """Read both tables' metadata and compare them.

    Raises:
        NotFoundError: there is no such changelog.
        ConfigError: columns are missing, or the mirror is not ours.
        CatalogError: the changelog cannot be followed, or its schema does not fit (strict).
    """
    catalog = lake.catalog()
    changelog = load_table(lake.profile, catalog, spec.changelog).metadata
    found = load_if_exists(lake.profile, catalog, spec.mirror)
    mirror = found.metadata if found else None
    check_columns(spec, changelog.schema())
    if mirror is None:
        schema = mirror_schema(spec, changelog.schema())
        drift = find_drift(spec, changelog.schema(), schema, {})
        waiting = pending(spec.changelog_name, spec.name, changelog, None)
        return Look(changelog, None, None, _first(waiting), drift, schema)
    require_ours(spec, mirror)
    state = mirror_state(mirror)
    waiting = pending(spec.changelog_name, spec.name, changelog, state.checkpoint)
    drift = find_drift(spec, changelog.schema(), mirror.schema(), origins_of(mirror))
    _refuse_unfit_keys(spec, drift)
    return Look(changelog, mirror, state, waiting, drift, mirror.schema())


def _first(waiting: Pending) -> Pending:
    return Pending(waiting.checkpoint, waiting.snapshots, waiting.whole)


def _refuse_unfit_keys(spec: MergeSpec, drift: Drift) -> None:
    needed = {*spec.keys, *spec.sequence}
    for one in drift.unfit:
        if spec.strict:
            raise CatalogError(f"{spec.name}: {one.why}", hint=one.remedy)
        if one.column in needed:
            raise ConfigError(f"{spec.name}: {one.why}, and merging needs it", hint=one.remedy)


def next_batch(found: Look, spec: MergeSpec, changelog: JavaTable) -> Batch:
    """Choose what the next commit takes in."""
    waiting = found.pending
    if waiting.whole is not None:
        snapshot = waiting.whole.snapshot_id
        tasks = changelog.plan_files(snapshot)
        return file_slices(waiting.checkpoint, snapshot, tasks, spec.batch_size, whole=True)
    batch = whole_snapshots(waiting, spec.batch_size)
    if batch is not None:
        return batch
    snapshot = waiting.snapshots[0].snapshot_id
    tasks = changelog.plan_files(snapshot, waiting.checkpoint.snapshot_id)
    return file_slices(waiting.checkpoint, snapshot, tasks, spec.batch_size, whole=False)
