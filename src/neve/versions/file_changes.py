"""Which data files and deletes differ between two snapshots, by their manifests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

from neve.lake.manifests import Content, FileEntry, Manifest, ManifestReader
from neve.lake.metadata_json import MetadataJson


@dataclass(frozen=True)
class Step:
    """From one snapshot to a later one, each by its manifest list.

    Args:
        number: which of the range's commits it is, counted from 0.
        before: None is the empty table.
    """

    number: int
    before: str | None
    after: str


@dataclass(frozen=True)
class FileChanges:
    """What a step adds to and removes from a table's files. A table may have a data file twice."""

    added: tuple[FileEntry, ...]
    removed: tuple[FileEntry, ...]
    deletes_added: tuple[FileEntry, ...]
    deletes_removed: tuple[FileEntry, ...]

    @property
    def only_adds_rows(self) -> bool:
        return not (self.removed or self.deletes_added or self.deletes_removed)

    @property
    def paths(self) -> set[str]:
        """The data files that come or go."""
        return {entry.path for entry in (*self.added, *self.removed)}


def compare_files(reader: ManifestReader, step: Step) -> FileChanges:
    """Compare the two snapshots of a step. Only manifests that they do not share are read.

    What entries say of their own history (added, deleted) is not used: writers differ in it.
    """
    before = {one.path: one for one in manifests_of(reader, step.before)}
    after = {one.path: one for one in manifests_of(reader, step.after)}
    old = _by_key(reader, [before[path] for path in before.keys() - after.keys()])
    new = _by_key(reader, [after[path] for path in after.keys() - before.keys()])
    added = _surplus(new, old)
    removed = _surplus(old, new)
    return FileChanges(
        added=tuple(entry for entry in added if entry.content is Content.DATA),
        removed=tuple(entry for entry in removed if entry.content is Content.DATA),
        deletes_added=tuple(entry for entry in added if entry.content is not Content.DATA),
        deletes_removed=tuple(entry for entry in removed if entry.content is not Content.DATA),
    )


def manifests_of(reader: ManifestReader, manifest_list: str | None) -> list[Manifest]:
    return [] if manifest_list is None else reader.manifests(manifest_list)


def delete_manifests(reader: ManifestReader, manifest_list: str | None) -> list[Manifest]:
    return [one for one in manifests_of(reader, manifest_list) if one.has_deletes]


def data_entries(reader: ManifestReader, manifest_list: str | None) -> Iterable[FileEntry]:
    """Yield every data file of a snapshot."""
    manifests = manifests_of(reader, manifest_list)
    return reader.entries(one for one in manifests if not one.has_deletes)


def _by_key(reader: ManifestReader, manifests: list[Manifest]) -> dict[Any, list[FileEntry]]:
    entries: dict[Any, list[FileEntry]] = defaultdict(list)
    for entry in reader.entries(manifests):
        entries[entry.key].append(entry)
    return entries


def _surplus(
    entries: dict[Any, list[FileEntry]], others: dict[Any, list[FileEntry]]
) -> list[FileEntry]:
    """Return the entries that the others have not, or not as often."""
    return [entry for key, same in entries.items() for entry in same[len(others.get(key, ())) :]]


class DeleteIndex:
    """The deletes of a snapshot, by what they apply to."""

    def __init__(self, entries: Iterable[FileEntry]) -> None:
        self.has_equality = False
        self._vectors: dict[str, FileEntry] = {}
        self._of_file: dict[str, list[FileEntry]] = defaultdict(list)
        self._of_partition: dict[Any, list[FileEntry]] = defaultdict(list)
        for entry in entries:
            if entry.content is Content.EQUALITY_DELETES:
                self.has_equality = True
            elif entry.data_file is None:
                self._of_partition[entry.spec_id, entry.partition].append(entry)
            elif entry.is_vector:
                self._vectors[entry.data_file] = entry
            else:
                self._of_file[entry.data_file].append(entry)

    @classmethod
    def of(cls, reader: ManifestReader, manifest_list: str | None) -> DeleteIndex:
        return cls(reader.entries(delete_manifests(reader, manifest_list)))

    def position_deletes(self, file: FileEntry) -> tuple[FileEntry, ...]:
        """Return the position deletes that may apply to a data file.

        A deletion vector holds all that is deleted of its file; what else there is does not count.
        """
        if file.path in self._vectors:
            return (self._vectors[file.path],)
        may_apply = (
            *self._of_file.get(file.path, ()),
            *self._of_partition.get((file.spec_id, file.partition), ()),
        )
        return tuple(entry for entry in may_apply if entry.sequence_number >= file.sequence_number)


def files_affected(
    changes: FileChanges, files: Iterable[FileEntry], unpartitioned: Container[int]
) -> list[FileEntry]:
    """Return the files of which deletes that a step adds or removes may hide rows.

    Args:
        unpartitioned: the specs whose equality deletes apply to files of every spec.
    """
    paths = set()
    partitions = set()
    every_file = False
    for entry in (*changes.deletes_added, *changes.deletes_removed):
        if entry.data_file is not None:
            paths.add(entry.data_file)
        elif entry.content is Content.EQUALITY_DELETES and entry.spec_id in unpartitioned:
            every_file = True
        else:
            partitions.add((entry.spec_id, entry.partition))
    return [
        file
        for file in files
        if every_file or file.path in paths or (file.spec_id, file.partition) in partitions
    ]


def unpartitioned_specs(metadata: MetadataJson) -> set[int]:
    """Return the specs without partitions; format version 1 keeps dropped fields as void ones."""
    return {
        spec["spec-id"]
        for spec in metadata.partition_specs
        if all(field["transform"] == "void" for field in spec["fields"])
    }
