"""What merging means, event by event; each test holds the mirror against a plain replay."""

from __future__ import annotations

import json

import pytest
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from neve import failpoints
from neve.errors import CatalogError, ConfigError, ConflictError
from neve.lake import json_table
from neve.lake.identifier import quote_identifier
from neve.merge.carry_out import WrittenBatch
from neve.merge.report import TableReport
from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event
from tests.support.power_cut import power_cut

POINTS = [name for name in failpoints.POINTS if name.startswith("merge.")]


@pytest.fixture
def mirrored(embedded_lake):
    return Mirrored(embedded_lake)


def test_the_highest_sequence_wins_in_a_batch_and_across(mirrored):
    mirrored.append(
        event("I", 1, 1, "a"), event("U", 5, 1, "c"), event("U", 3, 1, "b"), event("I", 2, 2, "x")
    )
    report = mirrored.merge()
    mirrored.check()
    assert (report.rows_scanned, report.superseded, report.rows_upserted) == (4, 2, 2)
    mirrored.append(
        event("U", 4, 1, "late"),
        event("U", 6, 2, "y"),
        event("D", 7, 2),
        event("U", 3, 2, "late"),
        event("I", 9, 3, "new"),
        event("D", 8, 4),
    )
    report = mirrored.merge()
    mirrored.check()
    assert (report.late_dropped, report.rows_deleted, report.rows_upserted) == (1, 1, 1)
    # Deleted keys stay deleted for older events, whether they had a row or not, and come back.
    mirrored.append(event("I", 5, 4, "old"), event("I", 6, 2, "old"), event("I", 10, 2, "again"))
    mirrored.merge()
    mirrored.check()
    assert mirrored.found().keys() == {(1,), (2,), (3,)}
    assert mirrored.merge().outcome == "idle"


def test_a_turn_with_nothing_to_do_parses_no_metadata(mirrored, monkeypatch):
    for number in range(1, 4):
        mirrored.append(event("I", number, number))
        mirrored.merge()
    assert mirrored.merge().outcome == "idle"

    def refuse(*_):
        raise AssertionError("metadata is parsed that has not changed")

    with monkeypatch.context() as context:
        context.setattr(json_table, "decode_document", refuse)
        context.setattr(TableMetadataUtil, "parse_obj", refuse)
        context.setattr(Snapshot, "model_validate", refuse)
        assert mirrored.merge().outcome == "idle"
    mirrored.append(event("I", 4, 4))
    mirrored.merge()
    mirrored.check()


def test_what_cannot_be_taken_is_set_aside_and_blocks_nothing(mirrored):
    mirrored.append(
        event("I", 1, 1, "a"),
        event("I", 2, None, "no key"),
        event("I", None, 2, "no sequence"),
        event("X", 3, 3, "what"),
        event("T", None, None),
        {"op": None, "lsn": 4, "id": 4},
    )
    report = mirrored.merge()
    mirrored.check()
    assert report.set_aside == 5
    rows = mirrored.table("rows_rejected").scan().to_arrow().to_pylist()
    assert sorted(row["reason"] for row in rows) == [
        "the key column id is NULL",
        "the operation is not known",
        "the operation is not known",
        "the sequence column lsn is NULL",
        "the sequence column lsn is NULL",
    ]
    assert {json.loads(row["event"]).get("name") for row in rows} >= {"no key", "what"}
    assert all(row["changelog_file"] and row["neve_batch_id"] for row in rows)


def test_truncate_removes_what_is_older_also_what_comes_later(mirrored):
    mirrored.append(event("I", 1, 1, "a"), event("I", 5, 2, "b"), event("I", 9, 3, "c"))
    mirrored.merge()
    mirrored.append(event("T", 5, None), event("I", 4, 4, "old"), event("I", 6, 5, "new"))
    mirrored.merge()
    mirrored.check()
    assert mirrored.found().keys() == {(2,), (3,), (5,)}
    mirrored.append(event("I", 3, 6, "old"), event("D", 4, 3), event("T", 2, None))
    mirrored.merge()
    mirrored.check()
    mirrored.append(event("T", 20, None))
    assert mirrored.merge().outcome == "merged"
    assert mirrored.found() == {}


