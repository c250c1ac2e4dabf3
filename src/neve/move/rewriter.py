"""Rewrites the files of a table that name paths: deletes, manifests, manifest lists, metadata.

Bottom-up, so that every length that is recorded was measured, and each file once, however many
snapshots share it. This is the seam for PyIceberg's own `rewrite_table_path`, once it exists
(https://github.com/apache/iceberg-python/issues/2014): a document in, a RewrittenTable out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from neve.lake.avro_files import SeenRecords
from neve.move.deletion_vectors import rewrite_deletion_vectors
from neve.move.files import FileKind, TableFile, WrittenFile
from neve.move.inventory import Inventory
from neve.move.manifest_rewrite import TargetDeletes, rewrite_manifest, rewrite_manifest_list
from neve.move.metadata_rewrite import encode_metadata, rewrite_metadata
from neve.move.paths import PathMap, normal_path
from neve.move.position_deletes import rewrite_position_deletes
from neve.move.workers import Threads, Workers

Read = Callable[[str], bytes]
Write = Callable[[str, bytes], None]

_DELETES = (FileKind.POSITION_DELETES, FileKind.DELETION_VECTORS)


@dataclass(frozen=True)
class RewrittenTable:
    """What a rewrite has written.

    Args:
        metadata: the new metadata file, and its document.
        files: what took the place of each rewritten file, by the normal path of the source.
        counts: of the files that this run has rewritten, metadata not included.
        notes: what was left out, a line each.
    """

    metadata: WrittenFile
    document: Mapping[str, Any]
    files: Mapping[str, WrittenFile]
    counts: Mapping[FileKind, int]
    notes: tuple[str, ...] = ()

    @property
    def rewrite_count(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Rewriter:
    """Writes what a table is at its target, under names that say the content.

    Names are made of a hash, so running again writes the same files. Nothing is overwritten.

    Args:
        read: returns the content of a file of the source, by the path that metadata has.
        write: writes a file unless it is there. Both are called by several threads, and for other
            processes they are pickled.
        paths: where each file goes.
        location: of the table at the target.
        known: manifests and manifest lists that an earlier run has rewritten, by source path.
        done: called for each manifest and manifest list, when it is written.
        workers: do the work.
    """

    read: Read
    write: Write
    paths: PathMap
    location: str
    known: Mapping[str, WrittenFile] = field(default_factory=dict)
    done: Callable[[FileKind, str, WrittenFile], None] = lambda _kind, _path, _file: None
    workers: Workers = field(default_factory=Threads)

    def rewrite(
        self, document: Mapping[str, Any], inventory: Inventory, *, compressed: bool = False
    ) -> RewrittenTable:
        """Rewrite a table.

        Args:
            inventory: of this document, without problems.
            compressed: whether the new metadata file is, as the old one was.

        Raises:
            CorruptionError: a file is damaged.
            UnsupportedError: a live file has no place at the target.
        """
        run = _Run(self, {normal_path(path): file for path, file in self.known.items()})
        deletes = run.deletes(inventory)
        run.rewrite(FileKind.MANIFEST, _ManifestTask(run.files_of, deletes), inventory)
        run.rewrite(FileKind.MANIFEST_LIST, _ManifestListTask(run.files_of, run.files), inventory)
        rewritten = rewrite_metadata(document, self.location.rstrip("/"), self.paths, run.files)
        name, content = encode_metadata(rewritten.document, compressed=compressed)
        metadata = WrittenFile(f"{self.location.rstrip('/')}/metadata/{name}", len(content))
        self.write(metadata.path, content)
        return RewrittenTable(metadata, rewritten.document, run.files, run.counts, rewritten.notes)


class _Run:
    """One run of a rewriter: what it has written so far."""

    def __init__(self, rewriter: Rewriter, known: Mapping[str, WrittenFile]) -> None:
        self._rewriter = rewriter
        self._known = known
        self.files_of = _Files(
            rewriter.read, rewriter.write, rewriter.paths, rewriter.location.rstrip("/")
        )
        self.files: dict[str, WrittenFile] = {}
        self.counts: Counter[FileKind] = Counter()

    def deletes(self, inventory: Inventory) -> dict[str, TargetDeletes]:
        """Rewrite the deletes that manifests name which are not rewritten yet."""
        live = {normal_path(file.path): file for file in inventory.files if file.kind in _DELETES}
        needed = {
            path: live[path]
            for manifest, paths in inventory.deletes.items()
            if manifest not in self._known
            for path in paths
            if path in live
        }
        targets = {}
        files = list(needed.values())
        results = self._rewriter.workers.results(_DeletesTask(self.files_of), files)
        for file, target in zip(files, results, strict=True):
            path = normal_path(file.path)
            targets[path], self.files[path] = target, target.file
            self.counts[file.kind] += 1
        return targets

    def rewrite(
        self, kind: FileKind, task: Callable[[TableFile], WrittenFile], inventory: Inventory
    ) -> None:
        """Rewrite the manifests or manifest lists that are not rewritten yet."""
        unknown = []
        for file in inventory.files:
            path = normal_path(file.path)
            if file.kind == kind and path in self._known:
                self.files[path] = self._known[path]
            elif file.kind == kind:
                unknown.append(file)
        results = self._rewriter.workers.results(task, unknown)
        for file, written in zip(unknown, results, strict=True):
            self.files[normal_path(file.path)] = written
            self.counts[kind] += 1
            self._rewriter.done(kind, file.path, written)


@dataclass(frozen=True)
class _Files:
    """Reads files of the source, writes files of the target."""

    read: Read
    write: Write
    paths: PathMap
    location: str

    def store(self, file: TableFile, directory: str, ending: str, content: bytes) -> WrittenFile:
        # The source's path, too: files with the same content stay as many as they were.
        digest = hashlib.sha256(normal_path(file.path).encode() + b"\0" + content).hexdigest()[:20]
        path = f"{self.location}/{directory}/moved-{digest}-{ending}"
        self.write(path, content)
        return WrittenFile(path, len(content))

    def target_or_same(self, path: str) -> str:
        """Map a data file that deletes name; one that has no place at the target is not live."""
        return self.paths.target(path) or path


@dataclass(frozen=True)
class _DeletesTask:
    files: _Files

    def __call__(self, file: TableFile) -> TargetDeletes:
        content, target = self.files.read(file.path), self.files.target_or_same
        file_format = file.format or ""
        ending = f"deletes.{file_format.lower()}"
        if file.kind == FileKind.DELETION_VECTORS:
            vectors = rewrite_deletion_vectors(content, file.path, target)
            return TargetDeletes(self.files.store(file, "data", ending, vectors))
        rewritten = rewrite_position_deletes(content, file.path, file_format, target)
        written = self.files.store(file, "data", ending, rewritten.content)
        return TargetDeletes(written, replace(rewritten, content=b""))


@dataclass(frozen=True)
class _ManifestTask:
    files: _Files
    deletes: Mapping[str, TargetDeletes]

    def __call__(self, file: TableFile) -> WrittenFile:
        content = self.files.read(file.path)
        manifest = rewrite_manifest(content, file.path, self.files.paths, self.deletes)
        return self.files.store(file, "metadata", "manifest.avro", manifest)


@dataclass(frozen=True)
class _ManifestListTask:
    files: _Files
    manifests: Mapping[str, WrittenFile]
    seen: SeenRecords = field(default_factory=SeenRecords)

    def __call__(self, file: TableFile) -> WrittenFile:
        content = self.files.read(file.path)
        manifest_list = rewrite_manifest_list(content, file.path, self.manifests, self.seen)
        return self.files.store(file, "metadata", "manifest-list.avro", manifest_list)
