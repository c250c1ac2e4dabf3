"""Cases that other tools' suites and bug reports name; each mirror is held against the replay."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

import neve
from neve import failpoints
from neve.index.maintain import build
from neve.merge.batch import BatchWork
from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event
from tests.support.power_cut import power_cut
from tests.support.readers import read_with_all

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc)


def test_an_update_that_changes_the_partition_leaves_no_stale_row(embedded_lake):
    mirrored = Mirrored(embedded_lake, partition_by=("name", "truncate(10, amount)"))
    mirrored.append(*(event("I", 1, key, "here", key) for key in range(6)))
    mirrored.merge()
    mirrored.append(
        # Once, twice in one batch, there and back, to no partition at all, gone from the new one.
        event("U", 2, 0, "there", 90),
        event("U", 2, 1, "there", 90),
        event("U", 3, 1, "elsewhere", 50),
        event("U", 2, 2, "there", 90),
        event("U", 3, 2, "here", 2),
        event("U", 2, 3, None, None),
        event("U", 2, 4, "there"),
        event("D", 3, 4),
        event("U", 1, 5, "late, to the left"),
    )
    mirrored.merge()
    mirrored.check()
    mirrored.append(event("U", 4, 3, "here", 3), event("U", 4, 1, "here", 1), event("D", 4, 0))
    mirrored.merge()
    mirrored.check()
    found = read_with_all(embedded_lake, mirrored.mirror)
    wanted = sorted(mirrored.wanted().values(), key=lambda row: row["id"])
    assert found == dict.fromkeys(found, wanted)


def test_tombstones_survive_compaction_expiry_and_a_restart(embedded_lake):
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("D", 10, 1), event("I", 1, 100, "row"))
    mirrored.merge()
    mirrored.append(event("D", 20, 2), event("D", 30, 3))
    mirrored.merge()
    tombstones = f"{mirrored.namespace}.rows_tombstones"
    mirrored.compact(tombstones)
    mirrored.append(event("I", 9, 1, "late"), event("I", 11, 2, "late"))
    mirrored.merge()
    mirrored.check()
    mirrored.compact(tombstones)
    mirrored.expire(tombstones)
    with neve.open(embedded_lake.settings) as lake:
        mirrored.lake = lake
        mirrored.append(event("I", 9, 1, "late"), event("I", 29, 3, "late"), event("I", 30, 3, "="))
        mirrored.append(event("I", 21, 2, "again"))
        report = mirrored.merge()
        assert report.late_dropped == 2
        mirrored.check()


def test_what_others_do_beside_the_mirror_stays(embedded_lake):
    mirrored = Mirrored(embedded_lake)
    for lsn in (1, 2):
        mirrored.append(event("D", lsn, lsn), event("X", lsn, 1), event("I", lsn, 100, "row"))
        mirrored.merge()
    mirrored.compact(f"{mirrored.namespace}.rows_tombstones")
    mirrored.lake.sql(f"DELETE FROM lake.{mirrored.namespace}.rows_rejected")
    compacted = mirrored.table("rows_tombstones").metadata.current_snapshot_id
    mirrored.append(event("I", 1, 2, "late"), event("U", 3, 100, "newer"))
    mirrored.merge()
    mirrored.check()
    assert mirrored.table("rows_tombstones").metadata.current_snapshot_id == compacted
    assert mirrored.table("rows_rejected").scan().count() == 0
    # With the index at what is compacted.
    mirrored.append(event("I", 1, 2, "late"), event("D", 4, 3), event("X", 4, 1))
    mirrored.merge(strategy=Strategy.INDEX)
    mirrored.check()
    assert mirrored.table("rows_tombstones").scan().count() == 3
    assert mirrored.table("rows_rejected").scan().count() == 1


def test_a_rebuild_that_is_killed_forgets_no_delete_and_no_rejected_event(
    embedded_lake, monkeypatch
):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.SCAN)
    mirrored.append(event("D", 10, 1), event("I", 1, 100, "row"), event("X", 1, 101))
    mirrored.append(event("Y", 1, 102, "row"))
    mirrored.merge()

    def cut(*_):
        raise failpoints.PowerCut

    monkeypatch.setattr("neve.merge.carry_out.plan_batch", cut)
    with pytest.raises(failpoints.PowerCut):
        mirrored.merger().rebuild()
    monkeypatch.undo()
    assert mirrored.table("rows_tombstones").scan().count() == 0
    mirrored.append(event("I", 9, 1, "late"))
    mirrored.merge()
    mirrored.check()
    # A rebuild leaves what it rejects itself; killed before its commit, all that was there.
    without_y = mirrored.settings
    mirrored.settings = without_y.model_copy(update={"operations": {"Y": "insert"}})
    with power_cut("merge.rejected"):
        mirrored.merger().rebuild()
    assert mirrored.table("rows_rejected").scan().count() == 1
    mirrored.settings = without_y
    mirrored.append(event("U", 2, 100, "newer"))
    mirrored.merge()
    mirrored.check()
    assert mirrored.table("rows_rejected").scan().count() == 2
    mirrored.settings = without_y.model_copy(update={"operations": {"Y": "insert"}})
    mirrored.merger().rebuild()
    assert mirrored.found().keys() == {(100,), (102,)}
    (rejected,) = mirrored.table("rows_rejected").scan().to_arrow()["event"].to_pylist()
    assert '"id":101' in rejected


@pytest.mark.parametrize("strategy", [Strategy.SCAN, Strategy.INDEX])
def test_a_delete_is_remembered_for_as_long_as_it_is_kept(embedded_lake, strategy):
    mirrored = Mirrored(embedded_lake, strategy=strategy, tombstone_retention="1h")
    mirrored.append(event("D", 10, 1), event("D", 10, 2), event("I", 1, 3, "row"))
    mirrored.merge()
    mirrored.append(event("I", 5, 1, "late"), event("D", 10, 4))
    assert mirrored.merge().strategy == strategy.value
    mirrored.check()
    if strategy is Strategy.INDEX:
        # Built from the tables it says the same.
        build(embedded_lake, (mirrored.namespace, "rows"), retention_seconds=3600)
    mirrored.append(event("I", 5, 4, "late"))
    mirrored.merge()
    mirrored.check()
    mirrored.settings = mirrored.settings.model_copy(update={"tombstone_retention": 0.001})
    mirrored.append(event("I", 5, 2, "back"))
    mirrored.merge()
    assert mirrored.found().keys() == {(2,), (3,)}
    # What was forgotten keeps nothing from the row that came back, also after a build.
    if strategy is Strategy.INDEX:
        build(embedded_lake, (mirrored.namespace, "rows"), retention_seconds=0.001)
    mirrored.append(event("U", 7, 2, "goes on"), event("U", 5, 2, "late"))
    mirrored.merge()
    assert mirrored.found()[(2,)]["name"] == "goes on"
    # Remembered for longer again, by an index that has forgotten: it is built anew.
    mirrored.settings = mirrored.settings.model_copy(update={"tombstone_retention": 3600.0})
    mirrored.append(event("I", 5, 1, "late"), event("U", 8, 3, "b"))
    mirrored.merge()
    assert mirrored.found().keys() == {(2,), (3,)}


def test_names_that_need_quoting(embedded_lake):
    schema = pa.schema(
        [
            ("the.id", pa.int64()),
            ("Key `2`", pa.string()),
            ("name 'of' it", pa.string()),
            ("op kind", pa.string()),
            ("l.s.n", pa.int64()),
        ]
    )
    mirrored = Mirrored(
        embedded_lake,
        schema,
        primary_keys=("the.id", "Key `2`"),
        sequence_column="l.s.n",
        operation_column="op kind",
    )

    def row(op, lsn, key, name=None):
        return dict(zip(schema.names, (key, "k", name, op, lsn), strict=True))

    mirrored.append(row("I", 1, 1, "a"), row("I", 1, 2, "b"), row("D", 2, 3), row("I", 1, None))
    mirrored.merge()
    mirrored.append(row("I", 1, 1, "b"), row("D", 2, 2), row("I", 1, 3, "late"), row("T", 1, None))
    mirrored.merge()
    mirrored.check()


@pytest.mark.parametrize("key", [pytest.param(pa.int64(), marks=pytest.mark.soak), pa.uuid()])
def test_uuids_as_values_and_as_keys(embedded_lake, key):
    schema = pa.schema(
        [("id", key), ("token", pa.uuid()), ("op", pa.string()), ("lsn", pa.int64())]
    )
    mirrored = Mirrored(embedded_lake, schema)

    def row(op, lsn, number, token=None):
        value = None if token is None else UUID(int=token)
        found = UUID(int=number << 64) if key == pa.uuid() else number
        return {"op": op, "lsn": lsn, "id": found, "token": value}

    mirrored.append(*(row("I", 1, number, number << 100) for number in range(6)))
    mirrored.merge()
    mirrored.append(row("U", 2, 0, 9), row("U", 2, 1), row("D", 2, 2), row("I", 2, 7, 7))
    mirrored.merge()
    mirrored.append(row("I", 1, 2, 2), row("U", 3, 7, 70), row("D", 3, 3), row("D", 3, 8))
    mirrored.merge()
    mirrored.append(row("I", 2, 8, 8), row("I", 4, 3, 33))
    mirrored.merge()
    mirrored.check()
    wanted = UUID(int=70)
    found = mirrored.lake.query(f"SELECT token FROM {mirrored.mirror} WHERE token = '{wanted}'")
    assert found["token"].to_pylist() == [str(wanted)]


@pytest.mark.soak
def test_wide_rows_that_pass_two_gigabytes_in_a_task(embedded_lake):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.INDEX)
    mirrored.append(event("I", 1, -1, "a"))
    mirrored.merge()
    # Two tasks, as the session has two cores.
    rows = embedded_lake.spark.range(470_000).selectExpr(
        "id", "repeat('x', 10000) AS name", "0L AS amount", "'I' AS op", "1L AS lsn"
    )
    rows.writeTo(f"lake.{mirrored.changelog}").append()
    report = mirrored.merge()
    assert (report.strategy, report.rows_upserted) == ("index", 470_000)
    found = embedded_lake.query(
        f"SELECT count(DISTINCT id) AS keys, sum(length(name)) AS size FROM {mirrored.mirror}"
    )
    assert found.to_pylist() == [{"keys": 470_001, "size": 4_700_000_001}]


def test_a_key_column_that_is_the_sequence_too(embedded_lake):
    """As of a table of measurements: device and time are the key, and the time orders events."""
    schema = pa.schema(
        [("dev", pa.string()), ("ts", pa.int64()), ("value", pa.int64()), ("op", pa.string())]
    )
    mirrored = Mirrored(embedded_lake, schema, primary_keys=("dev", "ts"), sequence_column="ts")

    def row(op, dev, ts, value=0):
        return {"dev": dev, "ts": ts, "value": value, "op": op}

    mirrored.append(*(row("I", "a", ts, ts) for ts in range(4)), row("D", "b", 1))
    mirrored.merge()
    for number in range(3):
        # New, again, else, deleted, late behind its delete.
        mirrored.append(row("I", "c", number), row("I", "a", 0), row("U", "a", 1, number))
        mirrored.append(row("D", "a", 2 + number % 2), row("I", "b", 1))
        mirrored.merge()
        mirrored.check()


@pytest.mark.parametrize(
    "chosen",
    [
        {"include_columns": ["name"]},
        pytest.param({"exclude_columns": ["amount"]}, marks=pytest.mark.soak),
    ],
)
def test_columns_that_are_not_wanted_stay_away(embedded_lake, chosen):
    mirrored = Mirrored(embedded_lake, **chosen)
    mirrored.append(event("I", 1, 1, "a", 7), event("I", 1, 2, "b", 8))
    mirrored.merge()
    mirrored.append(event("U", 2, 1, "c", 9), event("D", 2, 2))
    mirrored.merge()
    assert mirrored.found() == {(1,): {"id": 1, "name": "c", "lsn": 2}}


@pytest.mark.soak
@pytest.mark.parametrize("direction", ["ASC", "DESC"])
def test_equal_sequences_merged_again_one_by_one_in_another_order(embedded_lake, direction):
    """The changelog is sorted and its snapshots are expired, so that all of it is merged again."""
    mirrored = Mirrored(embedded_lake, batch_size=2)
    # A snapshot's row against another event, two contents, and what is as it was.
    mirrored.append(event("r", 5, 1, "z"), event("U", 5, 2, "b"), event("U", 5, 3, "c"))
    mirrored.merge()
    mirrored.append(event("U", 5, 1, "a"), event("U", 5, 2, "d"), event("U", 5, 2, "a"))
    mirrored.lake.sql(
        f"CALL system.rewrite_data_files(table => '{mirrored.changelog}', strategy => 'sort', "
        f"sort_order => 'name {direction}', options => map('rewrite-all', 'true'))"
    ).collect()
    mirrored.expire(mirrored.changelog)
    report = mirrored.merge()
    assert report.batches == 3
    mirrored.check()
    assert report.rows_upserted <= 4


def test_a_truncate_holds_when_nothing_else_of_the_past_is_left(embedded_lake):
    """Mirror and changelog are compacted, trimmed and expired: its tombstone is what remembers."""
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 1, 1, "old"), event("T", 10, None), event("I", 11, 2, "new"))
    mirrored.merge()
    mirrored.lake.sql(f"DELETE FROM lake.{mirrored.changelog} WHERE lsn < 11")
    for table in mirrored.both:
        mirrored.compact(table)
        mirrored.expire(table)
    mirrored.append(event("I", 9, 3, "late"), event("I", 12, 4, "newer"))
    report = mirrored.merge()
    assert "cannot be proven" in report.notes[0]
    mirrored.check()


@pytest.mark.soak
@pytest.mark.parametrize("marker", [None, "?"])
def test_a_truncate_and_what_it_removes_are_no_duplicates(embedded_lake, marker):
    mirrored = Mirrored(embedded_lake, unchanged_marker=marker)
    mirrored.append(
        event("T", 5, None),
        event("T", 3, None),
        event("I", 4, 1, "old"),
        event("I", 6, 2, "new"),
        event("U", 7, 2, "newer"),
    )
    report = mirrored.merge()
    mirrored.check()
    assert (report.rows_scanned, report.rows_upserted) == (5, 1)
    assert (report.applied, report.superseded, report.truncated) == (2, 2, 1)


def test_what_a_newer_partial_event_has_overtaken_is_counted(embedded_lake):
    mirrored = Mirrored(embedded_lake, unchanged_marker="?")
    mirrored.append(event("I", 1, 1, "a"), event("U", 6, 1, "?"), event("I", 1, 2, "b"))
    mirrored.append(event("U", 6, 2, "?"), event("U", 6, 3, "full"), event("I", 1, 4, "d"))
    assert mirrored.merge().late_full == 0
    # Late alone, and together with one that is not; a key that has no part in it.
    mirrored.append(event("U", 5, 1, "overtaken"), event("U", 5, 2, "overtaken"))
    mirrored.append(event("U", 8, 2, "?", 8), event("U", 8, 4, "?", 8))
    report = mirrored.merge()
    assert (report.late_dropped, report.late_full) == (1, 2)
    found = {key[0]: (row["name"], row["lsn"]) for key, row in mirrored.found().items()}
    assert found == {1: ("a", 6), 2: ("b", 8), 3: ("full", 6), 4: ("d", 8)}


@pytest.mark.soak
def test_a_mirror_that_lags_behind_its_tombstones_catches_up(embedded_lake):
    """Rolled back, compacted and expired: nothing says which tombstones it had."""
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 10, 1, "a"), event("I", 10, 2, "b"))
    mirrored.merge()
    then = mirrored.past()[0]
    mirrored.append(event("D", 11, 1))
    mirrored.merge()
    mirrored.roll_back(then)
    mirrored.compact(mirrored.mirror)
    mirrored.expire(mirrored.mirror)
    assert mirrored.merge().rows_deleted == 1
    mirrored.check()


@pytest.mark.parametrize(
    "strategy", [Strategy.INDEX, pytest.param(Strategy.SCAN, marks=pytest.mark.soak)]
)
def test_events_sent_again_cost_no_second_look(embedded_lake, strategy, monkeypatch):
    """Unless one of them says something else: then the changelog is asked which is the greater."""
    schema = pa.schema(
        [
            *(("id", pa.int64()), ("op", pa.string()), ("lsn", pa.int64())),
            *(("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2))),
            *(("tags", pa.list_(pa.string())), ("ratio", pa.float64())),
        ]
    )
    mirrored = Mirrored(embedded_lake, schema, strategy=strategy)

    def update(key, lsn, price="1.50"):
        values = {"at": MOMENT, "price": Decimal(price), "tags": ["a", None], "ratio": None}
        return {"op": "U", "lsn": lsn, "id": key, **values}

    mirrored.append(*(update(key, 1) for key in range(8)))
    mirrored.merge()
    mirrored.append(*(update(key, 2) for key in range(4)))
    mirrored.merge()
    read = []
    include_merged = BatchWork.include_merged
    monkeypatch.setattr(
        BatchWork,
        "include_merged",
        lambda work, *ends: (read.append(ends), include_merged(work, *ends)),
    )
    mirrored.append(update(1, 2), update(6, 1), update(2, 1), update(3, 3))
    report = mirrored.merge()
    assert (report.rows_upserted, report.ties, read) == (1, 0, [])
    mirrored.check()
    mirrored.append(update(1, 2, "7.50"), update(6, 1, "0.50"), update(3, 3))
    mirrored.append(update(9, 5), update(9, 5, "2.50"))
    report = mirrored.merge()
    assert (report.rows_upserted, report.ties, read) == (2, 3, [(1, 2)])
    assert "3 keys have different events of the same sequence" in report.notes[0]
    mirrored.check()
