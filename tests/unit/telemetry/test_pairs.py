"""Attributes read by pairs.c, against ptars: the same keys, texts and kinds, whatever was sent."""

import random

import numpy as np
import pyarrow as pa
import pytest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from neve.telemetry.equal_keys import Tally, last_of_equal_keys
from neve.telemetry.pairs import read_pairs
from neve.telemetry.pairs_library import OTHER, may_repeat_keys, read_usual_pairs
from neve.telemetry.values import decode_values
from neve.telemetry.wire import UnreadableError, read_messages

USUAL = [
    KeyValue(key="http.route", value={"string_value": "/items"}),
    KeyValue(key="näme", value={"string_value": "\U0001f409"}),
    KeyValue(key="empty", value={"string_value": ""}),
    *(
        KeyValue(key="n", value={"int_value": number})
        for number in (0, 1, -1, 127, 128, 10**18, 2**63 - 1, -(2**63))
    ),
    KeyValue(key="yes", value={"bool_value": True}),
    KeyValue(key="no", value={"bool_value": False}),
]
OTHERS = [
    KeyValue(key="double", value={"double_value": 1.5}),
    KeyValue(key="bytes", value={"bytes_value": b"\x00\xff"}),
    KeyValue(key="array", value={"array_value": {"values": [{"int_value": 1}]}}),
    KeyValue(key="no value", value={}),
    KeyValue(key="unset"),
    KeyValue(value={"string_value": "no key"}),
    KeyValue(),
]
STRANGE = [
    b"\x12\x03\x0a\x01v\x0a\x01k",  # the value first
    b"\x0a\x01k\x0a\x01l\x12\x03\x0a\x01v",  # two keys
    b"\x0a\x01k\x12\x03\x0a\x01v\x12\x03\x0a\x01w",  # two values
    b"\x0a\x01k\x12\x06\x0a\x01v\x0a\x01w",  # one value that says it twice
    b"\x0a\x01k\x12\x03\x0a\x01v\x18\x07",  # an unknown field behind
    b"\x0a\x81\x00k\x12\x03\x0a\x01v",  # a length that takes a byte too many
    b"\x8a\x00\x01k\x12\x03\x0a\x01v",  # a tag that takes a byte too many
    b"\x0a\x01k\x12\x02\x10\x02",  # a boolean of 2
]


def serialized(messages):
    return [message.SerializeToString() for message in messages]


def binary(wire):
    return pa.array(wire, pa.binary())


def by_ptars(wire):
    messages = read_messages("opentelemetry.proto.common.v1.KeyValue", binary(wire))
    values = decode_values(messages.field("value"), Tally())
    return list(
        zip(
            messages.field("key").to_pylist(),
            values.text.to_pylist(),
            values.kind.tolist(),
            strict=True,
        )
    )


def by_us(wire):
    pairs = read_pairs(wire if isinstance(wire, pa.Array) else binary(wire), Tally())
    pairs.keys.validate(full=True)
    pairs.values.text.validate(full=True)
    texts, kinds = pairs.values.text.to_pylist(), pairs.values.kind.tolist()
    return list(zip(pairs.keys.to_pylist(), texts, kinds, strict=True))


def test_usual_attributes_are_read_without_ptars():
    wire = serialized(USUAL)
    assert read_usual_pairs(binary(wire)).others == 0
    assert by_us(wire) == by_ptars(wire)


@pytest.mark.parametrize("wire", [serialized(OTHERS), STRANGE])
def test_all_others_are_left_to_ptars(wire):
    pairs = read_usual_pairs(binary(wire))
    assert (pairs.others, set(pairs.kind.tolist())) == (len(wire), {OTHER})
    assert by_us(wire) == by_ptars(wire)


def test_others_keep_their_places_among_usual_ones():
    wire = [*serialized(USUAL), *serialized(OTHERS), *STRANGE] * 3
    random.Random(17).shuffle(wire)
    assert by_us(wire) == by_ptars(wire)


def test_a_part_of_an_array_is_read_alone():
    wire = [*serialized(USUAL), *serialized(OTHERS)]
    assert by_us(binary(wire)[3:9]) == by_ptars(wire[3:9])
    assert by_us(binary([])) == []


def test_damaged_attributes_are_read_as_ptars_reads_them():
    rng = random.Random(17)
    usual = [*serialized(USUAL), *serialized(OTHERS)[:-1], *STRANGE]
    for _ in range(3000):
        wire = bytearray(rng.choice(usual))
        for _ in range(rng.choice([1, 1, 3])):
            wire[rng.randrange(len(wire))] = rng.randrange(256)
        wire = bytes(wire[: rng.choice([len(wire), rng.randrange(len(wire) + 1)])])
        if read_usual_pairs(binary([wire])).others:
            continue
        try:
            wanted = by_ptars([wire])
        except UnreadableError:
            pytest.fail(f"ptars cannot read {wire!r}, and we do")
        assert by_us([wire]) == wanted, wire


@pytest.mark.parametrize(
    ("lists", "repeats"),
    [
        ([["a", "b"], ["a"], []], False),
        ([["a", "b"], ["c", "a", "c"]], True),
        ([["", "a", ""]], True),
        ([["service.instance.idx", "service.namespac.idx"]], False),  # only the middle differs
        ([[str(number) for number in range(64)]], False),
        ([[str(number) for number in range(65)]], True),  # too long to say
    ],
)
def test_equal_keys_are_noticed(lists, repeats):
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int32)
    keys = pa.array([key for keys in lists for key in keys], pa.string())
    assert may_repeat_keys(keys, offsets) == repeats
    tally = Tally()
    kept = keys.filter(pa.array(last_of_equal_keys(keys, offsets, tally)))
    assert len(kept) == sum(len(set(keys)) for keys in lists)
    assert tally.duplicate_keys == len(keys) - len(kept)
