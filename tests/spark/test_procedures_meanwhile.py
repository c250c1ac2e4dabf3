"""Spark's own `expire_snapshots` and `remove_orphan_files`, called by a user at the worst moment.

Each time all versions but the last expire, and files that no version names are removed down to a
day's age, the least that Iceberg allows. What is committed under a ref looks two days old by then;
files that no commit names yet are as young as they are.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest

import neve
from neve.lake.catalog import load_table
from neve.lake.staging import StagingTable
from neve.merge.strategy import Strategy
from neve.publish.batch import Outcome
from neve.publish.publisher import Publisher
from neve.publish.ranges import Range
from neve.signals import Signal
from neve.upkeep.maintainer import Maintainer
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.leftovers import age_files, tables_of, unreferenced_files
from tests.support.merging import Mirrored, event
from tests.support.power_cut import meanwhile
from tests.support.publishing import KnownStreams


@pytest.fixture
def lake(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


def clean_up(lake):
    """Expire and remove as much as Iceberg's procedures can, of every table."""
    young = unreferenced_files(lake.catalog())
    age_files(lake.catalog())
    for path in young:
        os.utime(path)
    now = datetime.now(timezone.utc)
    later, yesterday = now + timedelta(hours=1), now - timedelta(hours=25)
    for table in tables_of(lake.catalog()):
        name = ".".join(table.name())
        lake.query(
            f"CALL system.expire_snapshots(table => '{name}', retain_last => 1, "
            f"older_than => TIMESTAMP '{later:%F %T}')"
        )
        lake.query(
            f"CALL system.remove_orphan_files(table => '{name}', "
            f"older_than => TIMESTAMP '{yesterday:%F %T}')"
        )


def points(*names, essential):
    return [
        pytest.param(name, marks=() if name == essential else pytest.mark.soak) for name in names
    ]


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy.INDEX,
        pytest.param(Strategy.SCAN, marks=pytest.mark.soak),
        pytest.param(Strategy.MERGE, marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize(
    "point",
    points(
        *("merge.prepared", "merge.tombstones_written", "merge.rejected"),
        *("merge.applied", "merge.published"),
        essential="merge.prepared",
    ),
)
def test_during_a_merge(lake, point, strategy):
    mirrored = Mirrored(lake)
    for wave in range(3):
        mirrored.append(
            *(event("U", 10 * wave + 1, key, f"{wave}") for key in range(8)),
            event("D", 10 * wave + 2, wave),
        )
        mirrored.merge(strategy=Strategy.INDEX)
    mirrored.append(event("U", 90, 5, "last"), event("D", 91, 6), event("?", 92, 7))
    mirrored.append(event("I", 93, 100, "new"), event("I", 1, 2, "late"))
    with meanwhile(point, lambda: clean_up(lake)):
        report = mirrored.merge(strategy=strategy)
    assert report.error is None
    mirrored.check()
    clean_up(lake)
    mirrored.append(event("U", 200, 5, "on"), event("D", 201, 100))
    assert mirrored.merge(strategy=strategy).error is None
    mirrored.check()
    assert len(mirrored.table("rows_rejected").scan().to_arrow()) == 1


@pytest.mark.soak
@pytest.mark.parametrize("point", ["merge.prepared", "merge.applied"])
def test_during_the_first_merge(lake, point):
    mirrored = Mirrored(lake)
    mirrored.append(*(event("U", key, key, "a") for key in range(8)), event("D", 20, 3))
    mirrored.append(event("U", 21, 4, "b"))
    with meanwhile(point, lambda: clean_up(lake)):
        assert mirrored.merge().error is None
    mirrored.check()


@pytest.mark.soak
@pytest.mark.parametrize(
    "point", ["consolidate.decoded", "publish.staged", "publish.ready", "publish.published"]
)
def test_during_a_publish(lake, tmp_path, point):
    bench = Bench(lake, tmp_path)
    for name in "abc":
        bench.send(Signal.LOGS, name)
        bench.run()
    bench.send(Signal.LOGS, "d")
    with meanwhile(point, lambda: clean_up(lake)):
        assert bench.run().trouble is None
    assert bench.names("logs") == Counter(f"{name} {n}" for name in "abcd" for n in range(2))
    clean_up(lake)
    bench.send(Signal.LOGS, "e")
    bench.run()
    assert bench.names("logs") == Counter(f"{name} {n}" for name in "abcde" for n in range(2))
    assert bench.waiting_segments() == 0


@pytest.mark.soak
def test_while_a_batch_is_held(lake, tmp_path):
    bench = Bench(lake, tmp_path)
    for name in "ab":
        bench.send(Signal.LOGS, name)
        bench.run()

    def publisher():
        table = load_table(lake.profile, lake.catalog(), ("otel", "logs"))
        return Publisher(StagingTable(lake.profile, table), KnownStreams("logs/y"))

    holder = publisher()
    files = holder.table.added_files(holder.table.main_id)
    assert holder.hold(holder.stage("held", files, {"logs/y": Range(1, 1)})) is Outcome.HELD
    bench.send(Signal.LOGS, "c")
    bench.run()
    clean_up(lake)
    (held,) = publisher().table.staged("neve-held")
    assert publisher().release(held) is Outcome.PUBLISHED
    wanted = Counter(f"{name} {n}" for name in "abc" for n in range(2))
    assert bench.names("logs") == wanted + Counter({"b 0": 1, "b 1": 1})


@pytest.mark.parametrize(
    "point", points("compact.written", "compact.committed", essential="compact.written")
)
def test_during_a_compaction(lake, point):
    mirrored = Mirrored(lake)
    for wave, keys in enumerate((20, 14, 7)):
        mirrored.append(*(event("U", wave * 100 + key, key, f"{wave}") for key in range(keys)))
        mirrored.merge(strategy=Strategy.INDEX)
    plans = lake.plan_maintenance(mirrored.mirror)
    assert any(plan.actions for plan in plans)
    with meanwhile(point, lambda: clean_up(lake)):
        (report,) = Maintainer(lake).carry_out(plans)
    assert (report.error, report.left) == (None, [])
    mirrored.check()
    clean_up(lake)
    mirrored.append(event("D", 9000, 3), event("U", 9001, 4, "after"))
    mirrored.merge()
    mirrored.check()


@pytest.mark.soak
@pytest.mark.parametrize("point", ["follow.applied", "follow.published"])
def test_while_a_follower_copies(lake, point):
    mirrored = Mirrored(lake)
    copy = f"{mirrored.namespace}.copy"

    def follow():
        lake.follow(mirrored.mirror, "copy").to_table(copy, keys=["id"])

    mirrored.append(*(event("U", key, key, "a") for key in range(5)))
    mirrored.merge()
    follow()
    mirrored.append(event("D", 10, 1), event("U", 11, 2, "b"))
    mirrored.merge()
    with meanwhile(point, lambda: clean_up(lake)):
        follow()
    mirrored.append(event("U", 20, 3, "c"))
    mirrored.merge()
    follow()
    rows = lake.catalog().load_table(copy).scan().to_arrow().to_pylist()
    assert {(row["id"],): row for row in rows} == mirrored.wanted()
    assert len(rows) == len(mirrored.wanted())
