"""Manifest lists in memory: what lists have in common is decoded and kept once.

An append copies most blocks of its parent's list byte for byte (`manifest_lists.py`). So the lists
of a thousand snapshots have hardly more blocks than one of them, however many files a table has.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from neve.lake.avro_blocks import locate_blocks
from neve.lake.avro_files import AvroHeader, damage_named, read_header

T = TypeVar("T")
# Schema, codec and bytes of a block: all that says what is in it.
_Key = tuple[bytes, str, bytes]
Decode = Callable[[AvroHeader, bytes], Iterable[T]]


@dataclass(frozen=True, eq=False)
class ListBlock(Generic[T]):
    """Some lines of a manifest list. Lists with the same bytes have the same object."""

    lines: tuple[T, ...]
    key: _Key


class SharedLists(Generic[T]):
    """Lists by the file they were read from, the least recently used given up first.

    Args:
        most: lines that are kept; those of a block count once.
        decode: returns the lines of some blocks, given the header of their file.
    """

    def __init__(self, most: int, decode: Decode[T]) -> None:
        self._most = most
        self._decode = decode
        self._lock = threading.Lock()
        self._lists: OrderedDict[str, tuple[ListBlock[T], ...]] = OrderedDict()
        self._blocks: dict[_Key, ListBlock[T]] = {}
        # How many lists have a block.
        self._uses: Counter[_Key] = Counter()
        self._count = 0

    def get(self, path: str, read: Callable[[str], bytes]) -> tuple[ListBlock[T], ...]:
        """Return the blocks of a list.

        Raises:
            CorruptionError, UnsupportedError: the file cannot be decoded.
        """
        with self._lock:
            if path in self._lists:
                self._lists.move_to_end(path)
                return self._lists[path]
        content = read(path)
        # Whoever decodes a list that is like this one would do so a second time.
        with self._lock:
            if path in self._lists:
                return self._lists[path]
            blocks = self._read(content, path)
            self._keep(path, blocks)
        return blocks

    def clear(self) -> None:
        with self._lock:
            self._lists.clear()
            self._blocks.clear()
            self._uses.clear()
            self._count = 0

    def _read(self, content: bytes, path: str) -> tuple[ListBlock[T], ...]:
        header = read_header(content, path)
        with damage_named(path):
            located = list(_cut(content[header.length :], header))
            new = {key: count for key, count in located if key not in self._blocks}
            encoded = b"".join(block + header.sync for _, _, block in new)
            lines = iter(self._decode(header, encoded) if new else ())
            decoded = {
                key: ListBlock(tuple(islice(lines, count)), key) for key, count in new.items()
            }
            return tuple(decoded.get(key) or self._blocks[key] for key, _ in located)

    def _keep(self, path: str, blocks: tuple[ListBlock[T], ...]) -> None:
        self._lists[path] = blocks
        self._count += 1
        for block in blocks:
            if block.key not in self._blocks:
                self._blocks[block.key] = block
                self._count += len(block.lines)
            self._uses[block.key] += 1
        while self._count > self._most and self._lists:
            self._give_up(self._lists.popitem(last=False)[1])

    def _give_up(self, blocks: tuple[ListBlock[T], ...]) -> None:
        self._count -= 1
        for block in blocks:
            self._uses[block.key] -= 1
            if not self._uses[block.key]:
                del self._uses[block.key], self._blocks[block.key]
                self._count -= len(block.lines)


def _cut(blocks: bytes, header: AvroHeader) -> Iterator[tuple[_Key, int]]:
    """Yield each block without its sync marker, and how many lines it has."""
    schema = header.metadata["avro.schema"]
    for place in locate_blocks(blocks):
        block = blocks[place.start : place.end - len(header.sync)]
        yield (schema, header.codec, block), place.records