# Every order of such events, many at once: tests/properties/test_merge_histories.py.
@pytest.mark.soak
# Every order of such events is in tests/properties/test_merge_histories.py.
@pytest.mark.parametrize(
    "order",
    [
        (1, 3, 0, 2),
        pytest.param((0, 1, 2, 3), marks=pytest.mark.soak),
        pytest.param((3, 2, 1, 0), marks=pytest.mark.soak),
    ],
)
def test_equal_sequences_end_the_same_whatever_comes_first(embedded_lake, order):
    # Key by key: a snapshot row against an insert, two contents, a delete against an insert.
    waves = [
        [event("r", 1, 1, "zz"), event("U", 1, 2, "b"), event("D", 1, 3)],
        [event("I", 1, 1, "a"), event("U", 1, 2, "a", 7), event("I", 1, 3, "x")],
        [event("r", 1, 1, "zzz"), event("U", 1, 2, "b"), event("I", 1, 3, "y")],
        [event("I", 1, 1, "a"), event("U", 1, 2, "a"), event("I", 2, 4, None)],
    ]
    mirrored = Mirrored(embedded_lake)
    for number in order:
        mirrored.append(*waves[number])
        mirrored.merge()
        mirrored.check()
    assert mirrored.found()[(1,)]["name"] == "a"
    assert mirrored.found()[(2,)]["name"] == "b"
    assert (3,) not in mirrored.found()


def test_a_backlog_is_worked_off_in_commits_that_each_can_be_resumed(embedded_lake):
    mirrored = Mirrored(embedded_lake, batch_size=7)
    mirrored.append(event("I", 0, 99, "loaded"))
    mirrored.merge()
    for start in (0, 10):
        mirrored.append(*(event("I", n, n % 9, f"v{n}") for n in range(start, start + 10)))
    with power_cut("merge.published"):
        mirrored.merge()
    report = mirrored.merge()
    # The rest of a snapshot, and two parts of the next.
    assert report.batches == 3
    assert report.rows_scanned == 20 - 7
    mirrored.check()
    # Small snapshots share a commit.
    for n in range(100, 104):
        mirrored.append(event("I", n, n, "small"), event("D", n, n + 50))
    report = mirrored.merge()
    assert (report.batches, report.rows_scanned) == (2, 8)
    mirrored.check()
    assert len(mirrored.table("rows_tombstones").scan().to_arrow()) == 4


def test_a_merge_that_fails_has_said_what_it_did_before(embedded_lake, monkeypatch):
    mirrored = Mirrored(embedded_lake, batch_size=2, strategy=Strategy.SCAN)
    mirrored.append(event("I", 0, 9, "loaded"))
    mirrored.merge()
    mirrored.append(*(event("I", n, n, "a") for n in range(2)))
    mirrored.append(*(event("I", n, n, "b") for n in range(2, 4)))
    original = WrittenBatch.commit

    def refused(self, summary):
        if self.work.tables.mirror_rows > 1:
            raise ConflictError("main has moved", retryable=True)
        original(self, summary)

    monkeypatch.setattr(WrittenBatch, "commit", refused)
    report = TableReport(mirrored.mirror)
    with pytest.raises(ConflictError):
        mirrored.merger(attempts=3).merge(report=report)
    assert (report.batches, report.rows_upserted, report.conflicts) == (1, 2, 3)
    assert report.lag_snapshots == 1
    assert report.lag_seconds is not None
    assert report.duration_seconds > sum(report.merge_seconds) > 0


@pytest.mark.parametrize(
    "first",
    [
        "merge.applied",
        *(pytest.param(name, marks=pytest.mark.soak) for name in POINTS if name != "merge.applied"),
    ],
)
def test_a_crash_anywhere_loses_and_doubles_nothing(mirrored, first):
    """Once while the mirror is made, and then at every step while it lives."""
    mirrored.append(event("I", 1, 1, "a"), event("D", 1, 2), event("I", 1, None))
    for number, point in enumerate([first, *POINTS], 1):
        with power_cut(point):
            mirrored.merge()
        lsn = number * 10
        mirrored.append(
            event("U", lsn, 1, point),
            event("I", lsn, lsn, "to go"),
            event("D", lsn + 1, lsn),
            event("I", lsn - 10, lsn - 10, "late"),
            event("X", lsn, 1),
        )
    mirrored.merge()
    mirrored.check()
    # Each once, also what is beside the mirror.
    assert len(mirrored.table("rows_rejected").scan().to_arrow()) == number + 1
    tombstones = mirrored.table("rows_tombstones").scan().to_arrow()["id"].to_pylist()
    assert sorted(tombstones) == [2, *(n * 10 for n in range(1, number + 1))]


