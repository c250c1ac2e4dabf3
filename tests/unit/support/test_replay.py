"""The replay that merges are held against, one sentence of its contract at a time."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from itertools import permutations

import pytest

from tests.support.replay import (
    DELETE,
    INSERT,
    NULL_KEY,
    NULL_SEQUENCE,
    SNAPSHOT_READ,
    TRUNCATE,
    UNKNOWN_OPERATION,
    UPDATE,
    Rejected,
    canonical_json,
    changelog_event,
    replay,
)

UNCHANGED = "?"


def event(op, sequence, key=1, **columns):
    keys = key if isinstance(key, tuple) else (key,)
    return {"keys": keys, "sequence": sequence, "op": op, "columns": columns}


def truncate(sequence):
    return event(TRUNCATE, sequence, key=None)


def in_every_order(events, **options):
    """Replay in every order of arrival; there may be only one outcome."""
    outcomes = [replay(order, **options).mirror for order in permutations(events)]
    assert all(outcome == outcomes[0] for outcome in outcomes)
    return outcomes[0]


def test_the_highest_sequence_wins_for_each_key():
    events = [
        event(INSERT, 1, name="a"),
        event(UPDATE, 3, name="c"),
        event(UPDATE, 2, name="b"),
        event(INSERT, 2, key=2, name="z"),
    ]
    assert in_every_order(events) == {(1,): {"name": "c"}, (2,): {"name": "z"}}


def test_a_delete_is_remembered():
    assert in_every_order([event(INSERT, 1, name="a"), event(DELETE, 2)]) == {}


def test_a_row_may_come_back_after_its_delete():
    events = [event(INSERT, 1, name="a"), event(DELETE, 2), event(INSERT, 3, name="b")]
    assert in_every_order(events) == {(1,): {"name": "b"}}


def test_a_snapshot_read_loses_a_tie():
    # Its content is the greater one, so that nothing but its class can decide.
    events = [event(SNAPSHOT_READ, 1, name="z"), event(UPDATE, 1, name="a")]
    assert in_every_order(events) == {(1,): {"name": "a"}}


@pytest.mark.parametrize("op", [SNAPSHOT_READ, INSERT, UPDATE])
def test_a_delete_wins_every_tie(op):
    assert in_every_order([event(op, 1, name="z"), event(DELETE, 1, name=None)]) == {}


def test_the_greater_content_wins_between_upserts_of_one_class():
    events = [event(UPDATE, 1, name="a"), event(INSERT, 1, name="b")]
    assert in_every_order(events) == {(1,): {"name": "b"}}
    numbers = [event(UPDATE, 1, number=9), event(UPDATE, 1, number=10)]
    assert in_every_order(numbers) == {(1,): {"number": 9}}  # as text
    assert in_every_order(numbers, content=lambda row: row["number"]) == {(1,): {"number": 10}}


def test_exact_duplicates_change_nothing():
    events = [event(INSERT, 1, name="a"), event(DELETE, 2), event(INSERT, 3, name="b")]
    assert replay(events * 3) == replay(events)


def test_a_truncate_removes_what_is_older_also_when_it_comes_later():
    events = [
        event(INSERT, 3, name="old"),
        event(INSERT, 4, key=2, name="kept"),
        event(INSERT, 6, key=3, name="new"),
        truncate(2),
        truncate(4),
    ]
    assert in_every_order(events) == {(2,): {"name": "kept"}, (3,): {"name": "new"}}


@pytest.mark.parametrize("op", [SNAPSHOT_READ, INSERT, UPDATE])
def test_an_upsert_survives_a_truncate_of_the_same_sequence(op):
    assert in_every_order([truncate(2), event(op, 2, name="a")]) == {(1,): {"name": "a"}}


def test_a_delete_counts_beside_a_truncate_of_the_same_sequence():
    assert in_every_order([truncate(2), event(INSERT, 2, name="a"), event(DELETE, 2)]) == {}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (event(UPDATE, 9, key=None, name="x"), NULL_KEY),
        (event(UPDATE, 9, key=(1, None), name="x"), NULL_KEY),
        (event(UPDATE, None, name="x"), NULL_SEQUENCE),
        (event(DELETE, (9, None)), NULL_SEQUENCE),
        (truncate(None), NULL_SEQUENCE),
        (event("upsert", 9, name="x"), UNKNOWN_OPERATION),
        (event(None, 9, name="x"), UNKNOWN_OPERATION),
    ],
)
def test_faulty_events_are_rejected_and_change_nothing(fault, reason):
    good = event(INSERT, 1, name="a")
    for order in permutations([good, fault]):
        assert replay(order) == ({(1,): {"name": "a"}}, [Rejected(fault, reason)])


def test_sequences_may_be_texts_or_tuples_and_keys_composite():
    texts = [event(INSERT, "00/0f", key=(1, "a"), v=1), event(UPDATE, "00/10", key=(1, "a"), v=2)]
    assert in_every_order(texts) == {(1, "a"): {"v": 2}}
    tuples = [event(INSERT, (1, 9), v=1), event(UPDATE, (2, 0), v=2)]
    assert in_every_order(tuples) == {(1,): {"v": 2}}


def test_an_unchanged_value_is_the_last_one_sent():
    events = [
        event(INSERT, 1, name="a", text="one"),
        event(UPDATE, 2, name="b", text=UNCHANGED),
        event(UPDATE, 3, name=UNCHANGED, text="three"),
        event(UPDATE, 4, name=UNCHANGED, text=UNCHANGED),
    ]
    folded = {(1,): {"name": "b", "text": "three"}}
    assert in_every_order(events, unchanged=UNCHANGED) == folded


def test_null_is_a_value_that_was_sent():
    events = [
        event(INSERT, 1, text="one"),
        event(UPDATE, 2, text=None),
        event(UPDATE, 3, text=UNCHANGED),
    ]
    assert in_every_order(events, unchanged=UNCHANGED) == {(1,): {"text": None}}


@pytest.mark.parametrize("end", [event(DELETE, 2), truncate(2)])
def test_an_unchanged_value_does_not_reach_behind_a_delete_or_truncate(end):
    events = [event(INSERT, 1, text="one"), end, event(UPDATE, 3, text=UNCHANGED)]
    assert in_every_order(events, unchanged=UNCHANGED) == {(1,): {"text": None}}


def test_a_tie_folds_the_lesser_content_first():
    events = [
        event(SNAPSHOT_READ, 1, name="z", text="read"),
        event(UPDATE, 1, name="a", text="sent"),
        event(UPDATE, 1, name="b", text=UNCHANGED),
    ]
    assert in_every_order(events, unchanged=UNCHANGED) == {(1,): {"name": "b", "text": "sent"}}


def test_without_a_marker_its_text_is_a_value_like_others():
    events = [event(INSERT, 1, text="one"), event(UPDATE, 2, text=UNCHANGED)]
    assert in_every_order(events) == {(1,): {"text": UNCHANGED}}


def test_arrival_never_matters():
    draw = random.Random(6)
    operations = [SNAPSHOT_READ, INSERT, UPDATE, UPDATE, DELETE, TRUNCATE]
    for _ in range(200):
        events = [
            event(
                draw.choice(operations),
                draw.randrange(8),
                key=draw.randrange(3),
                name=draw.choice(["a", "b", None]),
                text=draw.choice(["x", "y", UNCHANGED]),
            )
            for _ in range(12)
        ]
        expected = replay(events, unchanged=UNCHANGED).mirror
        late = draw.sample(events, len(events)) + draw.sample(events, 4)
        assert replay(late, unchanged=UNCHANGED).mirror == expected


def test_the_event_of_a_changelog_row():
    row = {"id": 1, "part": "a", "name": "x", "op": "r", "lsn": 7, "sequence": "0/7"}
    made = changelog_event(row, keys=["id", "part"], sequence="lsn", leave_out=["sequence"])
    columns = {"id": 1, "part": "a", "name": "x", "lsn": 7}
    assert made == {"keys": (1, "a"), "sequence": 7, "op": SNAPSHOT_READ, "columns": columns}
    several = changelog_event({**row, "op": None}, keys=["id"], sequence=["lsn", "sequence"])
    assert several["sequence"] == (7, "0/7")
    assert replay([several]).rejected == [Rejected(several, UNKNOWN_OPERATION)]


def test_the_canonical_form_of_a_row():
    berlin = timezone(timedelta(hours=1))
    row = {
        "when": datetime(2026, 1, 1, 1, 0, tzinfo=berlin),
        "amount": Decimal("1.50"),
        "name": "é",
        "blob": b"\x00\xff",
        "none": None,
    }
    assert canonical_json(row) == (
        '{"amount":"1.50","blob":"00ff","name":"é","none":null,'
        '"when":"2026-01-01T00:00:00.000000+00:00"}'
    )
