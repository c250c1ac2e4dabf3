"""Merges go on as before when mirrors, side tables and changelogs expire after each of them."""

from __future__ import annotations

import random
import time

from neve.config import Settings
from neve.index.status import status
from neve.lake.identifier import parse_identifier
from neve.merge.strategy import Strategy
from neve.upkeep.retention import carry_out_retention, plan_retention
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.snapshot_needs import needed_snapshots
from neve.upkeep.table_kind import TableKind
from tests.support.merging import Mirrored, event

UPKEEP = {"retain": 60, "reader_grace": 0, "retain_min": 1, "keep_hourly": 0, "keep_daily": 0}


def expire(lake, mirrored, name):
    """Expire at once all that nothing needs; return how many snapshots are left."""
    settings = Settings.model_validate(
        {
            **lake.settings.model_dump(),
            "upkeep": {**UPKEEP, "tables": {mirrored.changelog: {"expire": True}}},
            "merge": {"tables": [mirrored.settings.model_dump()]},
        }
    )
    identifier, now = (mirrored.namespace, name), time.time() + 120
    metadata = lake.reader().read(identifier)
    policy = retention_policy(settings, identifier, metadata)
    before, lake.settings = lake.settings, settings
    try:
        needed = needed_snapshots(lake, identifier, policy.kind, metadata)
    finally:
        lake.settings = before
    plan = plan_retention(name, metadata, policy, now, needed)
    carry_out_retention(lake, lake.ref(identifier), plan, policy, now, needed)
    return policy.kind, len(lake.reader().read(identifier).snapshots)


def test_the_mirror_equals_the_replay_and_the_index_stays(embedded_lake):
    mirrored, chance = Mirrored(embedded_lake, strategy=Strategy.INDEX), random.Random(3)
    for number in range(5):
        events = [
            event(chance.choice("IUUD"), number * 100 + n, chance.randrange(20), f"{number}/{n}")
            for n in range(20)
        ]
        mirrored.append(*events)
        mirrored.append(event("D", max(number * 100 - 50, 0), number, None))
        mirrored.merge()
        for name, kind in (
            ("rows", TableKind.MIRROR),
            ("rows_tombstones", TableKind.SIDE),
            ("changes", TableKind.CHANGELOG),
        ):
            found, left = expire(embedded_lake, mirrored, name)
            assert found is kind
            assert left <= 3
        mirrored.check()
    assert status(embedded_lake, parse_identifier(mirrored.mirror)).state == "fresh"
