"""Hashes of keys: equal for equal values, different for all others."""

import random
from datetime import date, datetime, timezone
from decimal import Decimal
from uuid import UUID

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from neve.errors import UnsupportedError, UsageError
from neve.index import compute_pk_hash, splitmix64
from neve.index.hashing import KeyHasher


def pairs(hashes):
    return list(zip(hashes.first.tolist(), hashes.second.tolist(), strict=True))


def hashed(values, kind=None, **options):
    return pairs(compute_pk_hash([pa.array(values, kind)], **options))


def test_splitmix64_is_the_published_function():
    # The first outputs of Vigna's splitmix64.c for the seed 1234567.
    state = [(1234567 + step * 0x9E3779B97F4A7C15) % 2**64 for step in range(3)]
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [splitmix64(one) for one in state] == expected
    assert splitmix64(np.array(state, np.uint64)).tolist() == expected


def test_splitmix64_of_negative_numbers():
    values = [-1, -(2**63), 2**63 - 1, 0]
    assert splitmix64(np.array(values)).tolist() == [splitmix64(one) for one in values]


def test_a_single_integer_is_a_bijection():
    keys = np.arange(-50_000, 50_000)
    hashes = compute_pk_hash([pa.array(keys)])
    assert hashes.second is None
    assert len(np.unique(hashes.first)) == len(keys)


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()]
)
def test_the_width_of_an_integer_does_not_matter(kind):
    hashes = compute_pk_hash([pa.array([0, 1, 100], kind)])
    assert hashes.first.tolist() == [splitmix64(0), splitmix64(1), splitmix64(100)]


def test_times_are_integers():
    moment = datetime(2026, 1, 2, tzinfo=timezone.utc)
    micros = int(moment.timestamp() * 1_000_000)
    for unit in ("s", "ms", "us"):
        hashes = compute_pk_hash([pa.array([moment], pa.timestamp(unit, "UTC"))])
        assert (hashes.first.tolist(), hashes.second) == ([splitmix64(micros)], None)
    days = (date(2026, 1, 2) - date(1970, 1, 1)).days
    for kind in (pa.date32(), pa.date64()):
        assert compute_pk_hash([pa.array([date(2026, 1, 2)], kind)]).first[0] == splitmix64(days)
    assert compute_pk_hash([pa.array([5], pa.time64("us"))]).first[0] == splitmix64(5)


def test_null_in_a_single_integer_key_is_refused():
    with pytest.raises(UsageError, match="NULL"):
        compute_pk_hash([pa.array([1, None])])


def test_no_or_nested_columns_are_refused():
    with pytest.raises(UsageError, match="at least one"):
        compute_pk_hash([])
    with pytest.raises(UnsupportedError, match="list"):
        compute_pk_hash([pa.array([[1]])])


def test_strings_of_any_length_are_hashed_alone_as_beside_others():
    values = ["x" * length for length in range(700)] + ["é", "", "\0", "\0\0", "x" * 100_000]
    together = hashed(values)
    assert len(set(together)) == len(set(values))
    assert len({first for first, _ in together}) == len({second for _, second in together})
    assert together == [hashed([one])[0] for one in values]
    assert together == hashed(values * 3)[: len(values)]
    assert together == hashed(values, pa.large_string())
    assert together == hashed([one.encode() for one in values], pa.binary())
    assert together == hashed(values, pa.string_view())


def test_zero_bytes_at_the_end_count():
    assert len(set(hashed([b"a" + bytes(count) for count in range(40)]))) == 40


def test_slices_chunks_and_dictionaries_hash_as_their_values():
    values = [f"key-{number}" * (number % 5) for number in range(100)]
    whole = hashed(values)
    array = pa.array(values)
    assert pairs(compute_pk_hash([array.slice(30, 50)])) == whole[30:80]
    chunked = pa.chunked_array([array.slice(0, 7), array.slice(7, 0), array.slice(7)])
    assert pairs(compute_pk_hash([chunked])) == whole
    assert pairs(compute_pk_hash([array.dictionary_encode()])) == whole
    assert pairs(compute_pk_hash([pa.chunked_array([], pa.string())])) == []


def test_fixed_size_binary_and_uuids():
    raw = [bytes([number] * 16) for number in range(5)]
    assert hashed(raw, pa.binary(16)) == hashed(raw, pa.binary())
    extension = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(raw, pa.binary(16)))
    assert pairs(compute_pk_hash([extension])) == hashed(raw, pa.binary())


def test_uuids_hash_alike_as_text_and_as_bytes():
    values = [UUID(int=number << 64 | 7) for number in range(5)]
    text = pa.array([str(value) for value in values])
    raw = pa.array([value.bytes for value in values], pa.binary(16))
    other = pa.array(range(5))
    of_key, of_two = KeyHasher(3, (True,)), KeyHasher(3, (False, True))
    assert pairs(of_key([text])) == pairs(of_key([raw])) == hashed(raw, seed=3)
    assert pairs(of_key([pc.utf8_upper(text)])) == pairs(of_key([pa.chunked_array([text])]))
    assert pairs(of_two([other, text])) == pairs(of_two([other, raw.cast(pa.uuid())]))
    for wrong in ("", "no uuid", "0" * 31 + "g"):
        with pytest.raises(UsageError, match="no uuid"):
            of_key([pa.array([str(values[0]), wrong])])


