"""An index in memory, which is saved as one Puffin file: the documented library."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from neve.index.entries import (
    ABSENT,
    TOMBSTONE,
    Entries,
    SequenceType,
    concat_entries,
    find_rows,
    make_entries,
    merge_entries,
    no_entries,
)
from neve.index.files import add_checked, opened, read_checked
from neve.index.hash_bucket import BucketView
from neve.index.hashing import PkHash
from neve.index.search import SearchResult, in_order
from neve.index.shard import ShardRef, bits_for, decode_directory, split_buckets, write_buckets
from neve.lake.puffin import PuffinWriter, read_range

CONTENTS_BLOB = "neve-index-contents-v2"


@dataclass(frozen=True)
class Location:
    """Where a key's row is; a deleted key has no file."""

    file: str | None
    position: int
    sequence: Any


class PuffinIndex:
    """From key hashes to (file, position, sequence). The last entry for a key counts.

    Entries are sorted when they are next searched, so many inserts cost one sort.
    """

    def __init__(
        self, sequence_type: SequenceType = SequenceType.INTEGER, *, has_second_hash: bool = False
    ) -> None:
        self.files: list[str] = []
        self._ordinals: dict[str, int] = {}
        self._generations: list[Entries] = [
            no_entries(sequence_type, has_second_hash=has_second_hash)
        ]

    def __len__(self) -> int:
        return len(self.entries())

    def insert(self, keys: PkHash, file: str, positions: Any, sequences: Any) -> None:
        """Record where the rows of these keys are in a data file."""
        ordinal = self._ordinals.setdefault(file, len(self.files))
        if ordinal == len(self.files):
            self.files.append(file)
        self._generations.append(make_entries(*keys, ordinal, positions, sequences))

    def delete(self, keys: PkHash, sequences: Any) -> None:
        """Record that these keys were deleted, and with which sequence."""
        self._generations.append(make_entries(*keys, TOMBSTONE, -1, sequences))

    def forget(self, keys: PkHash) -> None:
        """Remove these keys from the index, with what it knew of them."""
        kind = self._generations[0].sequence_type
        nothing: Any = 0 if kind is SequenceType.INTEGER else b""
        sequences = pa.array([nothing], kind.arrow).take(pa.array(np.zeros(len(keys.first), int)))
        self._generations.append(make_entries(*keys, ABSENT, -1, sequences))

    def get(self, first: int, second: int | None = None) -> Location | None:
        """Return where the row of a key is."""
        result = self.search_values(
            np.array([first], np.uint64), None if second is None else np.array([second], np.uint64)
        )
        if not result.has_entry[0]:
            return None
        ordinal = int(result.file[0])
        file = None if ordinal == TOMBSTONE else self.files[ordinal]
        return Location(file, int(result.position[0]), result.sequence[0].as_py())

    def search_values(self, first: Any, second: Any = None) -> SearchResult:
        """Return each key's newest entry; files are ordinals of `files`."""
        entries = self.entries()
        rows = find_rows(entries.first, entries.second, first, second)
        hit = np.flatnonzero(rows >= 0)
        hits = [entries.take(rows[hit])]
        return in_order(len(first), [hit], hits, frozenset(), entries.sequence_type)

    def entries(self) -> Entries:
        """Return each key's newest entry, sorted by hash, without keys that were forgotten."""
        if len(self._generations) > 1:
            self._generations = [merge_entries(self._generations, drop_absent=True)]
        return self._generations[0]

    def to_bytes(self) -> bytes:
        """Return the index as one Puffin file."""
        sink = pa.BufferOutputStream()
        self._write(sink)
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes) -> PuffinIndex:
        """Read what `to_bytes` returned. Raises CorruptionError."""
        return cls._read(pa.BufferReader(data), len(data), "(bytes)")

    def save(self, io: FileIO, path: str) -> None:
        """Write the index as a new file. Not atomic."""
        with io.new_output(path).create(overwrite=False) as stream:
            self._write(stream)

    @classmethod
    def load(cls, io: FileIO, path: str) -> PuffinIndex:
        """Read what `save` wrote. Raises CorruptionError."""
        with opened(io, path) as (stream, size):
            return cls._read(stream, size, path)

    def _write(self, stream: Any) -> None:
        entries = self.entries()
        writer = PuffinWriter(stream)
        bits = bits_for(len(entries))
        shard = write_buckets(writer, "", split_buckets(entries, bits), bits, 1)
        contents = {
            "files": self.files,
            "sequence_type": entries.sequence_type.value,
            "has_second_hash": entries.second is not None,
            "shard": asdict(shard),
        }
        add_checked(writer, CONTENTS_BLOB, json.dumps(contents))
        writer.finish()

    @classmethod
    def _read(cls, stream: Any, size: int, name: str) -> PuffinIndex:
        (payload,) = read_checked(stream, size, name, CONTENTS_BLOB)
        contents = json.loads(payload)
        shard = ShardRef(**{**contents["shard"], "path": name})
        directory = decode_directory(
            read_range(stream, shard.directory_offset, shard.directory_length, name), shard
        )
        index = cls(
            SequenceType(contents["sequence_type"]), has_second_hash=contents["has_second_hash"]
        )
        index.files = contents["files"]
        index._ordinals = {file: number for number, file in enumerate(index.files)}
        buckets = [
            BucketView(read_range(stream, ref.offset, ref.length, name), ref.layout, name)
            for _, ref in sorted(directory.items())
        ]
        if buckets:
            index._generations = [concat_entries([bucket.read_all() for bucket in buckets])]
        return index
