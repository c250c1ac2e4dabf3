"""Publishing on an embedded catalog, without Spark: exactly once, whatever is killed and whoever
else is at it."""

import json

import pytest

import neve
from neve.errors import NotFoundError, StorageError
from neve.lake.staging import Change
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX, Outcome
from neve.publish.contains import contained_in
from neve.publish.ranges import OTHER_MARKS, REPLAY, Range, encode_other_marks
from neve.publish.staged_batches import show
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut
from tests.support.publishing import OTHERS, STREAM, KnownStreams, Lab, Lossy


@pytest.fixture
def lab(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Lab(lake)


def test_staged_rows_are_invisible_until_published_and_marks_move_with_them(lab):
    publisher = lab.publisher()
    staged = publisher.stage("b1", lab.files(1, 2), {STREAM: Range(1, 3)})
    assert lab.rows() == []
    assert publisher.marks() == {}
    assert publisher.publish(staged) is Outcome.PUBLISHED
    assert lab.rows() == [1, 2]
    assert publisher.marks() == {STREAM: 3}
    assert publisher.table.staged(STAGED_PREFIX) == []


def test_the_same_range_is_published_once_also_after_expiry(lab):
    assert lab.run("b1", [1], 1, 1) is Outcome.PUBLISHED
    assert lab.run("b2", [2], 2, 2) is Outcome.PUBLISHED
    lab.expire_everything()
    assert lab.run("again", [1], 1, 1) is Outcome.SUPERSEDED
    assert lab.rows() == [1, 2]


@pytest.mark.parametrize("point", ["publish.staged", "publish.ready", "publish.published"])
@pytest.mark.parametrize("other_writer", [False, True])
def test_a_worker_cut_anywhere_leaves_exactly_one_copy(lab, point, other_writer):
    def work():
        publisher = lab.publisher()
        staged = publisher.stage("b1", lab.files(1, 2), {STREAM: Range(1, 3)})
        if other_writer:
            lab.append_by_another(99)
        publisher.publish(staged)

    with power_cut(point):
        work()
    if other_writer and point == "publish.staged":
        lab.append_by_another(99)
    lab.expire_everything()
    lab.run("b1-again", [1, 2], 1, 3)
    assert lab.rows() == ([1, 2, 99] if other_writer else [1, 2])
    assert lab.publisher().marks() == {STREAM: 3}
    assert lab.publisher().table.staged(STAGED_PREFIX) == []


def test_a_batch_is_appended_to_a_main_that_moved_in_one_commit(lab):
    publisher = lab.publisher()
    staged = publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    lab.append_by_another(2)
    before = lab.snapshot_ids()
    assert publisher.publish(staged) is Outcome.PUBLISHED
    assert publisher.counters.restaged == 1
    assert len(lab.snapshot_ids()) == len(before) + 1
    summary = next(publisher.table.main_summaries())
    # Older versions of Iceberg would delete the files with the staged snapshot (iceberg#13614).
    assert summary["source-snapshot-id"] == str(staged.snapshot_id)
    assert summary["neve.batch-id"] == "b1"
    assert lab.refs() == ["main"]
    assert lab.rows() == [1, 2]
    lab.expire_everything()
    assert lab.rows() == [1, 2]


def test_a_staging_that_was_discarded_and_expired_is_not_published_without_its_rows(lab):
    publisher = lab.publisher()
    staged = publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    lab.publisher().discard(staged)
    lab.append_by_another(2)
    lab.expire_everything()
    with pytest.raises(NotFoundError, match="is gone"):
        publisher.publish(staged)
    assert publisher.marks() == {}
    assert lab.run("again", [1], 1, 1) is Outcome.PUBLISHED
    assert lab.rows() == [1, 2]


def test_of_two_workers_on_the_same_segments_one_wins(lab):
    first, second = lab.publisher(), lab.publisher()
    one = first.stage("b1", lab.files(1), {STREAM: Range(1, 2)})
    two = second.stage("b2", lab.files(1), {STREAM: Range(1, 2)})
    assert two is not None
    assert first.waiting().ref == one.ref
    assert first.publish(one) is Outcome.PUBLISHED
    assert second.publish(two) is Outcome.SUPERSEDED
    assert lab.rows() == [1]


def other_marks(publisher, ranges):
    return encode_other_marks(publisher.marks(), ranges, publisher.streams.owns)


@pytest.mark.parametrize("step", ["stage", "stage_clean", "waiting", "publish", "hold"])
def test_a_batch_decoded_before_another_stream_moved_may_hold_copies_and_loses(lab, step):
    slow, other = lab.publisher(), lab.publisher()
    other.publish(other.stage("b1", lab.files(1), {"logs/b": Range(1, 1)}))
    ranges = {STREAM: Range(1, 1)}
    summary = other_marks(slow, ranges)
    staged = slow.stage("slow", lab.files(2), ranges, summary) if step != "stage" else None
    other.publish(other.stage("b2", lab.files(2), {"logs/b": Range(2, 2)}))
    results = {
        "stage": lambda: slow.stage("slow", lab.files(2), ranges, summary),
        "stage_clean": lambda: slow.stage_clean(staged, "clean", lab.files(2), None),
        "waiting": slow.waiting,
        "publish": lambda: slow.publish(staged),
        "hold": lambda: slow.hold(staged),
    }
    assert results[step]() in (None, Outcome.SUPERSEDED)
    if step == "stage_clean":
        slow.waiting()
    assert lab.refs() == ["main"]
    assert lab.rows() == [1, 2]
    # Decoded again, with the marks of now, it goes through.
    again = slow.stage("again", lab.files(3), ranges, other_marks(slow, ranges))
    assert slow.publish(again) is Outcome.PUBLISHED


def test_marks_in_the_summary_of_an_earlier_version_are_compared_one_by_one(lab):
    slow, other = lab.publisher(), lab.publisher()
    other.publish(other.stage("b1", lab.files(1), {"logs/b": Range(1, 1)}))
    ranges = {STREAM: Range(1, 1)}
    same, older = (
        slow.stage(name, lab.files(2), ranges, {OTHER_MARKS: json.dumps(marks)})
        for name, marks in (("same", {"logs/b": 1, "logs/x-1": 7}), ("older", {"logs/b": 0}))
    )
    assert older is None
    assert slow.publish(same) is Outcome.PUBLISHED


def test_what_a_summary_says_of_other_streams_does_not_grow_with_their_number(lab):
    marks = {f"logs/{number}": number for number in range(100)}
    entry = encode_other_marks(marks, {STREAM: Range(1, 1)}, lab.streams.owns)
    assert len(entry[OTHER_MARKS]) < 60


def test_only_other_streams_of_the_own_buffer_can_hold_copies(lab):
    theirs = f"{OTHERS}1"
    other = lab.publisher()
    other.streams = KnownStreams(STREAM, theirs)
    slow = lab.publisher()
    ranges = {STREAM: Range(1, 1)}
    staged = slow.stage("slow", lab.files(1), ranges, other_marks(slow, ranges))
    other.publish(other.stage("theirs", lab.files(2), {theirs: Range(1, 1)}))
    lab.append_by_another(3)
    assert slow.publish(staged) is Outcome.PUBLISHED
    assert lab.rows() == [1, 2, 3]


def test_a_batch_that_may_hold_copies_and_is_on_main_already_is_consumed(lab):
    slow, other = lab.publisher(), lab.publisher()
    ranges = {STREAM: Range(1, 1)}
    staged = slow.stage("slow", lab.files(1), ranges, other_marks(slow, ranges))
    slow.table.apply(Change(staged.parent_id, staged.snapshot_id))
    other.publish(other.stage("b1", lab.files(1), {"logs/b": Range(1, 1)}))
    assert slow.publish(slow.waiting()) is Outcome.PUBLISHED
    assert slow.marks() == {STREAM: 1, "logs/b": 1}
    assert lab.rows() == [1, 1]


@pytest.mark.parametrize("other_writer", [False, True])
def test_a_staged_batch_that_somebody_brought_to_main_is_only_consumed(lab, other_writer):
    publisher = lab.publisher()
    staged = publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    if other_writer:
        # As Iceberg's cherry-pick does, where main is not the parent any more.
        lab.append_by_another(2)
        publisher.marks()
        source = {"source-snapshot-id": str(staged.snapshot_id)}
        publisher.table.append(publisher.table.added_files(staged.snapshot_id), source)
    else:
        publisher.table.apply(Change(staged.parent_id, staged.snapshot_id))
    Lossy(publisher.table, ["conflict", "lost before"])
    assert publisher.publish(publisher.waiting()) is Outcome.PUBLISHED
    assert lab.run("again", [1], 1, 1) is Outcome.SUPERSEDED
    assert lab.rows() == ([1, 2] if other_writer else [1])
    assert lab.refs() == ["main"]
    assert contained_in(lab.publisher().table) == {STREAM: (Range(1, 1),)}


def test_a_longer_range_that_begins_where_another_did_loses_too(lab):
    first, second = lab.publisher(), lab.publisher()
    one = first.stage("b1", lab.files(1), {STREAM: Range(1, 2)})
    two = second.stage("b2", lab.files(1, 2), {STREAM: Range(1, 5)})
    first.publish(one)
    assert second.publish(two) is Outcome.SUPERSEDED
    assert lab.rows() == [1]


def test_a_staging_of_a_stream_that_was_dropped_is_discarded(lab):
    publisher = lab.publisher()
    publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    lab.streams.drop(STREAM)
    assert publisher.waiting() is None
    assert publisher.table.staged(STAGED_PREFIX) == []
    assert lab.rows() == []


def test_a_stream_that_is_not_found_proves_nothing(lab):
    publisher = lab.publisher()
    staged = publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    lab.streams.present.discard(STREAM)
    with pytest.raises(StorageError, match=f"{STREAM} is not in the buffer") as refusal:
        publisher.publish(staged)
    assert refusal.value.retryable
    for step in (
        publisher.waiting,
        lambda: publisher.hold(staged),
        lambda: lab.run("b2", [1], 1, 1),
    ):
        with pytest.raises(StorageError, match="was not dropped"):
            step()
    assert publisher.abandoned(before_ms=2**62) == []
    lab.streams.present.add(STREAM)
    assert publisher.publish(publisher.waiting()) is Outcome.PUBLISHED
    assert lab.rows() == [1]


def test_what_is_behind_a_mark_is_consumed_also_while_its_stream_is_not_found(lab):
    first, second = lab.publisher(), lab.publisher()
    staged = first.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    second.stage("b2", lab.files(1), {STREAM: Range(1, 1)})
    first.publish(staged)
    lab.streams.present.discard(STREAM)
    assert [batch.ref for batch in second.abandoned(before_ms=2**62)] == [f"{STAGED_PREFIX}b2"]
    assert second.waiting() is None
    assert lab.refs() == ["main"]


def test_marks_and_stagings_of_another_buffer_are_left_alone(lab):
    other = lab.publisher()
    other.streams = KnownStreams(f"{OTHERS}1", f"{OTHERS}2")
    other.publish(other.stage("t1", lab.files(7), {f"{OTHERS}1": Range(1, 4)}))
    other.stage("t2", lab.files(8), {f"{OTHERS}2": Range(1, 1)})
    lab.run("b1", [1], 1, 1)
    lab.run("b2", [2], 2, 2)
    publisher = lab.publisher()
    assert publisher.marks() == {STREAM: 2, f"{OTHERS}1": 4}
    assert publisher.waiting() is None
    assert publisher.abandoned(before_ms=2**62) == []
    assert other.publish(other.waiting()) is Outcome.PUBLISHED
    assert lab.rows() == [1, 2, 7, 8]


def test_a_staging_of_a_replay_is_left_to_the_replay(lab):
    publisher = lab.publisher()
    publisher.stage("again", lab.files(1), {STREAM: Range(1, 1)}, {REPLAY: "true"})
    lab.run("b1", [2], 1, 1)
    assert publisher.waiting() is None
    assert [staged.ref for staged in publisher.table.staged(STAGED_PREFIX)] == [
        f"{STAGED_PREFIX}again"
    ]
    assert lab.rows() == [2]


def test_marks_of_streams_that_were_dropped_are_removed_with_the_next_publish(lab):
    lab.run("b1", [1], 1, 4)
    lab.streams.drop(STREAM)
    publisher = lab.publisher()
    assert publisher.remembers(STREAM)
    staged = publisher.stage("b2", lab.files(2), {"logs/b": Range(1, 1)})
    publisher.publish(staged)
    assert publisher.marks() == {"logs/b": 1}
    assert not publisher.remembers(STREAM)


def test_a_worker_that_slept_until_stream_and_mark_were_gone_publishes_nothing(lab):
    slow = lab.publisher()
    staged = slow.stage("slow", lab.files(1), {STREAM: Range(1, 1)})
    lab.publisher().publish(lab.publisher().stage("quick", lab.files(1), {STREAM: Range(1, 1)}))
    lab.streams.drop(STREAM)
    other = lab.publisher()
    other.publish(other.stage("next", lab.files(2), {"logs/b": Range(1, 1)}))
    # While a batch of the stream is staged, the mark stays as the proof that it has lost.
    assert other.marks() == {STREAM: 1, "logs/b": 1}
    assert other.publish_for_other_buffer(staged) is Outcome.SUPERSEDED
    other.publish(other.stage("last", lab.files(3), {"logs/b": Range(2, 2)}))
    assert other.marks() == {"logs/b": 2}
    assert slow.publish(staged) is Outcome.SUPERSEDED
    assert slow.hold(staged) is Outcome.SUPERSEDED
    assert slow.stage("slower", lab.files(1), {STREAM: Range(1, 1)}) is None
    assert lab.rows() == [1, 2, 3]


def test_a_held_batch_is_shown_although_its_parent_was_expired(lab):
    lab.run("b1", [1], 1, 1)
    publisher = lab.publisher()
    publisher.hold(publisher.stage("bad", lab.files(666, 667), {STREAM: Range(2, 2)}))
    lab.append_by_another(3)
    lab.expire_everything()
    shown = show(lab.lake, "otel.logs", "bad", limit=10)
    assert sorted(shown["id"].to_pylist()) == [666, 667]
    assert show(lab.lake, "otel.logs", "bad", limit=1).num_rows == 1


def test_a_blocked_batch_is_held_and_the_stream_goes_on(lab):
    publisher = lab.publisher()
    bad = publisher.stage("bad", lab.files(666), {STREAM: Range(1, 1)})
    assert publisher.hold(bad) is Outcome.HELD
    assert lab.rows() == []
    assert publisher.marks() == {STREAM: 1}
    assert lab.run("good", [1], 2, 2) is Outcome.PUBLISHED
    assert lab.rows() == [1]
    (held,) = publisher.table.staged(HELD_PREFIX)
    assert publisher.release(held) is Outcome.PUBLISHED
    assert lab.rows() == [1, 666]
    assert publisher.release(held) is Outcome.SUPERSEDED
    assert lab.rows() == [1, 666]
    assert publisher.marks() == {STREAM: 2}


@pytest.mark.parametrize("step", ["hold", "publish", "discard"])
def test_a_worker_that_is_late_drops_no_batch_that_another_has_held(lab, step):
    first, second = lab.publisher(), lab.publisher()
    first.stage("bad", lab.files(666), {STREAM: Range(1, 1)})
    (mine, theirs) = first.waiting(), second.waiting()
    assert first.hold(mine) is Outcome.HELD
    assert getattr(second, step)(theirs) in (Outcome.SUPERSEDED, None)
    (held,) = second.table.staged(HELD_PREFIX)
    assert second.release(held) is Outcome.PUBLISHED
    assert lab.rows() == [666]


@pytest.mark.parametrize("faults", [["conflict"], ["lost before"], ["lost after"], ["cut after"]])
@pytest.mark.parametrize("calm", [0, 1, 2])
def test_lost_answers_and_conflicts_leave_one_copy(lab, faults, calm):
    publisher = lab.publisher()
    Lossy(publisher.table, ["pass"] * calm + faults * 2)
    staged = publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    lab.append_by_another(2)
    assert publisher.publish(staged) is Outcome.PUBLISHED
    assert lab.rows() == [1, 2]
    assert publisher.marks() == {STREAM: 1}
