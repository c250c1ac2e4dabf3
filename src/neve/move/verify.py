"""Prove that a copy is whole before anybody can see it: file by file, entry by entry.

Manifests are read with another decoder than the one that rewrote them, so that an error passes only
if both make it. Writes nothing.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from neve.errors import CorruptionError, NeveError, NotFoundError
from neve.lake.metadata_json import MetadataJson
from neve.move.compare_deletes import DeletesPair, compare_deletes
from neve.move.files import Tally, tally_of
from neve.move.manifest_pairs import (
    ComparedManifest,
    ManifestPair,
    compare_lists,
    compare_manifests,
)
from neve.move.metadata_pairs import (
    Defect,
    TargetPath,
    compare_documents,
    is_below,
    statistics_files,
)
from neve.move.paths import normal_path
from neve.move.workers import Threads, Workers

_SIZES_AT_ONCE = 1000
# Both sides are read: it should take seconds, whatever the table's size.
_SAMPLED_FILES = 16
_SAMPLED_BYTES = 256 << 20
_MOST_DEFECTS = 50


class Store(Protocol):
    """What a verification reads of a store (`lake/file_store.py`)."""

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises NotFoundError."""

    def sizes(self, paths: Sequence[str]) -> Mapping[str, int | None]:
        """Return how long files are; None: there is no such file."""

    def checksum(self, path: str) -> str:
        """Return the digest of a file's bytes as they are stored."""


@dataclass(frozen=True)
class Version:
    """A version of a table, and the store that its files are in."""

    metadata: MetadataJson
    store: Store


@dataclass(frozen=True)
class Verified:
    """What was compared, and what is wrong.

    Args:
        files: that the target's metadata names: each is there with the length that is recorded.
        sampled: data files whose bytes were compared with the source's.
        tally: what the live entries of the target's manifests add up to.
        defects: the first 50; without any, the copy is whole.
    """

    snapshots: int
    manifests: int
    files: int
    bytes: int
    sampled: int
    tally: Tally
    defects: tuple[Defect, ...] = ()

    def require_whole(self, table: str, planned: Tally) -> None:
        """Refuse a copy that is not whole, naming the first file that is wrong.

        The books of a move: files and records that the plan has listed = files and records that the
        target's manifests name, of data and of deletes. So they are for each retained snapshot,
        since each list of manifests names the source's, line by line.
        """
        if not self.defects and self.tally != planned:
            raise CorruptionError(
                f"the copy of {table} is not whole: the plan has {planned}, "
                f"and the copy {self.tally}",
                hint="nothing was registered; run the move again",
            )
        if self.defects:
            more = f" (and {len(self.defects) - 1} more)" if len(self.defects) > 1 else ""
            raise CorruptionError(
                f"the copy of {table} is not whole: {self.defects[0]}{more}",
                hint="nothing was registered; run the move again",
            )


