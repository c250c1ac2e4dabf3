"""A consumer reads what is whole, up to the damage."""

from dataclasses import replace

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
