"""The files that only removed snapshots have: found by what was removed, not by all live files.

A snapshot's manifests come from its parent, but for those that its commit wrote. So a manifest that
a removed snapshot and a kept one share is in every snapshot between the two, and the kept snapshots
next to the removed ones tell which manifests stay. Data files follow their manifests: one that is
in no manifest of those neighbours is in no later snapshot, unless a commit has added it again, as
cherry-picks do and batches that are staged twice. Their summaries say so: then all kept snapshots
are compared. `add_files` of a file that was deleted before says nothing: of each kept commit whose
writer is not known, and of each cherry-pick, what it added is compared. Reads manifest lists and
manifests, never a data file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from neve.lake.manifests import (
    DELETED,
    Manifest,
    ManifestBlock,
    ReadFile,
    file_entry_schema,
    inherit,
    open_avro,
)
from neve.lake.metadata_json import MetadataJson
from neve.lake.paths import place_of
from neve.lake.snapshot_lists import SnapshotLists

Snapshot = Mapping[str, Any]

_READS_AT_ONCE = 16
# In summaries: whose files a snapshot adds. Two that say the same may add the same files: a
# cherry-pick and its source, a batch that was staged twice, an append that was repeated.
_PICKED_FROM = "source-snapshot-id"
_ORIGINS = (_PICKED_FROM, "neve.batch-id", "neve.append-id")
# Commits with one of these, or one that begins so, add files that they have written themselves.
# Procedures that add files of any age, such as `add_files`, have none.
_WRITERS = ("neve.", "spark.app.id", "flink.job-id", "trino_query_id")
_ADDING = ("append", "overwrite", None)
# Stands for the adders of a file that several commits have added.
_SEVERAL = -1


@dataclass(frozen=True)
class UnreachableFiles:
    """Files that no kept snapshot needs, each once."""

    manifest_lists: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them; what others are found by comes last, for an attempt that is interrupted."""
        return (*self.files, *self.statistics, *self.manifests, *self.manifest_lists)


@dataclass(frozen=True)
class ManifestFile:
    """A live file of a manifest: its path, and the commit that added it."""

    path: str
    added_at: int
    added_by: int


@dataclass(frozen=True)
class _Change:
    """What was removed from a table, and what is kept.

    Args:
        known_main: snapshots that were on `main`, though no line leads there any more.
    """

    after: MetadataJson
    gone: Mapping[int, Snapshot]
    kept: Mapping[int, Snapshot]
    known_main: Collection[int]

    @property
    def has_sequence_numbers(self) -> bool:
        """Whether all have one; in format v1 none has."""
        return all(each.get("sequence-number") for each in (*self.gone.values(), *self.all_kept))

    @property
    def all_kept(self) -> list[Snapshot]:
        return list(self.kept.values())

    def neighbours(self) -> list[Snapshot]:
        """Return kept snapshots that have each manifest which a kept and a removed one share.

        A later one has it from the first snapshot of its line that is still there, whose parent is
        not; or from an ancestor that is no younger than the removed ones.
        """
        if not self.has_sequence_numbers:
            return self.all_kept
        newest = max(each["sequence-number"] for each in self.gone.values())
        heads = set(self.after.refs.values())
        return [
            snapshot
            for number, snapshot in self.kept.items()
            if snapshot["sequence-number"] <= newest
            or snapshot.get("parent-snapshot-id") not in self.kept
            or number in heads
        ]

    def aside(self) -> list[Snapshot]:
        """Return the kept snapshots that were never on `main`, as far as known: staged, held."""
        on_main: set[int | None] = set(self.known_main)
        number = self.after.current_snapshot_id
        while number is not None and number in self.kept:
            on_main.add(number)
            number = self.kept[number].get("parent-snapshot-id")
        return [each for number, each in self.kept.items() if number not in on_main]

    def first_adders(self) -> set[int]:
        """Return the commits that say nothing of adding files which an older one had.

        Of those that have expired nobody knows.
        """
        if not self.has_sequence_numbers:
            return set()
        everybody = {**self.gone, **self.kept}
        return {
            number
            for number, each in everybody.items()
            if _PICKED_FROM not in (each.get("summary") or {}) and not _may_add_old_files(each)
        }

    def may_be_added_again(self, added_by: Collection[int]) -> bool:
        """Tell whether a kept snapshot may have added the same files as one of these commits."""
        claims: dict[str, set[int]] = {str(number): {number} for number in self.kept}
        for number, snapshot in self.kept.items():
            for origin in _origins(snapshot):
                claims.setdefault(origin, set()).add(number)
        for number in added_by:
            if number == _SEVERAL:
                return True
            snapshot = self.gone.get(number) or self.kept.get(number) or {}
            for origin in (str(number), *_origins(snapshot)):
                if claims.get(origin, set()) - {number}:
                    return True
        return False

    def added_by_others(self) -> list[Snapshot]:
        """Return the kept commits that may have added a file again of which nobody says so.

        Of a commit that has picked another one, it is known whose files it has. But a third one
        may have added the same files in between, and says nothing.
        """
        return [
            each
            for each in self.kept.values()
            if _may_add_old_files(each) or _PICKED_FROM in (each.get("summary") or {})
        ]


