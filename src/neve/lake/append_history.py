"""What a table's snapshots say of appends: which are applied, and what their absence proves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import ManifestContent, ManifestFile, read_manifest_list

from neve.lake.growing_lists import kept_members
from neve.lake.metadata_json import MAIN
from neve.lake.snapshot_limit import APPEND_ID, main_history, removed_appends

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from neve.lake.metadata_json import MetadataJson


@dataclass(frozen=True)
class SeenVersion:
    """A version of a table that was seen to lack an append: only later snapshots may have it.

    Args:
        main_id: the snapshot that `main` was.
        sequence_number: the last one that the table had given; 0 in format version 1.
    """

    main_id: int | None
    sequence_number: int

    @staticmethod
    def of(metadata: MetadataJson) -> SeenVersion:
        return SeenVersion(metadata.refs.get(MAIN), _last_sequence_number(metadata))


class AppliedAppends:
    """The appends that a table's snapshots name. Not thread-safe.

    Snapshots that the version before had, too, are not read again (`growing_lists.py`).
    """

    def __init__(self) -> None:
        self._snapshots: Sequence[Mapping[str, Any]] = ()
        self._by_id: dict[str, int] = {}

    def of(self, metadata: MetadataJson) -> Mapping[str, int]:
        """Return the snapshot of each append that is applied in this version, by its id.

        It changes with the next call.
        """
        snapshots = metadata.document.get("snapshots") or ()
        kept = kept_members(self._snapshots, snapshots)
        if not kept:
            self._by_id = {}
        for snapshot in self._snapshots[: kept.start] if kept else ():
            for append_id in _append_ids(snapshot):
                # A later snapshot may name it, too: one that was cherry-picked.
                if self._by_id.get(append_id) == snapshot["snapshot-id"]:
                    del self._by_id[append_id]
        for snapshot in snapshots[len(kept) :]:
            self._by_id.update(dict.fromkeys(_append_ids(snapshot), snapshot["snapshot-id"]))
        self._snapshots = snapshots
        return self._by_id


def _append_ids(snapshot: Mapping[str, Any]) -> list[str]:
    append_ids: str = (snapshot.get("summary") or {}).get(APPEND_ID, "")
    return append_ids.split(",") if append_ids else []


def has_all_snapshots_since(metadata: MetadataJson, seen: SeenVersion) -> bool:
    """Tell whether every snapshot that `main` was since a version is retained.

    Only then the absence of an append's id proves that it is not applied.
    """
    if seen.main_id is not None and any(
        each["snapshot-id"] == seen.main_id for each in metadata.iter_main_history()
    ):
        return True
    if metadata.format_version == 1:
        # There are no numbers. Nobody writes such a table and expires it in the same seconds.
        history = main_history(metadata)
        is_first = not history or history[-1].get("parent-snapshot-id") is None
        return seen.main_id is None and is_first
    return _are_known(metadata, seen.sequence_number, _retained_numbers(metadata))


def has_all_files_since(metadata: MetadataJson, sequence_number: int) -> bool:
    """Tell whether every file added after a sequence number is still in a retained snapshot.

    Each commit of a snapshot takes the next number (Iceberg specification, "Sequence Numbers"), so
    that a removed snapshot leaves a gap. Following parents would not do: PyIceberg's expiry makes
    the oldest retained snapshot look like the first one, and a snapshot that `main` was rolled back
    from has no child. Snapshots that appends have removed are no gap: later ones have their files.
    """
    if metadata.format_version == 1:
        return False
    known = _retained_numbers(metadata).union(*removed_appends(metadata))
    return _are_known(metadata, sequence_number, known)


def find_removed_append(
    metadata: MetadataJson, io: FileIO, paths: Collection[str], seen: SeenVersion
) -> tuple[int | None, SeenVersion]:
    """Look for an append whose id no snapshot has: appends may have removed its snapshot since.

    Args:
        paths: the append's files.
        seen: a version that lacks the append.

    Returns:
        The snapshot that added the files, if the table has them; and the newest version that is
        proven to lack them.
    """
    if not has_all_snapshots_since(metadata, seen):
        if not has_all_files_since(metadata, seen.sequence_number):
            return None, seen
        try:
            found = RetainedFiles(io, paths, seen.sequence_number).find(metadata)
        except FileNotFoundError:
            # Expired since the metadata was read: nothing is proven until it is read again.
            return None, seen
        if found:
            return (max(found.values()) if len(found) == len(paths) else None), seen
    return None, SeenVersion.of(metadata)


class RetainedFiles:
    """Which of some data files a table has, in any retained snapshot; reads each manifest once.

    Args:
        paths: the files that are asked for.
        sequence_number: none of them was added before a snapshot with a greater one.
    """

    def __init__(self, io: FileIO, paths: Collection[str], sequence_number: int) -> None:
        self._io = io
        self._paths = frozenset(paths)
        self._sequence_number = sequence_number
        self._found: dict[str, int] = {}
        self._read_snapshots: set[int] = set()
        self._read_manifests: set[str] = set()

    def find(self, metadata: MetadataJson) -> Mapping[str, int]:
        """Return the snapshot that added each file that the table has, by the file's path.

        Raises:
            FileNotFoundError: a snapshot was expired since the metadata was read.
        """
        for snapshot in self._last_snapshots(metadata):
            for manifest in read_manifest_list(self._io.new_input(snapshot["manifest-list"])):
                self._read(manifest)
            self._read_snapshots.add(snapshot["snapshot-id"])
        return self._found

    def _last_snapshots(self, metadata: MetadataJson) -> Iterator[Mapping[str, Any]]:
        """Return the snapshots to read: an append has all files of its parent."""
        parents = {
            each.get("parent-snapshot-id")
            for each in metadata.snapshots.values()
            if (each.get("summary") or {}).get("operation") == "append"
        }
        for snapshot_id, snapshot in metadata.snapshots.items():
            is_later = (snapshot.get("sequence-number") or 0) > self._sequence_number
            if is_later and snapshot_id not in parents and snapshot_id not in self._read_snapshots:
                yield snapshot

    def _read(self, manifest: ManifestFile) -> None:
        if (
            manifest.content is not ManifestContent.DATA
            or (manifest.sequence_number or 0) <= self._sequence_number
            or manifest.manifest_path in self._read_manifests
        ):
            return
        for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=True):
            if entry.data_file.file_path in self._paths and entry.snapshot_id is not None:
                self._found[entry.data_file.file_path] = entry.snapshot_id
        self._read_manifests.add(manifest.manifest_path)


def _last_sequence_number(metadata: MetadataJson) -> int:
    return int(metadata.document.get("last-sequence-number") or 0)


def _retained_numbers(metadata: MetadataJson) -> set[int]:
    return {each.get("sequence-number") or 0 for each in metadata.snapshots.values()}


def _are_known(metadata: MetadataJson, sequence_number: int, known: set[int]) -> bool:
    last = _last_sequence_number(metadata)
    # Less than it was: somebody has restored old metadata.
    return sequence_number <= last and known.issuperset(range(sequence_number + 1, last + 1))
