"""Histories delivered in any order, with trouble in between: the mirror is the replay."""

from __future__ import annotations

import random
from dataclasses import replace
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from neve import failpoints
from neve.merge import driver_events
from neve.merge.locators import IndexLocator
from neve.merge.strategy import Strategy
from tests.support.histories import (
    KEYS,
    MARKER,
    SCHEMA,
    delivered,
    every_delivery,
    overtaken_keys,
    random_history,
    together,
)
from tests.support.merging import Mirrored

POINTS = sorted(name for name in failpoints.POINTS if name.startswith("merge."))
# An example is a minute of Spark: a failure is told with its seed, and not shrunk.
LONG = settings(
    derandomize=True, deadline=None, max_examples=12, phases=(Phase.explicit, Phase.generate)
)
seeds = st.integers(0, 2**32)
DECIDED_HERE = IndexLocator.decided_here


def mirrored_histories(lake, **options):
    return Mirrored(lake, SCHEMA, primary_keys=KEYS, **options)


def crash(mirrored, chance):
    """Merge, and die at some step of some commit, or at none."""
    try:
        with failpoints.armed(chance.choice(POINTS), chance.choice((1, 1, 2))):
            mirrored.merge()
    except failpoints.PowerCut:
        pass


def compact(mirrored, chance):
    mirrored.compact(chance.choice(mirrored.both))


def compact_and_expire(mirrored, chance):
    """Leave nothing of how a table came to be."""
    for table in chance.sample(mirrored.both, chance.randint(1, 2)):
        mirrored.compact(table)
        mirrored.expire(table)


def expire(mirrored, chance):
    mirrored.expire(chance.choice(mirrored.both))


def roll_back(mirrored, chance):
    """Put the mirror back to anything it was."""
    mirrored.roll_back(chance.choice(mirrored.past()))


TROUBLES = (crash, crash, compact, expire, compact_and_expire, roll_back)


def live_through(mirrored, waves, chance, check=Mirrored.check):
    """Deliver wave after wave, with trouble before some merges, and compare after each."""
    for number, wave in enumerate(waves):
        size = len(wave) // chance.randint(1, 3) + 1
        for start in range(0, len(wave), size):
            mirrored.append(*wave[start : start + size])
        if number:
            for trouble in chance.sample(TROUBLES, chance.randint(0, 2)):
                trouble(mirrored, chance)
        mirrored.merge()
        check(mirrored)
    assert mirrored.merge().outcome == "idle"


def test_every_order_and_every_cut_of_a_short_history(embedded_lake):
    """Each delivery is a history of its own in one mirror: late, equal, deleted, come again."""
    stories = [
        [("I", 1, "a"), ("D", 2, None), ("r", 1, "z"), ("U", 3, "b")],
        [("I", 1, "a"), ("U", 2, "c"), ("U", 2, "b"), ("D", 3, None)],
        [("r", 5, "z"), ("I", 5, "a"), ("D", 4, None), ("U", 5, None)],
        [("D", 2, None), ("U", 2, "b"), ("I", 1, "a"), ("I", 1, "a")],
    ]
    mirrored = mirrored_histories(embedded_lake)
    deliveries = []
    for story in stories:
        events = [
            {"id": 1, "op": op, "lsn": lsn, "name": name, "amount": n}
            for n, (op, lsn, name) in enumerate(story)
        ]
        for waves in every_delivery(events):
            number = len(deliveries)
            deliveries.append([[{**one, "history": number} for one in wave] for wave in waves])
    assert len(deliveries) == 4 * 24 * 8
    for wave in together(deliveries):
        mirrored.append(*wave)
        mirrored.merge()
        mirrored.check()


def random_histories(lake, seed, count=60, waves=4, *, spoils=True, strategy=None):
    chance = random.Random(seed)
    batch_size = chance.choice((1_000_000, count * 2, count * 4))
    mirrored = mirrored_histories(lake, batch_size=batch_size, strategy=strategy)
    histories = [random_history(number, chance) for number in range(count)]
    deliveries = [delivered(one, chance, waves, spoils=spoils) for one in histories]
    live_through(mirrored, together(deliveries), chance)


def whole_histories(lake, seed, most_rows, **options):
    """Merge histories without spoiled events by the index; say how often no job was needed."""
    limit = replace(driver_events.LIMIT, rows=most_rows)
    with (
        mock.patch.object(driver_events, "LIMIT", limit),
        mock.patch.object(IndexLocator, "decided_here", autospec=True) as decided_here,
    ):
        decided_here.side_effect = DECIDED_HERE
        random_histories(lake, seed, spoils=False, strategy=Strategy.INDEX, **options)
    return decided_here.call_count


