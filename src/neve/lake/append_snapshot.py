"""The manifests of a snapshot that adds data files to `main`. Nothing is sent.

PyIceberg's own append sends by itself, and again on a base nobody looked at; it names the current
partition spec for files of an older one; and where it merges manifests, it rewrites all of them.
Here small manifests are merged with others of about their size, so that a commit rewrites few
entries and a table has few manifests (docs/decisions/0018-direct-appends.md).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.utils.properties import property_as_bool, property_as_int

from neve.errors import UnsupportedError
from neve.lake.manifest_lists import ManifestList, Settled, read_list, write_list

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, OutputFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.metadata import TableMetadata

# As many manifests of about one size are merged into one.
MERGED_AT_ONCE = 8
# Manifests with fewer entries than each of these are of about one size. Those with more entries
# than the last are not merged any more, so that a commit rewrites at most 8 * 127 entries, and a
# table of n files that were added one by one has n / 512 manifests and some 20 more.
_SIZES = (8, 64, 128)

# Iceberg's own keys of a summary.
REPLACED = "manifests-replaced"
_CREATED = "manifests-created"
_KEPT = "manifests-kept"


@dataclass(frozen=True)
class NewSnapshot:
    """A snapshot that no table has yet, and the files that were written for it."""

    snapshot: Snapshot
    manifests: tuple[str, ...]

    @property
    def paths(self) -> set[str]:
        return {self.snapshot.manifest_list, *self.manifests}


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as metadata documents have it."""
    document: dict[str, Any] = snapshot.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


def write_append(
    metadata: TableMetadata, io: FileIO, files: Sequence[DataFile], summary: Mapping[str, str]
) -> NewSnapshot:
    """Write the manifests of an append to what `main` is in this metadata.

    Args:
        files: each with the partition spec that it was written under; without one, the current.

    Raises:
        FileNotFoundError: the parent's manifest list or a manifest is gone: it was expired.
        UnsupportedError: a file's partition spec is of a column that was dropped.
    """
    return _Append(metadata, io).write(files, summary)