def test_a_rolled_back_mirror_catches_up_by_itself(mirrored):
    mirrored.append(event("I", 1, 1, "a"), event("I", 1, 2, "b"))
    mirrored.merge()
    then = mirrored.table().metadata.current_snapshot_id
    mirrored.append(event("D", 2, 1), event("U", 2, 2, "c"))
    mirrored.merge()
    mirrored.roll_back(then)
    assert mirrored.found().keys() == {(1,), (2,)}
    mirrored.append(event("I", 1, 3, "d"), event("I", 1, 1, "late"))
    assert mirrored.merge().batches == 1
    mirrored.check()
    assert len(mirrored.table("rows_tombstones").scan().to_arrow()) == 1


def test_compaction_and_expiry_of_both_tables_change_nothing(mirrored):
    for n in range(1, 3):
        mirrored.append(event("I", n, n, "a"), event("U", n + 1, 0, f"v{n}"))
        mirrored.merge()
    for table in mirrored.both:
        mirrored.compact(table)
    mirrored.append(event("U", 9, 2, "after"), event("D", 9, 1), event("X", 9, 3, "what"))
    mirrored.merge()
    mirrored.check()
    # The checkpoint's snapshot goes: what remains is merged over the mirror, and it says so.
    mirrored.append(event("U", 12, 2, "newer"))
    mirrored.append(event("U", 13, 2, "newest"))
    for table in mirrored.both:
        mirrored.expire(table)
    report = mirrored.merge()
    assert "is expired" in report.notes[0]
    mirrored.check()
    # What was set aside then is not set aside twice.
    assert len(mirrored.table("rows_rejected").scan().to_arrow()) == 1


def test_an_overwrite_in_the_changelog_is_refused_by_name(mirrored):
    mirrored.append(event("I", 1, 1, "a"), event("I", 1, 2, "b"))
    mirrored.merge()
    mirrored.table("changes").delete("id = 2")
    snapshot = mirrored.table("changes").metadata.current_snapshot_id
    with pytest.raises(CatalogError, match=str(snapshot)):
        mirrored.merge()
    with pytest.raises(CatalogError, match="is of the operation"):
        mirrored.merger().rebuild()


def test_a_rebuild_replaces_everything_in_one_commit(mirrored):
    mirrored.append(event("I", 1, 1, "a"), event("D", 2, 2), event("I", 1, 3, "c"))
    mirrored.merge()
    name = quote_identifier(("lake", mirrored.namespace, "rows"))
    mirrored.lake.sql(f"UPDATE {name} SET name = 'damaged', lsn = 99")
    before = len(mirrored.table().metadata.snapshots)
    report = mirrored.merger().rebuild()
    assert report.rows_upserted == 2
    mirrored.check()
    # The branch on which it was made is gone, and main has one commit more.
    assert len(mirrored.table().metadata.snapshots) == before + 1
    mirrored.append(event("I", 1, 2, "late"), event("U", 4, 3, "d"))
    mirrored.merge()
    mirrored.check()


