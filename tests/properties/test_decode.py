"""The decoder against the loop: the same rows, the same dead letters, whatever was sent."""

import random

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from neve import limits
from neve.signals import Signal
from neve.telemetry.schemas import SCHEMAS
from tests.support import otlp_oracle
from tests.support.decoding import decode_whole
from tests.support.otlp_messages import fill, scrambled

seeds = st.integers(0, 2**32)
signals = st.sampled_from(Signal)
# Some requests come with a named token, some do not.
SENDERS = [None if number % 3 == 0 else f"sender {number}" for number in range(40)]
slow = settings(derandomize=True, deadline=None, max_examples=60)


def decode(signal, requests):
    received = list(range(1, len(requests) + 1))
    nanos = [micros * 1000 + 999 for micros in received]
    return decode_whole(signal, requests, nanos, SENDERS[: len(requests)]), received


def assert_as_the_oracle(signal, requests):
    decoded, received = decode(signal, requests)
    wanted = otlp_oracle.decode(signal, requests, received, SENDERS[: len(requests)])
    for name, table in wanted.arrow().items():
        assert decoded.tables[name].schema == SCHEMAS[name]
        decoded.tables[name].validate(full=True)
        # As text: NaN equals itself there, and 0.0 differs from -0.0.
        for row, wanted_row in zip(
            decoded.tables[name].to_pylist(), table.to_pylist(), strict=True
        ):
            assert repr(row) == repr(wanted_row)
    letters = [(letter.request, letter.path, letter.reason) for letter in decoded.dead_letters]
    assert sorted(letters) == sorted(wanted.dead_letters)
    assert decoded.duplicate_keys == wanted.duplicate_keys


@given(signals, seeds, st.integers(0, 4))
@slow
def test_any_request_gives_the_rows_of_the_loop(signal, seed, count):
    rng = random.Random(seed)
    requests = [fill(signal.request(), rng).SerializeToString() for _ in range(count)]
    assert_as_the_oracle(signal, requests)


@given(signals, seeds)
@slow
def test_strange_ways_to_write_a_request_change_nothing(signal, seed):
    rng = random.Random(seed)
    requests = [scrambled(fill(signal.request(), rng), rng) for _ in range(3)]
    assert_as_the_oracle(signal, requests)


def rows_of_others(decoded, position):
    """The rows of all requests but one; each was received at a microsecond of its own."""
    return [
        repr(row)
        for table in decoded.tables.values()
        for row in table.to_pylist()
        if row["received_at"].microsecond != position + 1
    ]


@given(signals, seeds)
@slow
def test_damage_to_one_request_leaves_the_others_alone(signal, seed):
    rng = random.Random(seed)
    requests = [fill(signal.request(), rng).SerializeToString() for _ in range(3)]
    damaged = bytearray(requests[1] or b"\xff")
    for _ in range(rng.choice([1, 3])):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    requests[1] = bytes(damaged)
    try:
        signal.request.FromString(requests[1])
    except DecodeError:
        decoded, _ = decode(signal, requests)
        kept, _ = decode(signal, [requests[0], b"", requests[2]])
        assert rows_of_others(decoded, 1) == rows_of_others(kept, 1)
        assert {letter.request for letter in decoded.dead_letters if not letter.path} <= {1}
    else:
        assert_as_the_oracle(signal, requests)


@pytest.mark.parametrize("signal", Signal)
def test_groups_and_parts_change_nothing(signal, monkeypatch):
    rng = random.Random(7)
    requests = [fill(signal.request(), rng).SerializeToString() for _ in range(40)]
    assert_as_the_oracle(signal, requests)
    monkeypatch.setattr(limits, "DECODE_GROUP_BYTES", 2000)
    assert_as_the_oracle(signal, requests)
    monkeypatch.setattr(limits, "DECODED_PART_BYTES", 1000)
    assert_as_the_oracle(signal, requests)
    monkeypatch.setattr(limits, "DECODED_PART_BYTES", 1)
    assert_as_the_oracle(signal, requests)