def verify(
    source: Version,
    target: Version,
    target_path: TargetPath,
    *,
    every_field: bool = False,
    workers: Workers | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Verified:
    """Compare the version that was moved with what is at the target.

    Every file that the target's metadata names must be there with the length that is recorded, and
    below the target's location; every manifest must have the source's entries, and every file of
    deletes must delete the same rows.

    Args:
        target_path: where a file that is copied as it is goes (`PathMap.target`).
        every_field: of manifest entries, compare statistics, too.
        workers: compare the manifests; None: threads.
        progress: told how many manifests were compared, and how many there are.

    Raises:
        NotFoundError: a file of the source is deleted, so that nothing can be proven.
    """
    verification = _Verification(source, target, target_path)
    return verification.run(progress, workers or Threads(), every_field=every_field)


class _Verification:
    def __init__(self, source: Version, target: Version, target_path: TargetPath) -> None:
        self._source = source
        self._target = target
        self._target_path = target_path
        self._defects: list[Defect] = []
        # The recorded lengths of the target's files; None: not recorded.
        self._sizes: dict[str, int | None] = {}
        self._sample = _Sample()
        self._deletes: dict[DeletesPair, None] = {}
        self._tally = Tally()

    def run(
        self, progress: Callable[[int, int], None], workers: Workers, *, every_field: bool
    ) -> Verified:
        source, target = self._source.metadata, self._target.metadata
        self._defects += compare_documents(source, target, self._target_path)
        pairs = self._pair_manifests()
        stores = self._source.store, self._target.store
        compare = _Comparison(*stores, self._target_path, every_field)
        counted: set[str] = set()
        results = zip(pairs, workers.results(compare, pairs), strict=True)
        for number, (pair, compared) in enumerate(results, 1):
            self._note(compared)
            # As the plan does: once, however lists spell its path.
            if normal_path(pair.source) not in counted:
                counted.add(normal_path(pair.source))
                self._tally += tally_of(compared.records)
            progress(number, len(pairs))
        self._sizes.update(statistics_files(target))
        log = target.document.get("metadata-log") or ()
        self._sizes.update((entry["metadata-file"], None) for entry in log)
        self._sizes[target.metadata_location] = None
        self._check_places()
        self._check_lengths()
        if not self._defects:
            self._compare_deletes()
            self._compare_sample()
        return Verified(
            len(target.snapshots),
            len(pairs),
            len(self._sizes),
            sum(size or 0 for size in self._sizes.values()),
            len(self._sample.pairs),
            self._tally,
            tuple(self._defects[:_MOST_DEFECTS]),
        )

    def _pair_manifests(self) -> list[ManifestPair]:
        """Return each manifest once, however many snapshots share it."""
        source, target = self._source.metadata.snapshots, self._target.metadata.snapshots
        lists: dict[tuple[str, str], None] = {}
        pairs: dict[ManifestPair, None] = {}
        for snapshot_id in source.keys() & target.keys():
            theirs, ours = source[snapshot_id], target[snapshot_id]
            if theirs.get("manifest-list") and ours.get("manifest-list"):
                lists[theirs["manifest-list"], ours["manifest-list"]] = None
            # Format version 1 may name manifests in the metadata itself.
            inline = theirs.get("manifests") or (), ours.get("manifests") or ()
            if len(inline[0]) != len(inline[1]):
                reason = f"snapshot {snapshot_id} names more or fewer manifests than the source's"
                self._defects.append(Defect(self._target.metadata.metadata_location, reason))
            pairs.update((ManifestPair(*both), None) for both in zip(*inline, strict=False))
        for compared, defects in Threads().results(self._compare_lists, list(lists)):
            pairs.update(dict.fromkeys(compared))
            self._defects += defects
        self._sizes.update((ours, None) for _, ours in lists)
        self._sizes.update((pair.target, pair.length) for pair in pairs)
        return list(pairs)

    def _compare_lists(self, paths: tuple[str, str]) -> tuple[list[ManifestPair], list[Defect]]:
        theirs, ours = paths
        with _Named(ours) as named:
            target = ours, self._target.store.read(ours)
            with _reading_source(theirs):
                source = theirs, self._source.store.read(theirs)
            return compare_lists(source, target)
        return [], named.defects

    def _note(self, compared: ComparedManifest) -> None:
        self._defects += compared.defects
        self._sizes.update(compared.sizes)
        for source, target in compared.copies:
            self._sample.offer(source, target, compared.sizes[target])
        self._deletes.update(dict.fromkeys(compared.deletes))

    def _compare_deletes(self) -> None:
        pairs = list(self._deletes)
        for defects in Threads().results(self._defects_of_deletes, pairs):
            self._defects += defects

    def _defects_of_deletes(self, pair: DeletesPair) -> list[Defect]:
        with _Named(pair.target) as named:
            target = self._target.store.read(pair.target)
            with _reading_source(pair.source):
                source = self._source.store.read(pair.source)
            reason = compare_deletes(pair, source, target, self._target_path)
            return [Defect(pair.target, reason)] if reason else []
        return named.defects

    def _check_places(self) -> None:
        location = self._target.metadata.location
        for path in self._sizes:
            if not is_below(location, path):
                self._defects.append(Defect(path, f"it is not below {location}"))

    def _check_lengths(self) -> None:
        paths = iter(list(self._sizes))
        while batch := list(islice(paths, _SIZES_AT_ONCE)):
            for path, size in self._target.store.sizes(batch).items():
                recorded = self._sizes[path]
                if size is None:
                    self._defects.append(Defect(path, "it does not exist"))
                elif recorded is not None and size != recorded:
                    reason = f"it has {size} bytes, and the metadata says {recorded}"
                    self._defects.append(Defect(path, reason))

    def _compare_sample(self) -> None:
        for theirs, ours in self._sample.pairs:
            with _Named(ours) as named:
                with _reading_source(theirs):
                    checksum = self._source.store.checksum(theirs)
                if self._target.store.checksum(ours) != checksum:
                    named.defects.append(Defect(ours, f"its bytes are not those of {theirs}"))
            self._defects += named.defects


class _SourceGoneError(NotFoundError):
    """A file of the source is deleted: no defect of the copy, which can be compared no more."""


@contextmanager
def _reading_source(path: str) -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise _SourceGoneError(
            f"{path} was deleted before the copy was compared with it",
            hint="the source has expired snapshots, and nothing was registered; run the command "
            "again: it plans the present version and copies only what is missing",
        ) from error


class _Named:
    """Turns an error of reading into a defect of a file; one that may pass is raised."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.defects: list[Defect] = []

    def __enter__(self) -> _Named:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if (
            not isinstance(error, NeveError)
            or error.retryable
            or isinstance(error, _SourceGoneError)
        ):
            return False
        self.defects.append(Defect(self._path, error.message))
        return True


@dataclass(frozen=True)
class _Comparison:
    """Reads a manifest at both sides, and compares."""

    source: Store
    target: Store
    target_path: TargetPath
    every_field: bool

    def __call__(self, pair: ManifestPair) -> ComparedManifest:
        with _Named(pair.target) as named:
            with _reading_source(pair.source):
                source = self.source.read(pair.source)
            return compare_manifests(
                pair,
                source,
                self.target.read(pair.target),
                self.target_path,
                every_field=self.every_field,
            )
        return ComparedManifest(defects=named.defects)


class _Sample:
    """Files chosen by a hash of their names: the same ones in each run, of all ages alike."""

    def __init__(self) -> None:
        self._chosen: list[tuple[int, str, str, int]] = []

    def offer(self, source: str, target: str, size: int) -> None:
        if size > _SAMPLED_BYTES:
            return
        rank = int.from_bytes(hashlib.sha256(target.encode()).digest()[:8], "big")
        candidate = (-rank, source, target, size)
        if candidate in self._chosen:
            return
        if len(self._chosen) < _SAMPLED_FILES:
            heapq.heappush(self._chosen, candidate)
        else:
            heapq.heappushpop(self._chosen, candidate)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The chosen files, as many as the bound on bytes allows."""
        pairs, left = [], _SAMPLED_BYTES
        for _, source, target, size in sorted(self._chosen, reverse=True):
            left -= size
            if left >= 0:
                pairs.append((source, target))
        return pairs