def test_composite_keys_and_several_sequences_of_many_types(embedded_lake):
    import decimal
    from datetime import date, datetime, timezone

    import pyarrow as pa

    schema = pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.string()),
            ("c", pa.date32()),
            ("d", pa.decimal128(10, 2)),
            ("e", pa.binary()),
            ("f", pa.bool_()),
            ("g", pa.timestamp("us", tz="UTC")),
            ("h", pa.float64()),
            ("note", pa.map_(pa.string(), pa.string())),
            ("kind", pa.string()),
            ("commit", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
        ]
    )
    key = {
        "a": 1,
        "b": "x.y",
        "c": date(2026, 1, 2),
        "d": decimal.Decimal("1.50"),
        "e": b"\x00\xff",
        "f": True,
        "g": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "h": 0.5,
    }
    mirrored = Mirrored(
        embedded_lake,
        schema,
        primary_keys=tuple(key),
        sequence_column=("commit", "at"),
        operation_column="kind",
        operations={"upsert": "update", "gone": "delete"},
        partition_by=("bucket(4, b)", "day(g)"),
    )

    def row(kind, commit, second, note=None, **changed):
        at = datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)
        return {**key, **changed, "kind": kind, "commit": commit, "at": at, "note": note}

    mirrored.append(
        row("upsert", "0a", 1, [("k", "1")]),
        row("UPSERT", "0a", 3, [("k", "3")]),
        row("upsert", "09", 9, [("k", "9")]),
        row("upsert", "0a", 1, [("k", "2")], e=b"\x00"),
        row("upsert", "0a", 1, f=False),
    )
    mirrored.merge()
    mirrored.append(row("gone", "0a", 2, e=b"\x00"), row("upsert", "0a", 2, [("k", "2")]))
    report = mirrored.merge()
    assert (report.rows_deleted, report.late_dropped) == (1, 1)
    found = {
        (key[4], key[5]): (dict(row["note"]) if row["note"] else None, row["at"].second)
        for key, row in mirrored.found().items()
    }
    assert found == {(b"\x00\xff", True): ({"k": "3"}, 3), (b"\x00\xff", False): (None, 1)}
    assert [f.name for f in mirrored.table().spec().fields] == ["b_bucket", "g_day"]


def test_a_mirror_of_others_or_with_other_keys_is_refused(mirrored):
    mirrored.append(event("I", 1, 1, "a"))
    mirrored.lake.catalog().create_table(mirrored.mirror, mirrored.schema)
    with pytest.raises(ConfigError, match="not made by Neve"):
        mirrored.merge()
    mirrored.lake.catalog().drop_table(mirrored.mirror)
    mirrored.merge()
    mirrored.settings = mirrored.settings.model_copy(update={"primary_keys": ("id", "name")})
    with pytest.raises(ConfigError, match="made with primary_keys id"):
        mirrored.merge()


@pytest.mark.parametrize("made", [False, True])
def test_a_table_of_others_beside_the_mirror_is_left_alone(mirrored, made):
    name, catalog = f"{mirrored.namespace}.rows_rejected", mirrored.lake.catalog()
    mirrored.append(event("I", 1, 1, "a"))
    if made:
        mirrored.merge()
        catalog.drop_table(name)
    catalog.create_table(name, mirrored.schema).append(mirrored.table("changes").scan().to_arrow())
    before = catalog.load_table(name).metadata
    mirrored.append(event("X", 2, 1))
    with pytest.raises(ConfigError, match=r"rows_rejected beside it, .* not made by Neve"):
        mirrored.merge()
    assert catalog.load_table(name).metadata == before
    assert catalog.table_exists(f"{mirrored.namespace}.rows_tombstones") == made


def test_partitions_that_cannot_be_are_refused_before_anything_is_made(embedded_lake):
    mirrored = Mirrored(embedded_lake, partition_by="day(name)")
    mirrored.append(event("I", 1, 1, "a"))
    with pytest.raises(ConfigError, match="name is string, which day does not take"):
        mirrored.merge()
    assert [name[-1] for name in mirrored.lake.catalog().list_tables(mirrored.namespace)] == [
        "changes"
    ]


def test_a_dry_run_counts_and_writes_nothing(mirrored):
    mirrored.append(event("I", 1, 1, "a"), event("U", 2, 1, "b"), event("X", 1, 1))
    preview = mirrored.merger().preview()
    assert (preview.counts.upserted, preview.counts.set_aside) == (1, 1)
    assert [name[-1] for name in mirrored.lake.catalog().list_tables(mirrored.namespace)] == [
        "changes"
    ]
    mirrored.merge()
    before = mirrored.table().metadata
    mirrored.append(event("D", 3, 1), event("I", 1, 2), event("I", 0, 1, "late"))
    preview = mirrored.merger().preview()
    assert (preview.counts.deleted, preview.counts.upserted, preview.snapshots) == (1, 1, 1)
    assert mirrored.table().metadata == before
