"""A table as upkeep sees it: metadata and manifests, nothing else is read. No JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neve.errors import CorruptionError, NeveError, StorageError, UnsupportedError
from neve.lake.horizons import SOURCE
from neve.lake.manifests import Manifest, ManifestReader
from neve.lake.paths import local_path
from neve.lake.readable_main import remember_readable
from neve.lake.table_reads import file_reader
from neve.upkeep.layout import Layout, observe_layout, wanted_bounds
from neve.upkeep.policy import CompactionPolicy, compaction_policy
from neve.upkeep.retention_policy import RetentionPolicy, retention_policy
from neve.upkeep.row_age import aged_column
from neve.upkeep.table_kind import TableKind, table_kind

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef


@dataclass(frozen=True)
class ObservedTable:
    """A table at one snapshot."""

    ref: TableRef
    metadata: MetadataJson
    kind: TableKind
    policy: CompactionPolicy
    retention: RetentionPolicy
    metadata_bytes: int
    manifests: Sequence[Manifest] = ()
    layout: Layout = field(default_factory=Layout)
    changelog: MetadataJson | None = None
    """Of a mirror: the table that it is merged from, if it can be read."""
    is_served: bool = False
    """Whether its catalog expires snapshots and removes unreferenced files by itself."""

    @property
    def name(self) -> str:
        return self.ref.name

    @property
    def manifest_bytes(self) -> int:
        return sum(manifest.length for manifest in self.manifests)

    @property
    def writes_per_row(self) -> float | None:
        """How often a row was written so far, at most; None: it cannot be told of such a table."""
        is_known = self.kind is TableKind.TELEMETRY
        return round(self.layout.writes_per_row, 2) if is_known else None

    @property
    def is_compacted(self) -> bool:
        """Whether upkeep rewrites its files."""
        enabled = self.policy.enabled
        return self.kind.is_own if enabled is None else enabled


def observe_table(lake: Lake, ref: TableRef, metadata: MetadataJson) -> ObservedTable:
    """Read a table's manifests, each once.

    Raises:
        NeveError: a manifest cannot be read; nothing may be decided about the table then.
    """
    kind = table_kind(lake.settings, ref.identifier, metadata)
    policy = compaction_policy(lake.settings, ref.name)
    is_served = lake.settings.catalog.type == "s3tables"
    if is_served and policy.enabled is None:
        # The service compacts by itself.
        policy = replace(policy, enabled=False)
    retention = retention_policy(lake.settings, ref.identifier, metadata)
    empty = ObservedTable(
        ref, metadata, kind, policy, retention, _metadata_bytes(metadata), is_served=is_served
    )
    snapshot_id = metadata.current_snapshot_id
    if snapshot_id is None:
        return empty
    try:
        manifest_list = metadata.snapshots[snapshot_id]["manifest-list"]
    except LookupError:
        raise UnsupportedError(
            f"{ref.name}: its current snapshot has no manifest list",
            hint="a format of Iceberg version 1; upgrade the table",
        ) from None
    reader = ManifestReader(file_reader(lake, ref))
    try:
        manifests = reader.manifests(manifest_list)
        column = aged_column(metadata, retention)
        aged = None if isinstance(column, str) else column
        fields = wanted_bounds(metadata, aged)
        deletes = [each for each in manifests if each.has_deletes]
        data = [each for each in manifests if not each.has_deletes]
        layout = observe_layout(
            metadata, reader.statistics(deletes, ()), reader.statistics(data, fields), policy, aged
        )
    except NeveError:
        raise
    except OSError as error:
        raise StorageError(f"{ref.name}: a manifest cannot be read: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptionError(f"{ref.name}: a manifest is damaged: {error}") from error
    remember_readable(metadata, manifests)
    changelog = _changelog(lake, metadata) if kind is TableKind.MIRROR else None
    return replace(empty, manifests=manifests, layout=layout, changelog=changelog)


def _changelog(lake: Lake, mirror: MetadataJson) -> MetadataJson | None:
    try:
        ref = lake.ref(str(json.loads(mirror.properties[SOURCE])["table"]))
        return lake.reader(ref.catalog).read_document(ref.identifier)
    except (NeveError, LookupError, ValueError):
        return None


def _metadata_bytes(metadata: MetadataJson) -> int:
    path = local_path(metadata.metadata_location)
    try:
        if path is not None:
            return path.stat().st_size
    except OSError:
        pass
    return len(json.dumps(metadata.document))
