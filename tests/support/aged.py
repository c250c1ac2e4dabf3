"""Tables that look old: many snapshots, files and manifests, by writing metadata, not by waiting.

A table needs one real append to its `main`. Its newest files are named again and again under other
paths: commits never read those, and neither does whoever plans to read the first file alone.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.snapshots import Snapshot

from neve.lake.append_snapshot import snapshot_json
from neve.lake.metadata_json import MAIN
from neve.lake.metadata_updates import add_snapshot, set_branch, set_properties
from neve.lake.staging import StagingTable

if TYPE_CHECKING:
    from neve.lake import Lake

# What appends come to, who merge manifests by size: see `append_snapshot.py`.
FILES_OF_MANIFEST = 512
_WRITES_AT_ONCE = 16
# Where PyIceberg's records have the path.
_FILE_PATH = 1


def staging(lake: Lake, table: str) -> StagingTable:
    return StagingTable(lake.profile, lake.catalog().load_table(table))


def add_files(table: StagingTable, files: int) -> None:
    """Have `main` name so many data files more, in one commit that adds a snapshot.

    They do not exist, and all manifests of a full size have the same content.
    """
    present = Snapshot.model_validate(table.document.snapshots[table.main_id])
    manifests = present.manifests(table.io)
    sequence = table.metadata.next_sequence_number()
    example = next(iter(manifests[0].fetch_manifest_entry(table.io)))
    snapshot_id = secrets.randbits(62)
    full, rest = divmod(files, FILES_OF_MANIFEST)
    added = []
    if full:
        first = _write_manifest(table, snapshot_id, example, FILES_OF_MANIFEST)
        added = list(_copies(table, first, full))
    if rest:
        added.append(_write_manifest(table, snapshot_id, example, rest))
    path = f"{table.metadata.location}/metadata/snap-{snapshot_id}-aged.avro"
    with write_manifest_list(
        format_version=2,
        output_file=table.io.new_output(path),
        snapshot_id=snapshot_id,
        parent_snapshot_id=present.snapshot_id,
        sequence_number=sequence,
        avro_compression="gzip",
    ) as writer:
        writer.add_manifests([*added, *manifests])
    snapshot = {
        **snapshot_json(present),
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": present.snapshot_id,
        "sequence-number": sequence,
        "manifest-list": path,
    }
    _commit(table, [snapshot])


def add_snapshots(
    table: StagingTable,
    snapshots: int,
    *,
    every_ms: int = 2500,
    properties: Mapping[str, str] = MappingProxyType({}),
    entries: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Give the history of `main` so many snapshots more, the last one now; no file changes.

    Each has a manifest list of its own, so that it can be expired, and the summary of the newest
    snapshot.

    Args:
        properties: of the table, set in the same commit.
        entries: of the summaries, in place of those of the newest snapshot.
    """
    base = table.document.snapshots[table.main_id]
    with table.io.new_input(base["manifest-list"]).open() as file:
        content = file.read()
    now_ms = table.document.last_updated_ms
    made: list[dict[str, Any]] = []
    for number in range(1, snapshots + 1):
        snapshot_id = secrets.randbits(62)
        summary = {**base["summary"], "added-records": str(number), **entries}
        if "neve.batch-id" in summary:
            summary["neve.batch-id"] = secrets.token_hex(8)
        made.append(
            {
                **base,
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": made[-1]["snapshot-id"] if made else base["snapshot-id"],
                "sequence-number": base["sequence-number"] + number,
                "timestamp-ms": now_ms - (snapshots - number) * every_ms,
                "manifest-list": f"{table.metadata.location}/metadata/snap-{snapshot_id}.avro",
                "summary": summary,
            }
        )
    _write_all(table, ((each["manifest-list"], content) for each in made))
    _commit(table, made, properties)


def _commit(
    table: StagingTable,
    snapshots: list[dict[str, Any]],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    updates = [add_snapshot(snapshot) for snapshot in snapshots]
    updates.append(set_branch(table.document, MAIN, snapshots[-1]["snapshot-id"]))
    if properties:
        updates.append(set_properties(properties))
    table._table.commit(MAIN, updates, "making it old")


def _write_manifest(
    table: StagingTable, snapshot_id: int, example: ManifestEntry, files: int
) -> ManifestFile:
    metadata = table.metadata
    path = f"{metadata.location}/metadata/{secrets.token_hex(16)}-m0.avro"
    with write_manifest(
        format_version=2,
        spec=metadata.spec(),
        schema=metadata.schema(),
        output_file=table.io.new_output(path),
        snapshot_id=snapshot_id,
        avro_compression="gzip",
    ) as writer:
        for _ in range(files):
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING,
                    snapshot_id=example.snapshot_id,
                    sequence_number=example.sequence_number,
                    file_sequence_number=example.file_sequence_number,
                    data_file=_renamed(example.data_file, metadata.location),
                )
            )
    return writer.to_manifest_file()


def _renamed(file: DataFile, location: str) -> DataFile:
    renamed = copy.copy(file)
    renamed._data = list(file._data)
    renamed._data[_FILE_PATH] = f"{location}/data/{secrets.token_hex(16)}.parquet"
    return renamed


def _copies(table: StagingTable, manifest: ManifestFile, count: int) -> Iterator[ManifestFile]:
    with table.io.new_input(manifest.manifest_path).open() as file:
        content = file.read()
    paths = [
        f"{table.metadata.location}/metadata/{secrets.token_hex(16)}-m0.avro" for _ in range(count)
    ]
    _write_all(table, ((path, content) for path in paths))
    for path in paths:
        copied = copy.copy(manifest)
        copied._data = list(manifest._data)
        copied._data[0] = path
        yield copied


def _write_all(table: StagingTable, files: Iterator[tuple[str, bytes]]) -> None:
    def write(file: tuple[str, bytes]) -> None:
        path, content = file
        with table.io.new_output(path).create() as output:
            output.write(content)

    with ThreadPoolExecutor(_WRITES_AT_ONCE) as pool:
        list(pool.map(write, files))
