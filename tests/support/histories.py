"""Histories of keys, as sources tell them and as networks deliver them: doubled, late, shuffled."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

# Many histories share one changelog: a row's key is its history's number and its own.
SCHEMA = pa.schema(
    [
        ("history", pa.int32()),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.int64()),
        ("op", pa.string()),
        ("lsn", pa.int64()),
    ]
)
KEYS = ("history", "id")
UPSERTS = ("I", "U", "c", "u")
MARKER = "(unchanged)"

Event = dict[str, Any]
Waves = list[list[Event]]


def random_history(number: int, chance: random.Random, *, marked: bool = False) -> list[Event]:
    """Return what happened to a few keys, in order: a fifth deletes, a quarter NULLs, some ties."""
    events: list[Event] = []
    lsn = 10
    keys = chance.randint(1, 3)
    if chance.random() < 0.5:
        events += [_event(number, chance, "r", lsn, key) for key in range(keys)]
    for _ in range(chance.randint(2, 12)):
        # With a marker a row is made of several events, and those of one sequence have no order.
        lsn += 1 if marked else chance.choice((0, 1, 1, 1, 2))
        op = chance.choice("Dd") if chance.random() < 0.2 else chance.choice(UPSERTS)
        events.append(_event(number, chance, op, lsn, chance.randrange(keys)))
        if marked and op in ("U", "u") and chance.random() < 0.6:
            events[-1]["name"] = MARKER
    return events


def _event(number: int, chance: random.Random, op: str, lsn: int, key: int) -> Event:
    name = None if chance.random() < 0.25 else chance.choice("abcdef") * chance.randint(1, 3)
    amount = None if chance.random() < 0.25 else chance.randint(-2, 2)
    return {"history": number, "id": key, "name": name, "amount": amount, "op": op, "lsn": lsn}


def delivered(
    history: Sequence[Event], chance: random.Random, waves: int, *, spoils: bool = True
) -> Waves:
    """Deliver a history: some events twice, some spoiled copies, shuffled, cut anywhere."""
    events = list(history)
    events += [dict(one) for one in history if chance.random() < 0.15]
    for one in history:
        if spoils and chance.random() < 0.03:
            spoiled = chance.choice(({"op": "?"}, {"lsn": None}, {"id": None}, {"op": None}))
            events.append({**one, **spoiled})
    if chance.random() < 0.8:
        chance.shuffle(events)
    cuts = sorted(chance.randint(1, len(events)) for _ in range(waves - 1))
    bounds = [0, *cuts, len(events)]
    return [events[start:end] for start, end in itertools.pairwise(bounds)]


def together(deliveries: Sequence[Waves]) -> Waves:
    """Lay the waves of many histories over each other."""
    return [list(itertools.chain(*wave)) for wave in zip(*deliveries, strict=True)]


def every_delivery(history: Sequence[Event]) -> Iterator[Waves]:
    """Yield a history in every order, each cut into waves in every way."""
    size = len(history)
    for order in itertools.permutations(history):
        for cut in range(2 ** (size - 1)):
            waves: Waves = [[order[0]]]
            for bit, one in enumerate(order[1:]):
                if cut >> bit & 1:
                    waves.append([one])
                else:
                    waves[-1].append(one)
            yield waves + [[] for _ in range(size - len(waves))]


def overtaken_keys(waves: Waves) -> set[tuple[Any, ...]]:
    """Return the keys of the documented exception.

    A value or a delete came in a later wave than a newer event without that value: it is gone.
    """
    found = set()
    newest_partial: dict[tuple[Any, ...], int] = {}
    seen: set[tuple[Any, ...]] = set()
    for wave in waves:
        for one in wave:
            key = tuple(one[name] for name in KEYS)
            is_first = tuple(one.items()) not in seen
            seen.add(tuple(one.items()))
            tells = one["name"] != MARKER and one["lsn"] is not None
            if is_first and tells and one["lsn"] < newest_partial.get(key, -1):
                found.add(key)
        for one in wave:
            key = tuple(one[name] for name in KEYS)
            if one["name"] == MARKER and one["lsn"] is not None:
                newest_partial[key] = max(one["lsn"], newest_partial.get(key, -1))
    return found
