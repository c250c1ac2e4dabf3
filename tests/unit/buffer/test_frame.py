from __future__ import annotations

import gzip
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.buffer.frame import (
    EMPTY_SEGMENT_BYTES,
    PREAMBLE_BYTES,
    frame_parts,
    heads_only,
    is_closing,
    preamble,
    read_frames,
    read_heads,
    read_sender_names,
    whole_bytes,
)
from neve.buffer.payload import Codec, pack, unpack
from neve.errors import CorruptionError
from tests.support.requests import buffered

SALT = b"saltsalt"


def segment(*groups: list[bytes]) -> bytes:
    frames = [b"".join(frame_parts([buffered(c) for c in group], SALT)) for group in groups]
    return preamble(SALT) + b"".join(frames)


def contents(data: bytes) -> list[bytes]:
    found = []
    for head, payloads in read_frames(data):
        offset = 0
        for entry in head.entries:
            stored = payloads[offset : offset + entry.stored_bytes]
            found.append(unpack(stored, entry.codec, entry.raw_bytes))
            offset += entry.stored_bytes
    return found


@given(st.lists(st.lists(st.binary(max_size=2000), min_size=1, max_size=5), max_size=5))
def test_what_was_written_is_read(groups):
    assert contents(segment(*groups)) == [content for group in groups for content in group]


def test_heads_are_read_without_payloads():
    data = segment([b"x" * 300, b"y" * 300], [b"z" * 300])
    reads = []

    def read(start, length):
        reads.append((start, length))
        return data[start : start + length]

    heads = list(read_heads(read, len(data)))
    assert [len(head.entries) for head in heads] == [2, 1]
    assert heads[-1].end == len(data)


def test_an_index_longer_than_one_read():
    data = segment([b"%d" % n for n in range(1000)])
    assert len(contents(data)) == 1000


@given(st.integers(min_value=0))
def test_every_cut_leaves_the_whole_frames_before_it(cut):
    first = segment([b"one"], [b"two"])
    data = first + segment([b"three" * 50])[PREAMBLE_BYTES:]
    cut = len(first) + cut % (len(data) - len(first))
    assert whole_bytes(data[:cut]) == len(first)


def test_a_cut_first_frame_leaves_nothing():
    data = segment([b"one"])
    assert [whole_bytes(data[:cut]) for cut in (0, 3, PREAMBLE_BYTES, len(data) - 1)] == [0] * 4


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_a_flipped_bit_is_never_served(where, bit):
    data = bytearray(segment([b"one" * 30], [b"two" * 30]))
    data[where % len(data)] ^= 1 << bit
    with pytest.raises(CorruptionError):
        contents(bytes(data))


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_damage_before_a_whole_frame_is_not_taken_for_a_torn_tail(where, bit):
    data = bytearray(segment([b"one" * 30], [b"two" * 30]))
    damaged = len(segment([b"one" * 30]))
    data[where % damaged] ^= 1 << bit
    with pytest.raises(CorruptionError):
        whole_bytes(bytes(data))


def test_a_frame_inside_a_payload_is_not_taken_for_one():
    # Without the salt, a sender could make a torn tail look like damage.
    embedded = segment([b"inner"])[PREAMBLE_BYTES:].replace(SALT, b"guessed!")
    data = segment([b"one"], [embedded])
    first = len(segment([b"one"]))
    assert whole_bytes(data[:-1]) == first


def test_an_empty_segment_may_close():
    empty, closing = heads_only([], closing=False), heads_only([], closing=True)
    assert len(empty) == len(closing) == EMPTY_SEGMENT_BYTES
    assert (is_closing(empty), is_closing(closing)) == (False, True)
    assert contents(closing) == []


def test_payloads_of_each_codec():
    raw = b"a payload " * 100
    packed, codec = pack(raw)
    assert codec is Codec.ZSTD
    assert len(packed) < len(raw)
    assert unpack(packed, codec, len(raw)) == raw
    members = gzip.compress(raw[:300]) + gzip.compress(raw[300:])
    assert unpack(members, Codec.GZIP, len(raw)) == raw
    assert unpack(b"", Codec.IDENTITY, 0) == b""


def test_a_payload_of_another_length_is_damage():
    bomb = gzip.compress(bytes(100_000_000))
    with pytest.raises(CorruptionError):
        unpack(bomb, Codec.GZIP, 10)
    with pytest.raises(CorruptionError):
        unpack(b"not gzip", Codec.GZIP, 10)
    with pytest.raises(CorruptionError, match="codec 99"):
        unpack(b"of a later version", 99, 10)


def names(data: bytes) -> list[tuple[str | None, ...]]:
    return [read_sender_names(head, payloads) for head, payloads in read_frames(data)]


def frame_of_the_first_version(content: bytes) -> bytes:
    """Write a frame as the version before sender names did: three bytes of padding."""
    request = buffered(content)
    entry = struct.pack(
        "<q16s32sB3xIII",
        request.received_unix_nano,
        request.sender,
        request.content_hash,
        request.codec,
        request.records,
        request.raw_bytes,
        len(request.payload),
    )
    crc = zlib.crc32(request.payload)
    header = struct.pack("<8sB3xIQI", SALT, 0, 1, len(request.payload), crc)
    head_crc = struct.pack("<I", zlib.crc32(entry, zlib.crc32(header)))
    return header + head_crc + entry + request.payload


def test_each_request_keeps_the_name_of_its_sender():
    named = [
        buffered(b"1", sender_name="shop"),
        buffered(b"2"),
        buffered(b"3", sender_name="büro"),
        buffered(b"4", sender_name="shop"),
    ]
    frame = b"".join(frame_parts(named, SALT))
    data = preamble(SALT) + frame + b"".join(frame_parts([buffered(b"5")], SALT))
    assert names(data) == [("shop", None, "büro", "shop"), (None,)]
    assert contents(data) == [b"1", b"2", b"3", b"4", b"5"]
    assert frame.count(b"shop") == 1
    assert whole_bytes(data) == len(data)


def test_frames_without_names_are_those_of_the_first_version():
    old = frame_of_the_first_version(b"old")
    assert names(preamble(SALT) + old) == [(None,)]
    assert contents(preamble(SALT) + old) == [b"old"]
    received = next(read_heads(lambda a, n: (preamble(SALT) + old)[a : a + n], len(old) + 20))
    request = buffered(b"old", received_unix_nano=received.entries[0].received_unix_nano)
    assert b"".join(frame_parts([request], SALT)) == old


def test_retired_requests_keep_no_names():
    frame = b"".join(frame_parts([buffered(b"1", sender_name="shop")], SALT))
    [(head, _)] = read_frames(preamble(SALT) + frame)
    retired = heads_only(head.entries, closing=False)
    assert names(retired) == [(None,)]
    assert b"shop" not in retired


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_a_damaged_name_is_never_served(where, bit):
    head, *payloads = frame_parts([buffered(b"1", sender_name="shop")], SALT)
    data = bytearray(preamble(SALT) + head + b"".join(payloads))
    block = len(payloads[-1])
    data[len(data) - block + where % block] ^= 1 << bit
    with pytest.raises(CorruptionError):
        names(bytes(data))


def test_an_index_without_a_name_is_damage():
    [(head, payloads)] = read_frames(
        preamble(SALT) + b"".join(frame_parts([buffered(b"1", sender_name="shop")], SALT))
    )
    with pytest.raises(CorruptionError, match="sender names"):
        read_sender_names(head, payloads[:1])
