"""First loads in one commit, and several mirrors at a time, in one Spark."""

from __future__ import annotations

import threading

import pytest

from neve.index.current_root import find_root
from neve.index.indexed_table import observe
from neve.index.maintain import plan_compaction
from neve.lake import job_progress
from neve.lake.horizons import snapshots_to_keep
from neve.lake.job_progress import telling_progress
from neve.merge import merger as merging
from neve.merge import strategy
from neve.merge.once import merge_once
from neve.merge.strategy import Strategy
from tests.support.merging import Mirrored, event
from tests.support.power_cut import power_cut

ROWS = 2000


def load(mirrored, *lsns):
    """Append a key's events by Spark: of each number its oldest, then newer ones."""
    for lsn in lsns:
        mirrored.append(*(event("I", lsn, key, f"v{lsn}") for key in range(ROWS)))


def root_of(mirrored):
    return find_root(observe(mirrored.lake, mirrored.spec.mirror))


@pytest.mark.parametrize("point", ["merge.prepared", "merge.applied", "merge.published"])
def test_a_first_load_of_any_size_is_one_commit_once(embedded_lake, monkeypatch, point):
    monkeypatch.setattr(merging, "INDEXED_ROWS", 100)
    monkeypatch.setattr(strategy, "INDEXED_ROWS", 100)
    monkeypatch.setattr(job_progress, "EVERY_SECONDS", 0.05)
    mirrored = Mirrored(embedded_lake, batch_size=10)
    load(mirrored, 1, 2)
    mirrored.append(event("D", 3, 7), event("?", 3, 8, "what"))
    said = []
    with power_cut(point):
        mirrored.merge(strategy=Strategy.AUTO, progress=said.append)
    report = mirrored.merge(strategy=Strategy.AUTO, progress=said.append)
    if point != "merge.published":
        assert (report.batches, report.rows_scanned) == (1, 2 * ROWS + 2)
        assert (report.rows_upserted, report.set_aside) == (ROWS - 1, 1)
        # Its index is built at once, for the next merge.
        assert report.index_entries == ROWS
    mirrored.check()
    assert any("loading in one commit: writing rows" in line for line in said)
    mirrored.append(event("U", 4, 9, "next"))
    report = mirrored.merge(strategy=Strategy.AUTO)
    assert report.strategy == ("scan" if point == "merge.published" else "index")
    mirrored.check()


def test_a_long_job_says_how_far_it_is(embedded_lake):
    said = threading.Event()
    context = embedded_lake.spark.sparkContext
    lines = []

    def tell(line):
        lines.append(line)
        said.set()

    with telling_progress(context, tell, every_seconds=0.05):
        while not said.is_set():
            embedded_lake.spark.range(1000).selectExpr("sum(id)").collect()
    assert " of " in lines[0]
    assert lines[0].endswith(" tasks")
    assert context.getLocalProperty("spark.jobGroup.id") is None


def test_an_index_is_compacted_after_the_commit(embedded_lake):
    """A power cut before the compacted index is named costs nothing: the next merge does it."""
    mirrored = Mirrored(embedded_lake, strategy=Strategy.INDEX)
    load(mirrored, 1)
    mirrored.merge()
    lsn = 1
    for number in range(1, 20):
        lsn += 1
        mirrored.append(event("U", lsn, number, "changed"))
        if number == 1:
            mirrored.merge()
            continue
        root, why = root_of(mirrored)
        assert root is not None, why
        if len(root.generations()) == 4:
            break
        mirrored.merge()
    assert plan_compaction(root) is None
    with power_cut("index.compacted"):
        mirrored.merge()
    # The batch is in the mirror, its index is named, and not merged yet.
    mirrored.check()
    cut, why = root_of(mirrored)
    assert cut is not None, why
    assert plan_compaction(cut) is not None
    assert mirrored.merge().outcome == "idle"
    mirrored.append(event("U", lsn + 1, 5, "after"), event("D", lsn + 1, 6))
    report = mirrored.merge()
    assert (report.strategy, report.index_rebuilds) == ("index", 0)
    mirrored.check()
    assert plan_compaction(root_of(mirrored)[0]) is None


def test_mirrors_are_merged_side_by_side_and_fail_alone(embedded_lake, monkeypatch):
    mirrors = [Mirrored(embedded_lake, batch_size=4) for _ in range(3)]
    settings = embedded_lake.settings
    tables = tuple(mirrored.settings for mirrored in mirrors)
    merge = settings.merge.model_copy(update={"tables": tables, "batch_size": 4})
    monkeypatch.setattr(embedded_lake, "settings", settings.model_copy(update={"merge": merge}))
    for wave in range(1, 4):
        for number, mirrored in enumerate(mirrors):
            mirrored.append(*(event("I", wave, key, f"{number}.{wave}") for key in range(6)))
            mirrored.append(event("D", wave + 1, wave), event("?", wave, 1, "what"))
        if wave == 3:
            # A changelog that nobody can follow is its own mirror's trouble.
            embedded_lake.sql(f"DELETE FROM {mirrors[1].changelog} WHERE id = 5")
        met = _met_on_threads(monkeypatch) if wave == 2 else None
        reports = merge_once(embedded_lake, ())
        assert [report.table for report in reports] == [mirrored.mirror for mirrored in mirrors]
        failed = [report.table for report in reports if report.error]
        assert failed == ([mirrors[1].mirror] if wave == 3 else [])
        if met is not None:
            assert met() == 2
    for number in (0, 2):
        mirrors[number].check()


def _met_on_threads(monkeypatch):
    """Have merges wait until two of them are at work; return how many that were."""
    barrier, names = threading.Barrier(2, timeout=60), set()
    original = merging.look

    def look(*arguments, **options):
        if len(names) < 2:
            names.add(threading.current_thread().name)
            barrier.wait()
        return original(*arguments, **options)

    monkeypatch.setattr(merging, "look", look)
    return lambda: len(names)


def test_merges_go_on_after_everything_but_what_they_need_is_expired(embedded_lake):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.INDEX)
    load(mirrored, 1)
    mirrored.merge()
    for lsn in range(2, 6):
        mirrored.append(event("U", lsn, lsn, "changed"), event("D", lsn, 10 + lsn))
        mirrored.append(event("?", lsn, lsn, "what"))
        mirrored.merge()
    mirrored.append(event("U", 6, 6, "waits"))
    mirrored.append(event("D", 7, 7))
    names = {"mirror": "rows", "tombstones": "rows_tombstones", "rejected": "rows_rejected"}
    names["changelog"] = "changes"
    tables = {role: mirrored.table(name).metadata for role, name in names.items()}
    keep = snapshots_to_keep(tables.pop("mirror"), **tables)
    for role, name in names.items():
        every = {each.snapshot_id for each in mirrored.table(name).metadata.snapshots}
        doomed = sorted(every - getattr(keep, role))
        # Of the side tables, those that old snapshots of the mirror name are kept for now.
        assert doomed or role in ("tombstones", "rejected")
        if doomed:
            ids = ", ".join(map(str, doomed))
            embedded_lake.sql(
                f"CALL system.expire_snapshots(table => '{mirrored.namespace}.{name}', "
                f"snapshot_ids => ARRAY({ids}))"
            ).collect()
    report = mirrored.merge()
    assert (report.strategy, report.rows_scanned, report.index_rebuilds) == ("index", 2, 0)
    assert report.notes == []
    mirrored.check()
    assert len(mirrored.table("rows_rejected").scan().to_arrow()) == 4