@dataclass
class _Append:
    metadata: TableMetadata
    io: FileIO
    written: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parent = self.metadata.current_snapshot()
        self.snapshot_id = self.metadata.new_snapshot_id()
        self.unique_name = str(uuid.uuid4())
        properties = self.metadata.properties
        self.locations = load_location_provider(self.metadata.location, properties)
        # PyIceberg's name for one of the codecs that Avro has; its writer refuses another.
        self.compression: Any = properties.get(
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )

    def write(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> NewSnapshot:
        listed = self._listed()
        present = [
            manifest
            for manifest in listed.manifests
            if manifest.has_added_files() or manifest.has_existing_files()
        ]
        replaced = self._manifests_to_merge(present)
        added = list(self._write_added(files))
        merged = [self._merge(replaced)] if replaced else []
        paths = {manifest.manifest_path for manifest in replaced}
        kept = [manifest for manifest in present if manifest.manifest_path not in paths]
        counts = {
            _CREATED: str(len(added) + len(merged)),
            _KEPT: str(len(kept) + listed.settled_count),
            REPLACED: str(len(replaced)),
        }
        snapshot = Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=self.parent.snapshot_id if self.parent else None,
            manifest_list=self._write_list([*added, *merged, *kept], listed.settled),
            sequence_number=self.metadata.next_sequence_number(),
            # Catalogs refuse a time before the last commit's: a clock may be late.
            timestamp_ms=max(int(time.time() * 1000), self.metadata.last_updated_ms),
            summary=self._summary(files, {**counts, **summary}),
            schema_id=self.metadata.current_schema_id,
        )
        return NewSnapshot(snapshot, tuple(self.written))

    def _listed(self) -> ManifestList:
        if self.parent is None:
            return ManifestList()
        return read_list(self.io, self.parent.manifest_list)

    def _manifests_to_merge(self, present: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return manifests of one partition spec and about one size, if there are enough."""
        if not property_as_bool(
            self.metadata.properties,
            TableProperties.MANIFEST_MERGE_ENABLED,
            TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
        ):
            return []
        by_size: dict[tuple[int, int], list[ManifestFile]] = {}
        for manifest in present:
            size = self._size(manifest)
            if size is not None:
                by_size.setdefault((size, manifest.partition_spec_id), []).append(manifest)
        for key in sorted(by_size):
            if len(by_size[key]) >= MERGED_AT_ONCE:
                # The newest are first. The oldest of them have waited longest.
                return by_size[key][-MERGED_AT_ONCE:]
        return []

    def _size(self, manifest: ManifestFile) -> int | None:
        """Return the class of size that a manifest is of; None: it is never merged."""
        added, existing = manifest.added_files_count, manifest.existing_files_count
        if (
            manifest.content != ManifestContent.DATA
            # Written by format version 1.
            or added is None
            or existing is None
            or not self._has_columns(self.metadata.specs()[manifest.partition_spec_id])
        ):
            return None
        return next((size for size in _SIZES if added + existing < size), None)

    def _has_columns(self, spec: PartitionSpec) -> bool:
        """Tell whether all columns of a spec are there: of a dropped one the type is unknown."""
        return {field.source_id for field in spec.fields} <= self.metadata.schema().field_ids

    def _write_added(self, files: Sequence[DataFile]) -> Iterator[ManifestFile]:
        def spec_id(file: DataFile) -> int:
            # PyIceberg's own writer leaves it out.
            return getattr(file, "spec_id", self.metadata.default_spec_id)

        for written_under, of_spec in groupby(sorted(files, key=spec_id), spec_id):
            if not self._has_columns(self.metadata.specs()[written_under]):
                raise UnsupportedError(
                    f"files of partition spec {written_under} cannot be added to "
                    f"{self.metadata.location}: a column that it is of was dropped",
                    hint="let Spark write to this table",
                )
            entries = (
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self.snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
                for file in of_spec
            )
            yield self._write_manifest(written_under, entries)

    def _merge(self, manifests: Sequence[ManifestFile]) -> ManifestFile:
        entries = (
            # With the sequence numbers and the snapshot that it had so far.
            ManifestEntry.from_args(
                status=ManifestEntryStatus.EXISTING,
                snapshot_id=entry.snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            for manifest in manifests
            for entry in manifest.fetch_manifest_entry(self.io, discard_deleted=True)
        )
        return self._write_manifest(manifests[0].partition_spec_id, entries)

    def _write_manifest(self, spec_id: int, entries: Iterator[ManifestEntry]) -> ManifestFile:
        with write_manifest(
            format_version=self.metadata.format_version,
            spec=self.metadata.specs()[spec_id],
            schema=self.metadata.schema(),
            output_file=self._output(f"{self.unique_name}-m{len(self.written)}.avro"),
            snapshot_id=self.snapshot_id,
            avro_compression=self.compression,
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        manifest = writer.to_manifest_file()
        self.written.append(manifest.manifest_path)
        return manifest

    def _write_list(self, manifests: Sequence[ManifestFile], settled: Settled | None) -> str:
        def open_writer(output: OutputFile) -> ManifestListWriter:
            return write_manifest_list(
                format_version=self.metadata.format_version,
                output_file=output,
                snapshot_id=self.snapshot_id,
                parent_snapshot_id=self.parent.snapshot_id if self.parent else None,
                sequence_number=self.metadata.next_sequence_number(),
                avro_compression=self.compression,
            )

        output = self._output(f"snap-{self.snapshot_id}-0-{self.unique_name}.avro")
        by_size = [(self._size(manifest), manifest) for manifest in manifests]
        to_merge = [manifest for size, manifest in by_size if size is not None]
        newly_settled = [manifest for size, manifest in by_size if size is None]
        write_list(output, open_writer, to_merge, newly_settled, settled)
        return output.location

    def _output(self, name: str) -> OutputFile:
        return self.io.new_output(self.locations.new_metadata_location(name))

    def _summary(self, files: Sequence[DataFile], entries: Mapping[str, str]) -> Summary:
        metadata = self.metadata
        limit = property_as_int(
            metadata.properties,
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT,
        )
        counts = SnapshotSummaryCollector(limit or 0)
        specs = metadata.specs()
        for file in files:
            spec = specs[getattr(file, "spec_id", metadata.default_spec_id)]
            counts.add_file(file, metadata.schema(), spec)
        return update_snapshot_summaries(
            Summary(operation=Operation.APPEND, **counts.build(), **entries),
            self.parent.summary if self.parent else None,
        )