def unreachable_files(
    read: ReadFile,
    before: MetadataJson,
    after: MetadataJson,
    removed: Collection[int],
    known_main: Collection[int] = (),
) -> UnreachableFiles:
    """Return what only the removed snapshots had. Reads; changes nothing.

    Args:
        before: the metadata that still had the removed snapshots.
        after: the metadata without them.
        known_main: snapshots, removed or kept, that were on `main`, such as those that upkeep has
            tagged: with the snapshots after them expired, no line says so.

    Raises:
        CorruptionError, NotFoundError, OSError: a manifest cannot be read, so nothing is known.
    """
    gone = {each: before.snapshots[each] for each in removed if each in before.snapshots}
    kept = {**before.snapshots, **after.snapshots}
    kept = {number: each for number, each in kept.items() if number not in gone}
    change = _Change(after, gone, kept, known_main)
    if not gone or not all(each.get("manifest-list") for each in (*gone.values(), *kept.values())):
        # Format v1 may name manifests in the metadata; such snapshots are left to orphan removal.
        return UnreachableFiles()
    neighbours = change.neighbours()
    lists = SnapshotLists(read)
    lists.prefetch([*gone.values(), *neighbours])
    # A block may be given up at any moment; the places that kept snapshots name may not.
    kept_blocks: WeakSet[ManifestBlock] = WeakSet()
    named: set[str] = set()
    for block in lists.blocks(neighbours):
        kept_blocks.add(block)
        named.update(lists.by_place(block))
    unreachable = {
        place: manifest
        for block in lists.blocks(gone.values())
        if block not in kept_blocks
        for place, manifest in lists.by_place(block).items()
        if place not in named
    }
    return UnreachableFiles(
        _paths({each["manifest-list"] for each in gone.values()}, kept.values()),
        tuple(manifest.path for manifest in unreachable.values()),
        tuple(sorted(_unreachable_data(read, lists, change, neighbours, unreachable))),
        _statistics(before, after, set(gone)),
    )


def live_files_of(read: ReadFile, manifest: Manifest) -> Iterator[ManifestFile]:
    """Yield the live files of a manifest; keeps none."""
    avro = open_avro(read(manifest.path), manifest.path)
    for record in avro.records(file_entry_schema(avro.schema, {"file_path"})):
        if record["status"] != DELETED:
            inherit(record, manifest)
            yield ManifestFile(
                record["data_file"]["file_path"],
                record.get("file_sequence_number") or 0,
                record["snapshot_id"],
            )


def _unreachable_data(
    read: ReadFile,
    lists: SnapshotLists,
    change: _Change,
    neighbours: list[Snapshot],
    unreachable: Mapping[str, Manifest],
) -> set[str]:
    """Return the files of unreachable manifests that no manifest of the others has."""
    candidates: dict[str, ManifestFile] = {}
    for file in live_files_of_all(read, list(unreachable.values())):
        other = candidates.setdefault(place_of(file.path), file)
        if other.added_by != file.added_by:
            candidates[place_of(file.path)] = replace(file, added_by=_SEVERAL)
    shared = _shared_manifests(lists, change.gone.values(), unreachable)
    newest_first = sorted(neighbours, key=lambda each: -(each.get("sequence-number") or 0))
    seen = set(shared)
    _subtract(read, lists, candidates, newest_first, seen, change.first_adders())
    _subtract_added(read, lists, candidates, change.added_by_others(), seen)
    if candidates:
        doubtful = change.may_be_added_again({file.added_by for file in candidates.values()})
        others = change.all_kept if doubtful else change.aside()
        lists.prefetch(others)
        # What was passed over because of its age is looked at now.
        _subtract(read, lists, candidates, others, shared)
    return {file.path for file in candidates.values()}


def _shared_manifests(
    lists: SnapshotLists, gone: Iterable[Snapshot], unreachable: Mapping[str, Manifest]
) -> set[str]:
    """Return the manifests that need no look: all snapshots with an unreachable one share them.

    A data file is in one manifest of a snapshot. A Puffin file may be in several: its deletion
    vectors are entries of their own, and those of two partition specs are in two manifests.
    """
    has_deletes = any(manifest.has_deletes for manifest in unreachable.values())

    def places(blocks: Iterable[ManifestBlock]) -> set[str]:
        return {
            place
            for block in blocks
            for place, manifest in lists.by_place(block).items()
            if not (has_deletes and manifest.has_deletes)
        }

    holding = _holding(lists, gone, unreachable)
    first = next(holding, None)
    if first is None:
        return set()
    # Blocks that all of them have, and manifests that all have in different blocks.
    blocks, moved = set(first), set[str]()
    for others in map(set, holding):
        moved = (moved | places(blocks - others)) & places(others - blocks)
        blocks &= others
    return moved | places(blocks)


