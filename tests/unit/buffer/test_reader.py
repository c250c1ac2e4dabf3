"""A consumer reads what is whole, up to the damage."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from neve.buffer.disk import DiskStore
from neve.buffer.payload import Codec
from neve.buffer.reader import BufferReader
from neve.errors import CorruptionError
from tests.support.requests import buffered


def test_what_stands_before_a_payload_that_cannot_be_unpacked_is_read(tmp_path):
    store = DiskStore(tmp_path)
    log = store.begin("logs")
    damaged = replace(buffered(b"second"), payload=b"no gzip", codec=Codec.GZIP)
    # In one group: the frame is whole, and its checksum is right.
    log.commit([buffered(b"first"), damaged, buffered(b"third")])
    log.close()
    reader = BufferReader(store, dedup_seconds=300)
    [segment, *_] = reader.segments(log.stream)
    batches = reader.read(segment)
    assert next(batches)["payload"].to_pylist() == [b"first"]
    with pytest.raises(CorruptionError, match="cannot be unpacked"):
        next(batches)


@pytest.fixture
def one_segment(tmp_path):
    """Return a reader, a segment of nine frames of two requests, and its file."""
    store = DiskStore(tmp_path)
    log = store.begin("logs")
    for number in range(9):
        log.commit([buffered(b"%d %d" % (number, one)) for one in range(2)])
    log.close()
    reader = BufferReader(store, dedup_seconds=300)
    [segment, *_] = reader.segments(log.stream)
    return reader, segment, tmp_path / segment.path


def parts_of(segment, count):
    bounds = [segment.bytes * number // count for number in range(count + 1)]
    return [replace(segment, start=start, end=end) for start, end in pairwise(bounds)]


def requests_in(reader, part):
    return [
        row
        for batch in reader.read(part)
        for row in zip(batch["position"].to_pylist(), batch["payload"].to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_parts_have_each_request_once_with_its_position_in_the_segment(one_segment, count):
    reader, segment, _ = one_segment
    found = [row for part in parts_of(segment, count) for row in requests_in(reader, part)]
    assert found == [(n, b"%d %d" % divmod(n, 2)) for n in range(18)]


@pytest.mark.parametrize("damage", ["payload", "head", "length"])
def test_of_parts_of_a_damaged_segment_one_reports_it_and_none_reads_behind_it(one_segment, damage):
    reader, segment, path = one_segment
    data = bytearray(path.read_bytes())
    place = {"payload": data.index(b"4 1"), "head": data.index(b"4 0") - 100, "length": 0}[damage]
    data[place] ^= 255
    path.write_bytes(data[:-1] if damage == "length" else data)
    found, reports = [], 0
    for part in parts_of(segment, 5):
        try:
            found += requests_in(reader, part)
        except CorruptionError:
            reports += 1
            with suppress(CorruptionError):
                for batch in reader.read(part):
                    found += zip(
                        batch["position"].to_pylist(), batch["payload"].to_pylist(), strict=True
                    )
    assert reports == 1
    readable = 0 if damage == "length" else 8
    assert found == [(n, b"%d %d" % divmod(n, 2)) for n in range(readable)]
