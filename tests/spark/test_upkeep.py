"""Snapshots past their retention go, and nothing goes with them that is still needed."""

import time
from collections import Counter

import pytest

import neve
from neve.config import Settings
from neve.lake.ancestry import ancestors, main_ancestors
from neve.lake.catalog import load_table
from neve.lake.frames import added_rows
from neve.lake.staging import StagingTable
from neve.publish import ledger
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX, Outcome
from neve.publish.ledger import LedgerWriter
from neve.publish.publisher import Publisher
from neve.publish.ranges import Range, read_marks
from neve.signals import Signal
from neve.upkeep.spec import UpkeepSpec
from neve.upkeep.upkeep import Upkeep
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.ledgers import entry
from tests.support.power_cut import power_cut
from tests.support.publishing import KnownStreams

LOGS = ("otel", "logs")
EVERYTHING = {
    "retain": 0.001,
    "reader_grace": 0,
    "retain_min": 2,
    "keep_hourly": 0,
    "keep_daily": 0,
}


@pytest.fixture
def bench(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def publisher(bench, *streams):
    table = load_table(bench.lake.profile, bench.lake.catalog(), LOGS)
    return Publisher(StagingTable(bench.lake.profile, table), KnownStreams(*streams))


def metadata(bench):
    return load_table(bench.lake.profile, bench.lake.catalog(), LOGS).metadata


def upkeep(bench, settings=EVERYTHING, **changes):
    whole = {**bench.lake.settings.model_dump(), "upkeep": settings}
    bench.lake.settings = Settings.model_validate(whole)
    spec = UpkeepSpec(bench.buffer, **{"expire_at_once": 1, **changes})
    return Upkeep(bench.lake, spec, clock=lambda: time.time() + 1)


def expire(bench):
    """Expire all that can go: what refs do not name, but for the last two of a branch."""
    before = metadata(bench)
    report = upkeep(bench).run()
    assert report.failures == {}
    after = metadata(bench)
    assert report.expired_snapshots >= len(before.snapshots) - len(after.snapshots) > 0
    named = {ref.snapshot_id for ref in before.refs.values()}
    line = [snapshot.snapshot_id for snapshot in main_ancestors(before)]
    kept = {snapshot.snapshot_id for snapshot in after.snapshots}
    branches = {
        snapshot.snapshot_id
        for ref in before.refs.values()
        if ref.snapshot_ref_type == "branch"
        for snapshot, _ in zip(ancestors(before, ref.snapshot_id), range(2), strict=False)
    }
    assert kept == named | set(line[:2]) | branches


def test_marks_staged_and_held_batches_survive(bench):
    for name in "abcd":
        bench.send(Signal.LOGS, name)
        bench.run()
    files = publisher(bench).table.added_files(metadata(bench).current_snapshot_id)
    holder = publisher(bench, "logs/y")
    assert holder.hold(holder.stage("held", files, {"logs/y": Range(1, 1)})) is Outcome.HELD
    for name in "ef":
        bench.send(Signal.LOGS, name)
        bench.run()
    stager = publisher(bench, "logs/x")
    staged = stager.stage("staged", files, {"logs/x": Range(1, 1)})
    # By another writer: neither main nor its last few lead to what was staged.
    for _ in range(3):
        table = load_table(bench.lake.profile, bench.lake.catalog(), LOGS)
        table.append(table.schema().as_arrow().empty_table())
    marks = read_marks(metadata(bench).properties)
    expire(bench)

    expected = Counter(f"{name} {n}" for name in "abcdef" for n in range(2))
    assert bench.names("logs") == expected
    assert read_marks(metadata(bench).properties) == marks
    (held,) = publisher(bench).table.staged(HELD_PREFIX)
    rows = added_rows(bench.lake.spark, bench.lake.ref(LOGS), held.snapshot_id, held.parent_id)
    assert {row.body for row in rows.collect()} == {"d 0", "d 1"}
    assert publisher(bench, "logs/x").publish(staged) is Outcome.PUBLISHED
    assert publisher(bench).release(held) is Outcome.PUBLISHED
    assert bench.names("logs") == expected + Counter({"d 0": 2, "d 1": 2})


def test_a_staged_batch_is_audited_although_its_parent_was_expired(bench, tmp_path):
    bench.send(Signal.LOGS, "a")
    bench.run()
    bench.send(Signal.LOGS, "b")
    with power_cut("publish.staged"):
        bench.run()
    (staged,) = publisher(bench).table.staged(STAGED_PREFIX)
    for _ in range(3):
        table = load_table(bench.lake.profile, bench.lake.catalog(), LOGS)
        table.append(table.schema().as_arrow().empty_table())
    expire(bench)
    assert metadata(bench).snapshot_by_id(staged.parent_id) is None

    strict = {"name": "strict", "check": "row_count", "max": 2}
    audited = sqlite_settings(tmp_path).model_dump(include={"catalog", "spark"})
    settings = Settings.model_validate({**audited, "audits": {"otel.logs": [strict]}})
    with neve.open(settings) as lake:
        report = Bench(lake, bench.directory).run()
    ((_, result),) = report.audits
    assert (result.passed, result.total) == (True, 2)
    assert bench.names("logs") == Counter(f"{name} {n}" for name in "ab" for n in range(2))


def test_young_snapshots_and_few_of_them_are_left_alone(bench):
    for name in "abc":
        bench.send(Signal.LOGS, name)
        bench.run()
    count = len(metadata(bench).snapshots)
    assert upkeep(bench, {**EVERYTHING, "retain": 3600}).run().expired_snapshots == 0
    assert upkeep(bench, expire_at_once=100).run().expired_snapshots == 0
    assert len(metadata(bench).snapshots) == count


def test_a_ledger_of_an_older_version_comes_down_by_itself(bench):
    """It has a manifest and a file for each write, and no properties that let writers merge."""
    lake = bench.lake
    lake.catalog().create_namespace("neve")
    old = lake.catalog().create_table(ledger.IDENTIFIER, ledger.SCHEMA)
    for number in range(12):
        old.append(ledger.rows_of([entry(number)]))
    steps = [upkeep(bench, compact_ledger_files=6, max_files_to_rewrite=8) for _ in range(2)]
    report = steps[0].run()
    assert (report.failures, report.compacted_files) == ({}, 12)
    # Set before all is small, the properties would let the next writer merge everything at once.
    old.refresh()
    files = int(old.current_snapshot().summary.additional_properties["total-data-files"])
    assert files == 5
    assert ledger.LEDGER_PROPERTIES.items() <= old.properties.items()
    assert len(old.metadata.snapshots) == 2
    assert steps[1].run().compacted_files == 0
    writer = LedgerWriter(lake)
    writer.add([entry(12)])
    writer.write()
    # At most one for each file that is left, and for the write: the others went.
    assert len(old.refresh().current_snapshot().manifests(old.io)) <= 6
    ids = old.scan().to_arrow()["batch_id"].to_pylist()
    assert sorted(ids) == sorted(f"b{number}" for number in range(13))


def test_what_a_follower_has_yet_to_read_stays_up_to_an_age(bench, caplog):
    for name in "abcd":
        bench.send(Signal.LOGS, name)
        bench.run()
    (batch,) = bench.lake.follow(
        "otel.logs", "copy", until=metadata(bench).snapshots[0].snapshot_id
    )
    batch.commit()
    upkeep(bench).run()
    (state,) = bench.lake.followers("otel.logs")
    assert state.lag_commits == len(metadata(bench).snapshots) - 1 >= 3
    assert sum(len(each.commits) for each in bench.lake.follow("otel.logs", "copy")) >= 3
    report = upkeep(bench, {**EVERYTHING, "follow_horizon_seconds": 0.001}).run()
    assert "otel.logs: follower copy is more than 0s behind" in caplog.text
    assert report.expired_snapshots > 0
    assert [each.lag_commits for each in report.followers] == [None]
    # The tag and the last two.
    assert len(metadata(bench).snapshots) == 3