def test_decimals_keep_their_hash_when_precision_grows():
    values = [Decimal("1.25"), Decimal("-1.25"), Decimal("0.00"), Decimal("12345.67")]
    narrow = hashed(values, pa.decimal128(7, 2))
    assert len(set(narrow)) == 4
    assert narrow == hashed(values, pa.decimal128(38, 2)) == hashed(values, pa.decimal256(60, 2))
    assert (
        pairs(compute_pk_hash([pa.array(values, pa.decimal128(7, 2)).slice(1, 2)])) == narrow[1:3]
    )


def test_floats():
    zero, minus_zero, nan, other_nan, one = hashed(
        np.array([0, 1 << 63, 0x7FF8 << 48, (0x7FF8 << 48) + 5, 0x3FF0 << 48], np.uint64).view(
            np.float64
        )
    )
    assert zero == minus_zero
    assert nan == other_nan
    assert len({zero, nan, one}) == 3
    assert hashed([1.5], pa.float32()) == hashed([1.5], pa.float64())


def test_the_place_of_null_counts():
    left = pa.array([None, 1, None, 0, 1])
    right = pa.array([1, None, None, 1, 0])
    assert len(set(pairs(compute_pk_hash([left, right])))) == 5


def test_null_is_not_zero_nor_empty():
    for values, kind in (([None, 0], pa.int64()), ([None, ""], pa.string()), ([None, 0.0], None)):
        column = pa.array(values, kind)
        assert len(set(pairs(compute_pk_hash([column, column])))) == 2
    assert len(set(hashed([None, ""], pa.string()))) == 2
    assert len(set(hashed([None, False, True]))) == 3


def test_borders_between_columns_count():
    left, right = pa.array(["ab", "a", ""]), pa.array(["c", "bc", "abc"])
    assert len(set(pairs(compute_pk_hash([left, right])))) == 3
    swapped = pairs(compute_pk_hash([right, left]))
    assert set(swapped).isdisjoint(pairs(compute_pk_hash([left, right])))


def test_composites_of_integers_have_two_hashes_and_no_width():
    narrow = compute_pk_hash([pa.array([1, 2], pa.int8()), pa.array([3, 4], pa.int32())])
    wide = compute_pk_hash([pa.array([1, 2]), pa.array([3, 4])])
    assert pairs(narrow) == pairs(wide)


def test_the_seed_changes_both_hashes():
    (plain,), (seeded,) = hashed(["a"]), hashed(["a"], seed=1)
    assert plain[0] != seeded[0]
    assert plain[1] != seeded[1]


def test_the_hash_of_bytes_is_murmurhash3():
    """Against the C implementation that PyIceberg brings, in chunks of equal and other lengths."""
    rng = random.Random(5)
    equal = [rng.randbytes(36) for _ in range(9000)]
    other = [rng.randbytes(length) for length in range(513)] + [b"", b"\0", bytes(16)]
    for values in (equal, other):
        expected = [mmh3.hash64(one, x64arch=True, signed=False) for one in values]
        assert hashed(values) == expected


def test_seeded_hashes_stay_what_they_were():
    # Stored indexes depend on them.
    assert hashed(["a", "0123456789abcdef0123456789abcdef0123", "x" * 600], seed=7) == [
        (13487686619568129129, 11173799119273159442),
        (3027779839835495798, 18400384666113951419),
        (7200664099027368171, 4103691772543796880),
    ]


def words_of_16_bytes(count):
    """Two big-endian words, of which either counts up."""
    numbers = np.arange(count)
    words = np.stack([numbers // 300, numbers % 300], axis=1).astype(">u8")
    return pa.array([bytes(row) for row in words])


COUNT = 60_000
STRUCTURED = {
    "cust0001ordr0001": [pa.array([f"cust{n // 250:04d}ordr{n % 250:04d}" for n in range(COUNT)])],
    "two numbers": [pa.array([f"{n // 250:08d}{n % 250:08d}" for n in range(COUNT)])],
    "a date and a number": [pa.array([f"202401{n % 28:02d}-{n // 28:07d}" for n in range(COUNT)])],
    "binary": [words_of_16_bytes(COUNT)],
    "binary of 24 bytes": [pa.array([bytes(8) + one.as_py() for one in words_of_16_bytes(COUNT)])],
    "decimals": [
        pa.array(
            [Decimal((n // 250 << 64) + (n % 250 << 56)) for n in range(COUNT)], pa.decimal128(38)
        )
    ],
    "columns": [
        pa.array([n // 250 << 48 for n in range(COUNT)]),
        pa.array([f"{n % 250:08d}" for n in range(COUNT)]),
    ],
}
# Of few bits and of many, and those next to each other; the others are drawn.
SEEDS = [0, 1, 2, 1 << 32, 1 << 62, (1 << 63) - 1, *(splitmix64(n) >> 1 for n in range(6))]


@pytest.mark.parametrize("keys", STRUCTURED.values(), ids=STRUCTURED)
def test_keys_of_several_words_do_not_collide(keys):
    """Not even in half of their bits: at random that happens once in a billion such keys."""
    for seed in SEEDS:
        for half in compute_pk_hash(keys, seed):
            assert len(np.unique(half)) == COUNT, seed


@pytest.mark.parametrize("seed", [0, 3])
def test_both_hashes_spread(seed):
    """Keys that differ in few bits: no collision, and each bit of a hash is set half the time."""
    keys = pa.array([f"{number:036d}" for number in range(200_000)])
    for hashes in compute_pk_hash([keys], seed):
        assert len(np.unique(hashes)) == len(keys)
        for bit in range(64):
            share = ((hashes >> np.uint64(bit)) & np.uint64(1)).mean()
            assert 0.49 < share < 0.51
    first, second = compute_pk_hash([keys], seed)
    assert abs(np.corrcoef(first.astype(float), second.astype(float))[0, 1]) < 0.01
