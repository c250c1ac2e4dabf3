"""Encoded sequences against Python's own order of tuples."""

from datetime import timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import UnsupportedError, UsageError
from neve.index.entries import SequenceType
from neve.index.sequences import decode_sequences, encode_sequences, sequence_type_of

texts = st.one_of(st.text(max_size=6), st.text(alphabet="\x00\x01a\uffff\U0001f600", max_size=4))
# How values of each type are made, and what orders them: texts by their UTF-8.
KINDS = {
    pa.int32(): (st.integers(-(2**31), 2**31 - 1), lambda value: value),
    pa.int64(): (st.integers(-(2**63), 2**63 - 1), lambda value: value),
    pa.date32(): (st.dates(), lambda value: value),
    pa.timestamp("us", "UTC"): (
        st.datetimes(timezones=st.just(timezone.utc)),
        lambda value: value,
    ),
    pa.decimal128(10, 2): (
        st.decimals(-(10**7), 10**7, places=2, allow_nan=False),
        lambda value: value,
    ),
    pa.string(): (texts, lambda value: value.encode()),
    pa.binary(): (st.binary(max_size=5), lambda value: value),
}


@st.composite
def sequences(draw):
    types = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(KINDS[one][0] for one in types)), max_size=12))
    return types, rows


def encoded(types, rows):
    columns = [pa.array([row[number] for row in rows], kind) for number, kind in enumerate(types)]
    return encode_sequences(columns)


@settings(max_examples=150, deadline=None)
@given(sequences())
def test_the_order_of_what_is_encoded_is_the_order_of_the_rows(found):
    types, rows = found
    values = encoded(types, rows)
    assert values.type == sequence_type_of(types).arrow
    plain = [
        tuple(KINDS[kind][1](one) for kind, one in zip(types, row, strict=True)) for row in rows
    ]
    pairs = list(zip(values.to_pylist(), plain, strict=True))
    for one, row in pairs:
        for other, other_row in pairs:
            assert (one < other, one == other) == (row < other_row, row == other_row)


@settings(max_examples=150, deadline=None)
@given(sequences())
def test_what_is_encoded_can_be_decoded(found):
    types, rows = found
    values = encoded(types, rows)
    with_null = pa.concat_arrays([values, pa.nulls(1, values.type)])
    columns = decode_sequences(with_null, types)
    assert [column.type for column in columns] == types
    decoded = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert decoded == [*rows, (None,) * len(types)]


@pytest.mark.parametrize("with_text", [False, True])
def test_a_wider_type_keeps_what_is_encoded(with_text):
    numbers = [Decimal("-3.25"), Decimal("0.00"), Decimal("9999.99")]
    further = [pa.array(["a", "b", "c"])] if with_text else []
    for narrow, wide, values in (
        (pa.int32(), pa.int64(), [-(2**31), -1, 7]),
        (pa.decimal128(6, 2), pa.decimal128(38, 2), numbers),
        (pa.string(), pa.large_string(), ["", "é", "z"]),
        (pa.timestamp("ms"), pa.timestamp("us"), [0, -5, 7]),
    ):
        one = encode_sequences([pa.array(values, narrow), *further])
        assert one.equals(encode_sequences([pa.array(values, narrow).cast(wide), *further]))


def test_slices_chunks_and_dictionaries_are_their_values():
    values = [5, -7, 2**40, 0, 3]
    whole = pa.array(values)
    assert encode_sequences([whole.slice(1, 3)]).to_pylist() == values[1:4]
    chunked = pa.chunked_array([whole.slice(0, 2), whole.slice(2)])
    assert encode_sequences([chunked]).to_pylist() == values
    decimals = pa.array([Decimal(value) for value in values], pa.decimal128(20, 0))
    assert encode_sequences([decimals.slice(2)]).equals(encode_sequences([decimals]).slice(2))
    texts = pa.array(["b", "a", "b"])
    assert encode_sequences([texts.dictionary_encode()]).equals(encode_sequences([texts]))
    nothing = pa.chunked_array([], pa.int64())
    assert len(encode_sequences([nothing])) == 0
    assert len(encode_sequences([nothing, nothing])) == 0


def test_what_has_no_order_or_is_missing_is_refused():
    for kind in (pa.float64(), pa.bool_(), pa.list_(pa.int32()), pa.time64("us")):
        with pytest.raises(UnsupportedError):
            sequence_type_of([pa.int64(), kind])
    with pytest.raises(UsageError):
        encode_sequences([pa.array([1, None])])
    with pytest.raises(UsageError):
        encode_sequences([])
    assert sequence_type_of([pa.date32()]) is SequenceType.INTEGER