def test_random_histories_merged_without_a_spark_job(embedded_lake):
    assert whole_histories(embedded_lake, 1, 250_000, waves=3)


@pytest.mark.soak
@LONG
@given(seeds, st.sampled_from((0, 250_000)))
@example(2, 250_000)
@example(2, 0)
def test_many_random_histories_of_small_batches_and_of_jobs(embedded_lake, seed, most_rows):
    assert bool(whole_histories(embedded_lake, seed, most_rows, count=200)) == bool(most_rows)


@pytest.mark.soak
@LONG
@given(seeds)
@example(1)
@example(2)
@example(3)
def test_many_random_histories(embedded_lake, seed):
    random_histories(embedded_lake, seed, count=200)


def with_truncates(history, chance):
    """Put a TRUNCATE somewhere, at a sequence that events have or between them."""
    least, most = history[0]["lsn"], history[-1]["lsn"]
    truncates = [
        {"history": None, "id": None, "op": chance.choice("Tt"), "lsn": chance.randint(least, most)}
        for _ in range(chance.randint(1, 2))
    ]
    return [*history, *({"name": None, "amount": None, **one} for one in truncates)]


def random_truncates(lake, seed, waves=4):
    """A TRUNCATE is for a whole mirror, so that one history has it for itself."""
    chance = random.Random(seed)
    history = [one for number in range(6) for one in random_history(number, chance)]
    history.sort(key=lambda one: one["lsn"])
    mirrored = mirrored_histories(lake, batch_size=chance.choice((1_000_000, 20)))
    live_through(mirrored, delivered(with_truncates(history, chance), chance, waves), chance)


# Of random histories the one for the ordinary run, with every kind of event and of trouble.
def test_a_random_history_with_truncates(embedded_lake):
    random_truncates(embedded_lake, 1, waves=3)


@pytest.mark.soak
@LONG
@given(seeds)
@example(2)
def test_random_histories_with_truncates(embedded_lake, seed):
    random_truncates(embedded_lake, seed)


def random_partial_events(lake, seed, count=60, waves=4, strategy=None):
    chance = random.Random(seed)
    # Of a mirror that was rolled back, or of a batch that is cut, what came in which commit is
    # not what came in which wave.
    mirrored = mirrored_histories(lake, unchanged_marker=MARKER, strategy=strategy)
    histories = [random_history(number, chance, marked=True) for number in range(count)]
    deliveries = together([delivered(one, chance, waves) for one in histories])
    for number, wave in enumerate(deliveries):
        mirrored.append(*wave)
        if number and chance.random() < 0.5:
            chance.choice((crash, compact))(mirrored, chance)
        mirrored.merge()
        overtaken = overtaken_keys(deliveries[: number + 1])
        found, wanted = mirrored.found(), mirrored.wanted()
        assert found.keys() == wanted.keys()
        for key in found:
            row, other = dict(found[key]), dict(wanted[key])
            if key in overtaken:
                del row["name"], other["name"]
            assert row == other
        assert len(overtaken) < len(found) / 2
        assert MARKER not in {row["name"] for row in found.values()}


@pytest.mark.parametrize("strategy", [None, Strategy.INDEX])
def test_random_partial_events(embedded_lake, strategy):
    random_partial_events(embedded_lake, 1, waves=3, strategy=strategy)


def random_uuids(lake, seed, count=60, waves=4):
    """Histories of uuid keys, and deletes that are remembered long enough, by the index."""
    chance = random.Random(seed)
    schema = SCHEMA.set(SCHEMA.get_field_index("id"), pa.field("id", pa.uuid()))
    mirrored = Mirrored(
        lake, schema, primary_keys=KEYS, strategy=Strategy.INDEX, tombstone_retention="30d"
    )
    histories = [random_history(number, chance) for number in range(count)]
    deliveries = together([delivered(one, chance, waves) for one in histories])
    with_uuids = [
        [{**one, "id": one["id"] if one["id"] is None else UUID(int=one["id"])} for one in wave]
        for wave in deliveries
    ]
    live_through(mirrored, with_uuids, chance)


def test_random_histories_of_uuids_whose_deletes_may_be_forgotten(embedded_lake):
    random_uuids(embedded_lake, 1, waves=3)


@pytest.mark.soak
@LONG
@given(seeds)
@example(2)
def test_many_random_histories_of_uuids(embedded_lake, seed):
    random_uuids(embedded_lake, seed)


@pytest.mark.soak
@LONG
@given(seeds)
@example(2)
def test_many_random_partial_events(embedded_lake, seed):
    strategy = Strategy.INDEX if seed % 2 else None
    random_partial_events(embedded_lake, seed, count=200, strategy=strategy)