def _holding(
    lists: SnapshotLists, gone: Iterable[Snapshot], unreachable: Mapping[str, Manifest]
) -> Iterator[tuple[ManifestBlock, ...]]:
    """Yield the lists that have an unreachable manifest."""
    has_one: WeakKeyDictionary[ManifestBlock, bool] = WeakKeyDictionary()
    for snapshot in gone:
        blocks = lists.of(snapshot)
        for block in blocks:
            if block not in has_one:
                has_one[block] = not unreachable.keys().isdisjoint(lists.by_place(block))
        if any(has_one[block] for block in blocks):
            yield blocks


def _subtract(
    read: ReadFile,
    lists: SnapshotLists,
    candidates: dict[str, ManifestFile],
    snapshots: Iterable[Snapshot],
    seen: set[str],
    first_adders: Collection[int] = (),
) -> None:
    """Remove from the candidates what is in manifests of snapshots that are not `seen` yet.

    Args:
        first_adders: commits whose files no manifest has that is older than the commit.
    """
    # The oldest candidate never becomes older: a block needs no second look.
    for block in lists.blocks(snapshots):
        if not candidates:
            return
        oldest = min(
            file.added_at if file.added_by in first_adders else 0 for file in candidates.values()
        )
        others = {
            place: manifest
            for place, manifest in lists.by_place(block).items()
            if manifest.sequence_number >= oldest and place not in seen
        }
        seen.update(others)
        for file in live_files_of_all(read, list(others.values())):
            candidates.pop(place_of(file.path), None)


def _subtract_added(
    read: ReadFile,
    lists: SnapshotLists,
    candidates: dict[str, ManifestFile],
    snapshots: Collection[Snapshot],
    seen: Collection[str],
) -> None:
    """Remove from the candidates what is in manifests that commits have written themselves."""
    if not candidates:
        return
    lists.prefetch(snapshots)
    written = {
        place_of(manifest.path): manifest
        for snapshot in snapshots
        for block in lists.of(snapshot)
        for manifest in block.lines
        if manifest.added_snapshot_id == snapshot["snapshot-id"]
    }
    others = [manifest for place, manifest in written.items() if place not in seen]
    for file in live_files_of_all(read, others):
        candidates.pop(place_of(file.path), None)


def live_files_of_all(read: ReadFile, manifests: Sequence[Manifest]) -> Iterator[ManifestFile]:
    """Yield the live files of manifests, some of which are read at the same time."""
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        for first in range(0, len(manifests), _READS_AT_ONCE):
            some = manifests[first : first + _READS_AT_ONCE]
            for files in pool.map(partial(_listed_files, read), some):
                yield from files


def _listed_files(read: ReadFile, manifest: Manifest) -> list[ManifestFile]:
    return list(live_files_of(read, manifest))


def _may_add_old_files(snapshot: Snapshot) -> bool:
    summary = snapshot.get("summary") or {}
    return summary.get("operation") in _ADDING and not any(
        key.startswith(_WRITERS) for key in summary
    )


def _origins(snapshot: Snapshot) -> list[str]:
    summary = snapshot.get("summary") or {}
    return [origin for key in _ORIGINS if key in summary for origin in summary[key].split(",")]


def _paths(paths: Collection[str], kept: Iterable[Snapshot]) -> tuple[str, ...]:
    named = {place_of(each["manifest-list"]) for each in kept}
    return tuple(sorted(path for path in paths if place_of(path) not in named))


def _statistics(before: MetadataJson, after: MetadataJson, gone: set[int]) -> tuple[str, ...]:
    """Return the statistics files of removed snapshots inside the table's location.

    Those of an index lie outside of it, and are removed with it.
    """
    inside = place_of(before.location) + "/"
    named = {place_of(path) for _, path in statistics_files(after)}
    return tuple(
        sorted(
            path
            for snapshot_id, path in statistics_files(before)
            if snapshot_id in gone
            and place_of(path) not in named
            and place_of(path).startswith(inside)
        )
    )


def statistics_files(metadata: MetadataJson) -> Iterator[tuple[int, str]]:
    """Yield the snapshot and the path of each statistics file."""
    for key in ("statistics", "partition-statistics"):
        for each in metadata.document.get(key) or ():
            yield int(each["snapshot-id"]), str(each["statistics-path"])
