"""The root: a small file that says what an index covers and which shards it is made of.

It never changes, as all files of an index. A change writes a new root, and the table's next commit
names it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from typing import Any

from pyiceberg.io import FileIO

from neve.errors import CorruptionError, NotFoundError, StorageError, UnsupportedError
from neve.index.cache import BucketCache
from neve.index.entries import Entries, SequenceType, no_entries
from neve.index.files import add_checked, opened, read_checked
from neve.index.hashing import KeyHasher
from neve.index.shard import ShardRef
from neve.lake.paths import local_path
from neve.lake.puffin import PuffinWriter
from neve.lake.range_reads import read_whole

ROOT_BLOB = "neve-index-root-v1"
FILES_BLOB = "neve-index-files-v1"
# 2: another hash of keys that are not one integer. 3: blocks that are one range of a shard.
_VERSION = 3


@dataclass(frozen=True)
class KeyColumn:
    """A column of the key. The id stays when the column is renamed."""

    name: str
    field_id: int
    is_uuid: bool = False


@dataclass(frozen=True, kw_only=True)
class Root:
    """What an index covers, and its shards, the oldest first."""

    table_uuid: str
    snapshot_id: int
    key_columns: tuple[KeyColumn, ...]
    sequence_columns: tuple[str, ...]
    sequence_type: SequenceType
    has_second_hash: bool
    """Whether keys have a second hash."""
    bits: int
    """Top bits of the hash by which work is cut into buckets."""
    seed: int = 0
    files: tuple[str, ...] = ()
    """Data files by ordinal; appended to, until entries that name them are written anew."""
    base_files: int | None = None
    """So many of them the oldest generation may name; None: all, an older version wrote this."""
    removed_files: frozenset[int] = frozenset()
    """Ordinals of files that are no longer in the table; their entries do not count."""
    shards: tuple[ShardRef, ...] = ()
    tombstones_snapshot_id: int | None = None
    """Of the table of tombstones; None: there was none."""
    retention_seconds: float | None = None
    """Tombstones that were older than this when they were read are not here; None: all are."""

    @property
    def hasher(self) -> KeyHasher:
        """Hashes keys as this index has them."""
        return KeyHasher(self.seed, tuple(column.is_uuid for column in self.key_columns))

    @property
    def no_entries(self) -> Entries:
        return no_entries(self.sequence_type, has_second_hash=self.has_second_hash)

    @property
    def next_generation(self) -> int:
        return max((shard.generation for shard in self.shards), default=0) + 1

    @property
    def rows(self) -> int:
        """Entries in all shards, hidden ones counted, too."""
        return sum(shard.rows for shard in self.shards)

    @property
    def size(self) -> int:
        return sum(shard.size for shard in self.shards)

    def generations(self) -> list[list[ShardRef]]:
        """Return the shards of each generation, which share no key, the oldest first."""
        by_generation: dict[int, list[ShardRef]] = {}
        for shard in sorted(self.shards, key=lambda shard: shard.generation):
            by_generation.setdefault(shard.generation, []).append(shard)
        return list(by_generation.values())

    def with_files(self, paths: Iterable[str]) -> tuple[Root, dict[str, int]]:
        """Return a root that knows these data files, too, and the ordinal of each of them."""
        known = {
            path: number
            for number, path in enumerate(self.files)
            if number not in self.removed_files
        }
        added = [path for path in dict.fromkeys(paths) if path not in known]
        known.update((path, len(self.files) + number) for number, path in enumerate(added))
        return replace(self, files=(*self.files, *added)), known

    def without_files(self, paths: Iterable[str]) -> Root:
        """Return a root for which these data files have left the table."""
        leaving = set(paths)
        numbers = (number for number, path in enumerate(self.files) if path in leaving)
        return replace(self, removed_files=self.removed_files | frozenset(numbers))

    def with_shards(self, shards: Sequence[ShardRef], snapshot_id: int | None = None) -> Root:
        """Return a root with further shards, of another snapshot if one is given.

        Shards without entries are left out.
        """
        written = [shard for shard in shards if shard.rows]
        at = self.snapshot_id if snapshot_id is None else snapshot_id
        is_base = bool(written) and not self.shards
        return replace(
            self,
            shards=(*self.shards, *written),
            snapshot_id=at,
            base_files=len(self.files) if is_base else self.base_files,
        )

    def to_json(self) -> str:
        """Return the root as JSON without the paths of data files, which tasks do not need."""
        fields = asdict(self)
        fields["version"] = _VERSION
        fields["removed_files"] = sorted(self.removed_files)
        fields["sequence_type"] = self.sequence_type.value
        fields["files"] = []
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Root:
        """Read what `to_json` wrote. Raises CorruptionError."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("version") != _VERSION:
                raise CorruptionError("an index root is of another version of Neve")
            return cls(
                **{
                    **fields,
                    "key_columns": tuple(KeyColumn(**column) for column in fields["key_columns"]),
                    "sequence_columns": tuple(fields["sequence_columns"]),
                    "sequence_type": SequenceType(fields["sequence_type"]),
                    "files": tuple(fields["files"]),
                    "removed_files": frozenset(fields["removed_files"]),
                    "shards": tuple(ShardRef(**shard) for shard in fields["shards"]),
                }
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(f"an index root cannot be read: {error}") from error


def index_location(table_location: str, table_uuid: str) -> str:
    """Return where a table's index lies: beside the table, where its orphan removal never looks."""
    return f"{table_location.rstrip('/')}__index/{table_uuid}"


def new_path(location: str, kind: str) -> str:
    """Return a path that no other file of an index has; `kind` is "root" or "shard"."""
    return f"{location}/{kind}-{uuid.uuid4()}.puffin"


def write_root(io: FileIO, path: str, root: Root) -> tuple[int, int]:
    """Write a root as a new file; return the bytes of the file, and of its footer."""
    field_ids = [column.field_id for column in root.key_columns]
    payloads = {ROOT_BLOB: root.to_json(), FILES_BLOB: "\n".join(root.files)}
    with io.new_output(path).create(overwrite=False) as stream:
        writer = PuffinWriter(stream)
        for kind, payload in payloads.items():
            add_checked(writer, kind, payload, fields=field_ids, snapshot_id=root.snapshot_id)
        footer = writer.finish()
    if local_path(path) is None:
        _roots.get(path, lambda: (root, 1))
    _shard_paths.get(path, lambda: (_paths_of(root), 1))
    return writer.size, footer.size


def read_root(io: FileIO, path: str) -> Root:
    """Read a root.

    Raises:
        CorruptionError: it is missing, or not what was written.
    """
    if local_path(path) is not None:
        return _read_root(io, path)
    root: Root = _roots.get(path, lambda: (_read_root(io, path), 1))
    return root


def read_shard_paths(io: FileIO, path: str) -> frozenset[str]:
    """Return the paths of the shards that a root names.

    Raises:
        CorruptionError: the root is missing, or not what was written.
    """

    def load() -> tuple[frozenset[str], int]:
        return _paths_of(_read_root(io, path)), 1

    paths: frozenset[str] = _shard_paths.get(path, load)
    return paths


def _paths_of(root: Root) -> frozenset[str]:
    return frozenset(shard.path for shard in root.shards)


# Of roots that this process has written, or was asked for: roots never change. Each counts as one.
_shard_paths = BucketCache(16 * 1024)
# Of object stores: roots never change, and the next merge begins with the one that this one wrote.
_roots = BucketCache(8)


def _read_root(io: FileIO, path: str) -> Root:
    try:
        with _opened(io, path) as (stream, size):
            body, names = read_checked(stream, size, path, ROOT_BLOB, FILES_BLOB)
    except UnsupportedError as error:
        # Not of a kind that this module writes.
        raise CorruptionError(f"index root {path} cannot be read: {error}") from error
    except OSError as error:
        raise StorageError(f"index root {path} cannot be read: {error}", retryable=True) from error
    return replace(Root.from_json(body), files=tuple(names.split("\n") if names else ()))


@contextmanager
def _opened(io: FileIO, path: str) -> Iterator[tuple[Any, int]]:
    if local_path(path) is not None:
        with opened(io, path) as stream_and_size:
            yield stream_and_size
        return
    try:
        data = read_whole(io.properties, path)
    except NotFoundError as error:
        raise CorruptionError(
            f"index file {path} is missing", hint="the index is rebuilt from the table"
        ) from error
    yield BytesIO(data), len(data)
