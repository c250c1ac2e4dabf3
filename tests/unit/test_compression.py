"""What the receiver unpacks, consolidation unpacks alike."""

import gzip
import random
import struct
import zlib

import pytest
from isal import igzip_lib

from neve.buffer.payload import Codec, unpack
from neve.compression import CompressionError, gunzip, gunzip_small
from neve.errors import CorruptionError

SEED = 20261116
BODY = bytes(range(256)) * 20


def accepted(body):
    try:
        return b"".join(gunzip(body))
    except CompressionError:
        return None


def member(deflated: bytes, data: bytes, flags: int = 0) -> bytes:
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)
    return head + deflated + struct.pack("<II", zlib.crc32(data), len(data))


@pytest.mark.parametrize("flags", [0x20, 0x40, 0x80, 0xE0])
def test_flags_that_are_reserved(flags):
    squeeze = zlib.compressobj(wbits=-15)
    body = member(squeeze.compress(BODY) + squeeze.flush(), BODY, flags)
    raw = accepted(body)
    assert raw in (None, BODY)
    if raw is not None:
        assert unpack(body, Codec.GZIP, len(raw)) == raw


def test_whatever_is_accepted_can_be_read_back():
    rng = random.Random(SEED)
    squeeze = zlib.compressobj(wbits=-15)
    deflated = squeeze.compress(BODY) + squeeze.flush()
    accepted_bodies = 0
    for _ in range(20_000):
        changed = bytearray(deflated)
        changed[rng.randrange(min(60, len(changed)))] ^= 1 << rng.randrange(8)
        # With the checksum of what the receiver's reader makes of it, which zlib may refuse.
        try:
            data = igzip_lib.decompress(bytes(changed), flag=igzip_lib.DECOMP_DEFLATE)
        except (igzip_lib.error, EOFError):
            data = BODY
        body = member(bytes(changed), data)
        raw = accepted(body)
        small = gunzip_small(body, 1 << 20)
        assert small is None or small == raw
        if raw is not None:
            accepted_bodies += 1
            assert unpack(body, Codec.GZIP, len(raw)) == raw
    assert accepted_bodies > 100


def test_what_an_earlier_version_accepted_is_read_with_its_reader():
    # More members than the receiver takes now.
    body = gzip.compress(b"") * 10_001 + gzip.compress(BODY)
    assert accepted(body) is None
    assert unpack(body, Codec.GZIP, len(BODY)) == BODY


def test_damage_is_damage_and_a_longer_body_is_noticed():
    body = gzip.compress(BODY)
    with pytest.raises(CorruptionError, match="cannot be unpacked"):
        unpack(body[:-3], Codec.GZIP, len(BODY))
    with pytest.raises(CorruptionError, match="instead of"):
        unpack(body, Codec.GZIP, len(BODY) - 1)
