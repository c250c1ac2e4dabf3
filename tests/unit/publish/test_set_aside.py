"""Rows that audits set aside: each in exactly one of the two tables, whatever is killed."""

import pytest

import neve
from neve import failpoints
from neve.errors import StorageError
from neve.publish.batch import Outcome
from neve.publish.contains import contained_in
from neve.publish.ranges import BATCH_ID, RANGES, REJECTED_PREFIX, Range, encode_ranges
from neve.publish.rejected_rows import RejectedRows
from tests.support.lakes import sqlite_settings
from tests.support.publishing import STREAM, AuditedById, Lab

REJECTED = "otel.logs_rejected"
POINTS = [
    "publish.staged",
    "publish.staged@2",
    "publish.rejected_staged",
    "publish.clean_staged",
    "publish.ready",
    "publish.published",
    "publish.rejected_ready",
    "publish.rejected_published",
]


@pytest.fixture
def lab(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Lab(lake)


def audited(lab):
    return AuditedById(lab.lake, lab.publisher(), ())


def start(lab, *batches):
    """What a worker does from its start: finish, then its batches; returns what it reports."""
    worker = audited(lab)
    worker.audits = ("one",)
    worker.rejected.finish()
    verdicts = []
    while staged := worker.publisher.waiting():
        verdicts.append(worker.audit_and_publish(staged))
    for batch_id, ids, first, last in batches:
        if worker.publisher.marks().get(STREAM, 0) < last:
            staged = worker.publisher.stage(batch_id, lab.files(*ids), {STREAM: Range(first, last)})
            verdicts.append(worker.audit_and_publish(staged))
    return verdicts


def named(lab):
    properties = lab.lake.catalog().load_table("otel.logs").properties
    return [key for key in properties if key.startswith(REJECTED_PREFIX)]


def test_rows_set_aside_are_shown_once_and_the_main_table_names_them_until_then(lab):
    (verdict,) = start(lab, ("b1", [1, 2, 100], 1, 1))
    assert (verdict.outcome, verdict.set_aside) == (Outcome.PUBLISHED, 1)
    assert verdict.staged.summary["added-records"] == "2"
    assert (lab.rows(), lab.rows(REJECTED)) == ([1, 2], [100])
    assert len(named(lab)) == 1
    start(lab, ("b2", [3], 2, 2))
    assert named(lab) == []
    assert (lab.rows(), lab.rows(REJECTED)) == ([1, 2, 3], [100])
    assert lab.refs() == lab.refs(REJECTED) == ["main"]
    assert lab.publisher().marks() == {STREAM: 2}


def test_a_split_that_loses_a_row_is_not_published(lab, monkeypatch):
    split = AuditedById._split

    def losing(worker, staged, batch_id):
        found = split(worker, staged, batch_id)
        found.passed.clear()
        return found

    monkeypatch.setattr(AuditedById, "_split", losing)
    (verdict,) = start(lab, ("b1", [1, 2, 100], 1, 1))
    assert verdict.outcome is Outcome.UNBALANCED
    assert "3 records were read, but 0 rows + 1 set aside" in verdict.unfinished.message
    assert (lab.rows(), lab.publisher().marks()) == ([], {})
    monkeypatch.setattr(AuditedById, "_split", split)
    assert [each.outcome for each in start(lab)] == [Outcome.PUBLISHED]
    assert (lab.rows(), lab.rows(REJECTED)) == ([1, 2], [100])


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("other_writer", [False, True])
def test_a_worker_cut_anywhere_leaves_each_row_in_one_table(lab, point, other_writer):
    name, _, passes = point.partition("@")
    with pytest.raises(failpoints.PowerCut), failpoints.armed(name, int(passes or 1)):
        start(lab, ("b1", [1, 100], 1, 1))
    expected = [1, 2]
    if other_writer:
        lab.append_by_another(50)
        expected = [1, 2, 50]
    start(lab, ("again", [1, 100], 1, 1))
    start(lab, ("b2", [2, 101], 2, 2))
    start(lab)
    assert lab.rows() == expected
    assert lab.rows(REJECTED) == [100, 101]
    assert lab.refs() == lab.refs(REJECTED) == ["main"]
    assert lab.publisher().marks() == {STREAM: 2}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_of_two_workers_with_other_cuts_only_the_winner_sets_rows_aside(lab, monkeypatch, moment):
    """The second worker takes both segments while the first is at the first of them."""
    verdicts = []
    stage = RejectedRows.stage

    def interrupted(*arguments):
        monkeypatch.setattr(RejectedRows, "stage", stage)
        if moment == "before":
            verdicts.extend(compete(lab))
        staged = stage(*arguments)
        if moment == "after":
            verdicts.extend(compete(lab))
        return staged

    monkeypatch.setattr(RejectedRows, "stage", interrupted)
    verdicts += start(lab, ("slow", [1, 100], 1, 1))
    verdicts += start(lab, ("next", [3, 102], 3, 3))
    assert lab.rows() == [1, 2, 3]
    assert lab.rows(REJECTED) == [100, 101, 102]
    assert sum(verdict.set_aside for verdict in verdicts) == 3
    start(lab)
    assert lab.refs() == lab.refs(REJECTED) == ["main"]


def test_a_worker_that_starts_meanwhile_discards_nothing_that_may_still_win(lab, monkeypatch):
    stage = RejectedRows.stage

    def interrupted(*arguments):
        staged = stage(*arguments)
        audited(lab).rejected.finish()
        return staged

    monkeypatch.setattr(RejectedRows, "stage", interrupted)
    start(lab, ("b1", [1, 100], 1, 1))
    assert (lab.rows(), lab.rows(REJECTED)) == ([1], [100])


def compete(lab):
    worker = audited(lab)
    worker.audits = ("one",)
    ids, ranges = [1, 2, 100, 101], {STREAM: Range(1, 2)}
    staged = worker.publisher.stage("quick", lab.files(*ids), ranges)
    return [worker.audit_and_publish(staged)]


def test_of_two_workers_that_audit_the_same_staging_one_sets_rows_aside(lab, monkeypatch):
    first, second = audited(lab), audited(lab)
    first.audits = second.audits = ("one",)
    staged = first.publisher.stage("b1", lab.files(1, 100), {STREAM: Range(1, 1)})
    split, verdicts = AuditedById._split, []

    def interrupted(worker, *arguments):
        files = split(worker, *arguments)
        if worker is first:
            verdicts.append(second.audit_and_publish(second.publisher.waiting()))
        return files

    monkeypatch.setattr(AuditedById, "_split", interrupted)
    verdicts.append(first.audit_and_publish(staged))
    assert [verdict.outcome for verdict in verdicts] == [Outcome.PUBLISHED, Outcome.SUPERSEDED]
    start(lab)
    assert (lab.rows(), lab.rows(REJECTED)) == ([1], [100])
    assert lab.refs(REJECTED) == ["main"]


def test_rejected_rows_that_cannot_be_shown_are_told_and_shown_later(lab, monkeypatch):
    def fail(*_):
        raise StorageError("its bucket is away")

    with monkeypatch.context() as patch:
        patch.setattr(RejectedRows, "publish", fail)
        (verdict,) = start(lab, ("b1", [1, 100], 1, 1))
    assert verdict.outcome is Outcome.PUBLISHED
    assert str(verdict.unfinished) == "its bucket is away"
    assert (lab.rows(), lab.rows(REJECTED)) == ([1], [])
    start(lab)
    assert (lab.rows(), lab.rows(REJECTED)) == ([1], [100])


def test_a_name_goes_only_after_its_rows_are_seen_to_be_shown(lab):
    with pytest.raises(failpoints.PowerCut), failpoints.armed("publish.published"):
        start(lab, ("b1", [1, 100], 1, 1))
    # A worker that commits to the main table, and never looks at the rejected rows.
    publisher = lab.publisher()
    publisher.publish(publisher.stage("b2", lab.files(2), {STREAM: Range(2, 2)}))
    assert len(named(lab)) == 1
    start(lab, ("b3", [3], 3, 3))
    assert named(lab) == []
    assert lab.rows(REJECTED) == [100]


def test_rejected_rows_are_shown_though_their_table_was_away_meanwhile(lab):
    with pytest.raises(failpoints.PowerCut), failpoints.armed("publish.published", 1):
        start(lab, ("b1", [1, 100], 1, 1))
    catalog = lab.lake.catalog()
    catalog.rename_table(REJECTED, "otel.away")
    start(lab, ("b2", [2], 2, 2))
    start(lab, ("b3", [3], 3, 3))
    catalog.rename_table("otel.away", REJECTED)
    start(lab)
    assert (lab.rows(), lab.rows(REJECTED)) == ([1, 2, 3], [100])


def test_all_rows_may_be_set_aside(lab):
    start(lab, ("b1", [100, 101], 1, 1))
    assert (lab.rows(), lab.rows(REJECTED)) == ([], [100, 101])
    assert lab.publisher().marks() == {STREAM: 1}


def test_rows_that_an_earlier_version_set_aside_before_it_was_killed_stay_once(lab):
    worker = audited(lab)
    ranges = {STREAM: Range(1, 1)}
    staged = worker.publisher.stage("b1", lab.files(1, 100), ranges)
    rejected_files = worker._split(staged, "b1").failed
    rejected = worker.rejected.open().table
    rejected.append(rejected_files, {BATCH_ID: "b1", RANGES: encode_ranges(ranges)})
    start(lab)
    assert (lab.rows(), lab.rows(REJECTED)) == ([1], [100])
    assert lab.refs() == lab.refs(REJECTED) == ["main"]


def test_old_marks_of_the_rejected_table_are_not_asked(lab):
    start(lab, ("b1", [100], 1, 1))
    table = lab.lake.catalog().load_table(REJECTED)
    with table.transaction() as transaction:
        transaction.set_properties({f"neve.mark.{STREAM}": "99"})
    start(lab, ("b2", [101], 2, 2))
    assert lab.rows(REJECTED) == [100, 101]


def test_a_stream_that_is_away_stays_in_the_statement_of_the_rejected_table(lab):
    start(lab, ("b1", [100], 1, 1))
    lab.streams.present.discard(STREAM)
    worker = audited(lab)
    worker.audits = ("one",)
    staged = worker.publisher.stage("b2", lab.files(101), {"logs/b": Range(1, 1)})
    worker.audit_and_publish(staged)
    assert set(contained_in(worker.rejected.open().table)) == {STREAM, "logs/b"}
