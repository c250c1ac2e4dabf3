"""Bodies are unpacked whole, or refused before they cost anything."""

import gzip
import tracemalloc
import zlib

import pyarrow as pa
import pytest

from neve.errors import Code, MalformedError, NeveError, TooLargeError, UnsupportedError
from neve.otlp.encoding import unpack

BODY = b"telemetry " * 1000


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


COMPRESSORS = {"gzip": gzip.compress, "zstd": zstd}


@pytest.mark.parametrize("name", ["", "identity", "none", "Identity"])
def test_identity_is_returned_as_it_is(name):
    assert unpack(BODY, name, len(BODY)) is BODY


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressed_bodies_are_unpacked(name):
    packed = COMPRESSORS[name](BODY)
    assert unpack(packed, name, len(BODY)) == BODY
    assert unpack(packed, f" {name.upper()} ", len(BODY)) == BODY


@pytest.mark.parametrize("name", COMPRESSORS)
def test_every_member_counts_also_after_an_empty_one(name):
    compress = COMPRESSORS[name]
    packed = compress(b"a") + compress(b"") * 3 + compress(BODY)
    assert unpack(packed, name, 1 << 20) == b"a" + BODY


@pytest.mark.parametrize("name", COMPRESSORS)
def test_bodies_longer_than_one_step_are_joined(name):
    long = bytes(range(256)) * 20_000
    assert unpack(COMPRESSORS[name](long), name, len(long)) == long


@pytest.mark.parametrize("name", ["identity", *COMPRESSORS])
def test_the_limit_is_of_the_unpacked_body_and_exact(name):
    packed = COMPRESSORS.get(name, bytes)(BODY)
    assert unpack(packed, name, len(BODY)) == BODY
    with pytest.raises(TooLargeError) as failure:
        unpack(packed, name, len(BODY) - 1)
    assert failure.value.code is Code.TOO_LARGE


def test_a_bomb_costs_no_more_than_the_limit():
    squeeze = zlib.compressobj(9, wbits=31)
    bomb = b"".join(squeeze.compress(bytes(1 << 24)) for _ in range(16)) + squeeze.flush()
    pool = pa.default_memory_pool()
    arrow_before = pool.bytes_allocated()
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            unpack(bomb, "gzip", 1 << 21)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert pool.bytes_allocated() == arrow_before


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: packed[:-3],
        lambda packed: packed[: len(packed) // 2],
        lambda packed: packed + b"trailing",
        lambda _: b"not compressed",
        lambda _: b"",
    ],
    ids=["cut", "half", "trailing", "plain", "empty"],
)
def test_damaged_bodies_are_malformed(name, damage):
    with pytest.raises(MalformedError) as failure:
        unpack(damage(COMPRESSORS[name](BODY)), name, 1 << 20)
    assert isinstance(failure.value, NeveError)


@pytest.mark.parametrize("name", ["br", "deflate", "gzip, gzip", "snappy"])
def test_other_encodings_are_unsupported(name):
    with pytest.raises(UnsupportedError, match="not supported"):
        unpack(BODY, name, 1 << 20)
