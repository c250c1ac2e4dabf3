"""A dry run says what the merge then does, and writes nothing."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa
import pytest

from neve.cli.app import run
from neve.errors import EXIT_INCOMPLETE
from neve.merge.strategy import Strategy
from tests.support.merging import SCHEMA, Mirrored, event

OTHERWISE = {
    "index": "scan if the index is broken, scan if a key has several rows, "
    "merge if there is a TRUNCATE",
    "scan": "merge if there is a TRUNCATE",
    "merge": "",
}
NO_INDEX = ("scan", "there is no index yet: it was never built")


@pytest.fixture(autouse=True)
def _small_tables_are_indexed(monkeypatch):
    monkeypatch.setattr("neve.merge.strategy.INDEXED_ROWS", 10)


def filled(lake, **options):
    """Return a mirror of 40 rows that no index is of."""
    mirrored = Mirrored(lake, strategy=Strategy.AUTO, **options)
    mirrored.append(*(event("I", 1, n, f"v{n}") for n in range(40)))
    mirrored.merge()
    return mirrored


def preview_of(mirrored, **options):
    """Preview, and see that nothing is written."""
    tables = ["rows", *(f"rows_{one}" for one in ("tombstones", "rejected"))]
    before = [mirrored.table(name).metadata for name in tables]
    found = mirrored.merger().preview(**options)
    assert [mirrored.table(name).metadata for name in tables] == before
    return found


def told_and_done(mirrored, *events):
    """Preview events and merge them; return what both say of the way they take."""
    mirrored.append(*events)
    preview = preview_of(mirrored)
    report = mirrored.merge()
    mirrored.check()
    told = (preview.strategy, preview.why)
    assert preview.otherwise == OTHERWISE[preview.strategy]
    assert told == (report.strategy, report.why)
    counts = preview.counts
    assert (counts.upserted, counts.deleted) == (report.rows_upserted, report.rows_deleted)
    return told, report


def test_the_way_that_is_told_is_the_way_that_is_taken(embedded_lake):
    mirrored = filled(embedded_lake)
    told, report = told_and_done(mirrored, event("U", 2, 1, "b"), event("D", 2, 2))
    assert (told, report.index_rebuilds) == (NO_INDEX, 1)
    told, _ = told_and_done(mirrored, event("U", 3, 1, "c"), event("I", 1, 2, "late"))
    assert told[0] == "index"
    told, _ = told_and_done(mirrored, event("T", 4, None), event("I", 5, 1, "d"))
    assert told == ("merge", "a TRUNCATE touches most of the table")


def test_uuids_are_indexed(embedded_lake):
    schema = SCHEMA.set(0, pa.field("id", pa.uuid()))
    mirrored = Mirrored(embedded_lake, schema=schema, strategy=Strategy.AUTO)
    keys = [uuid.UUID(int=n << 64 | 1) for n in range(40)]
    mirrored.append(*(event("I", 1, key, "a") for key in keys))
    mirrored.merge()
    mirrored.append(event("U", 2, keys[1], "b"), event("D", 2, keys[2]))
    report = mirrored.merge()
    assert (report.strategy, report.why, report.index_rebuilds) == (*NO_INDEX, 1)
    events = [event("U", 3, keys[1], "c"), event("U", 3, keys[3], "c"), event("I", 1, keys[2], "d")]
    told, report = told_and_done(mirrored, *events)
    # Two rows and a tombstone are found; then one that the merge before has put into the index.
    assert (told[0], report.index_hits) == ("index", 3)
    mirrored.append(event("D", 4, keys[3]), event("I", 4, keys[2], "e"))
    report = mirrored.merge()
    mirrored.check()
    assert (report.strategy, report.index_hits) == ("index", 2)


def test_a_rebuild_is_previewed_as_such(embedded_lake):
    mirrored = filled(embedded_lake)
    mirrored.append(event("D", 2, 1))
    mirrored.merge()
    preview = preview_of(mirrored, rebuild=True)
    assert (preview.strategy, preview.why) == ("merge", "a rebuild")
    assert (preview.counts.scanned, preview.counts.upserted, preview.counts.late) == (41, 39, 0)
    report = mirrored.merger().rebuild()
    assert (report.rows_scanned, report.rows_upserted) == (41, 39)
    assert preview_of(mirrored).counts.scanned == 0


def test_tombstones_of_which_the_snapshot_is_expired_count_all(embedded_lake):
    mirrored = filled(embedded_lake)
    mirrored.append(event("D", 10, 1), event("D", 10, 2))
    mirrored.merge()
    tombstones = f"{mirrored.namespace}.rows_tombstones"
    mirrored.compact(tombstones)
    mirrored.expire(tombstones)
    mirrored.append(event("I", 9, 1, "late"), event("I", 11, 2, "again"))
    counts = preview_of(mirrored).counts
    assert (counts.late, counts.upserted) == (1, 1)
    # The commits that name tombstones are gone as well.
    mirrored.lake.sql(f"DELETE FROM {mirrored.mirror} WHERE id = 30")
    mirrored.expire(mirrored.mirror)
    counts = preview_of(mirrored).counts
    assert (counts.late, counts.upserted) == (1, 2)


def test_one_table_that_fails_ends_no_dry_run(embedded_lake, tmp_path, capsys):
    mirrored = Mirrored(embedded_lake)
    mirrored.append(event("I", 1, 1, "a"))
    table = mirrored.settings.model_dump(mode="json", exclude_none=True)
    absent = {**table, "changelog_table": "absent", "mirror_table": "other"}
    config = mirrored.write_config(tmp_path / "neve.yaml", merge={"tables": [absent, table]})
    assert run(["--config", str(config), "--json", "merge", "--dry-run"]) == EXIT_INCOMPLETE
    printed = capsys.readouterr()
    failed, other = json.loads(printed.out)
    assert (failed["table"], other["table"]) == (f"{mirrored.namespace}.other", mirrored.mirror)
    assert "absent" in failed["error"]
    assert "absent" in printed.err
    assert (other["upserts"], other["error"]) == (1, None)
    mirrored.merge()
    rebuild = ["merge", mirrored.mirror, "--rebuild", "--dry-run"]
    assert run(["--config", str(config), "--json", *rebuild]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["why"], row["upserts"]) == ("a rebuild", 1)
    assert row["otherwise"] == ""
