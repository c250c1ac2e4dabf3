"""Lists share the blocks that they have in common, and are given up with the blocks."""

from __future__ import annotations

import json

import pytest

from neve.errors import CorruptionError
from neve.lake.avro_blocks import block_bytes, read_blocks
from neve.lake.avro_files import AvroHeader
from neve.lake.shared_lists import SharedLists

SCHEMA = json.dumps("string").encode()


def list_file(*blocks: str, sync: bytes = b"s" * 16, schema: bytes = SCHEMA) -> bytes:
    """Return a list; each letter of a block stands for a line."""
    header = AvroHeader("string", {}, "deflate", sync, 0).encode(json.loads(schema), "deflate")
    coded = (block_bytes(len(each), each.encode(), "deflate", sync) for each in blocks)
    return header + b"".join(coded)


class Lists:
    """Files by their path, and the lines that were decoded."""

    def __init__(self, most: int = 1000, **files: bytes) -> None:
        self.files = files
        self.decoded: list[str] = []
        self.reads: list[str] = []
        self.shared = SharedLists(most, self._decode)

    def _decode(self, header, blocks):
        for _, letters in read_blocks(blocks, header.codec):
            for letter in letters.decode():
                self.decoded.append(letter)
                yield letter

    def _read(self, path):
        self.reads.append(path)
        return self.files[path]

    def blocks(self, path):
        return self.shared.get(path, self._read)

    def lines(self, path):
        return [line for block in self.blocks(path) for line in block.lines]


def test_a_block_is_decoded_once_whatever_sync_marker_its_file_has():
    lists = Lists(a=list_file("x", "abc"), b=list_file("yz", "abc", sync=b"t" * 16))
    assert lists.lines("a") == ["x", *"abc"]
    assert lists.lines("b") == ["y", "z", *"abc"]
    assert lists.decoded == [*"xabcyz"]
    assert lists.blocks("a")[1] is lists.blocks("b")[1]
    assert lists.reads == ["a", "b"]


def test_the_same_block_twice_in_a_list_stands_twice():
    lists = Lists(a=list_file("ab", "ab", "c"))
    assert lists.lines("a") == [*"ababc"]
    assert lists.decoded == [*"abc"]


def test_equal_bytes_under_another_schema_are_another_block():
    other = list_file("ab", schema=json.dumps({"type": "string", "doc": "other"}).encode())
    lists = Lists(a=list_file("ab"), b=other)
    assert lists.blocks("a")[0] is not lists.blocks("b")[0]


def test_lists_are_given_up_with_the_blocks_that_no_other_has():
    """A list counts one, and each of its lines one, unless another list has them already."""
    lists = Lists(8, a=list_file("a", "xyz"), b=list_file("b", "xyz"), c=list_file("cc"))
    for path in "abc":
        lists.lines(path)
    lists.reads.clear()
    lists.decoded.clear()
    assert lists.lines("b") == ["b", *"xyz"]
    assert (lists.reads, lists.decoded) == ([], [])
    assert lists.lines("a") == ["a", *"xyz"]
    assert (lists.reads, lists.decoded) == (["a"], ["a"])


def test_a_list_larger_than_all_that_is_kept_is_read_each_time():
    lists = Lists(2, a=list_file("abc"))
    assert lists.lines("a") == lists.lines("a") == [*"abc"]
    assert lists.reads == ["a", "a"]


@pytest.mark.parametrize("damage", [lambda file: file[:-1], lambda file: b"none", lambda _: b""])
def test_a_damaged_list_is_told_by_its_name(damage):
    lists = Lists(a=damage(list_file("abc")))
    with pytest.raises(CorruptionError, match="a is not a whole Avro file"):
        lists.lines("a")
