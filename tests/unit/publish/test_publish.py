"""Publishing on an embedded catalog, without Spark: exactly once, whatever is killed and whoever
else is at it."""

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse

import neve
from neve import failpoints
from neve.errors import NotFoundError
from neve.lake.commit_loop import RetryPolicy
from neve.lake.staging import StagingTable
from neve.publish.publisher import HELD_PREFIX, STAGED_PREFIX, Outcome, Publisher
from neve.publish.ranges import Range
from neve.publish.staged_batches import show
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut

STREAM = "logs/a"
# The steps of a batch that is published; whether another writer moves `main` before the swap; and
# the rows that are there in the end, which has nothing to do with where the cut was.
CUTS = [
    ("publish.staged", False, [1, 2]),
    ("publish.ready", False, [1, 2]),
    ("publish.ready", True, [1, 2, 99]),
    ("publish.restaged", True, [1, 2, 99]),
    ("publish.published", False, [1, 2]),
    ("publish.published", True, [1, 2, 99]),
]
HOLDING = "publish.staged_batches"
QUICK = RetryPolicy(attempts=6, first_seconds=0.001, most_seconds=0.01)


class Lab:
    """A table, and what tests do to it."""

    def __init__(self, lake):
        self.lake = lake
        catalog = lake.catalog()
        catalog.create_namespace_if_not_exists("otel")
        self.schema = pa.schema([("id", pa.int64())])
        self.streams = {STREAM}
        catalog.create_table("otel.logs", self.schema)

    def publisher(self):
        table = self.lake.catalog().load_table("otel.logs")
        return Publisher(StagingTable(self.lake.profile, table), lambda: self.streams, QUICK)

    def files(self, *ids):
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        table = self.lake.catalog().load_table("otel.logs")
        rows = pa.table({"id": pa.array(ids, pa.int64())}, self.schema)
        return list(_dataframe_to_data_files(table.metadata, rows, table.io))

    def rows(self):
        table = self.lake.catalog().load_table("otel.logs")
        return sorted(table.scan().to_arrow()["id"].to_pylist())

    def append_by_another(self, *ids):
        table = self.lake.catalog().load_table("otel.logs")
        table.append(pa.table({"id": pa.array(ids, pa.int64())}, self.schema))

    def expire_everything(self):
        table = self.lake.catalog().load_table("otel.logs")
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in kept]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def run(self, batch, ids, first, last):
        """What a worker does from its start: finish what is staged, then its own batch."""
        publisher = self.publisher()
        while staged := publisher.waiting():
            publisher.publish(staged)
        if publisher.marks().get(STREAM, 0) >= last:
            return Outcome.SUPERSEDED
        staged = publisher.stage(batch, self.files(*ids), {STREAM: Range(first, last)})
        return publisher.publish(staged) if staged else Outcome.SUPERSEDED


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


@pytest.mark.parametrize(("point", "other_writer", "expected"), CUTS)
def test_a_worker_cut_anywhere_leaves_exactly_one_copy(lab, point, other_writer, expected):
    publisher = lab.publisher()
    with power_cut(point):
        staged = publisher.stage("b1", lab.files(1, 2), {STREAM: Range(1, 3)})
        if other_writer:
            lab.append_by_another(99)
        publisher.publish(staged)
    lab.expire_everything()
    lab.run("b1-again", [1, 2], 1, 3)
    assert lab.rows() == expected
    assert lab.publisher().marks() == {STREAM: 3}
    assert lab.publisher().table.staged(STAGED_PREFIX) == []


def test_a_worker_cut_while_it_holds_a_batch_holds_it_once(lab):
    publisher = lab.publisher()
    with power_cut(HOLDING):
        publisher.hold(publisher.stage("bad", lab.files(666), {STREAM: Range(1, 1)}))
    assert lab.run("bad-again", [666], 1, 1) is Outcome.SUPERSEDED
    assert lab.rows() == []
    assert len(lab.publisher().table.staged(HELD_PREFIX)) == 1
    assert lab.publisher().marks() == {STREAM: 1}


def test_every_step_of_publishing_is_cut():
    steps = {name for name in failpoints.POINTS if name.startswith("publish.")}
    assert {point for point, _, _ in CUTS} | {HOLDING} == steps


def test_main_that_moved_is_staged_upon_again(lab):
    publisher = lab.publisher()
    staged = publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    lab.append_by_another(2)
    assert publisher.publish(staged) is Outcome.PUBLISHED
    assert publisher.counters.restaged == 1
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


def test_a_longer_range_that_begins_where_another_did_loses_too(lab):
    first, second = lab.publisher(), lab.publisher()
    one = first.stage("b1", lab.files(1), {STREAM: Range(1, 2)})
    two = second.stage("b2", lab.files(1, 2), {STREAM: Range(1, 5)})
    first.publish(one)
    assert second.publish(two) is Outcome.SUPERSEDED
    assert lab.rows() == [1]


def test_a_staging_of_a_stream_that_is_gone_is_discarded(lab):
    publisher = lab.publisher()
    publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    lab.streams = {"logs/other"}
    assert publisher.waiting() is None
    assert publisher.table.staged(STAGED_PREFIX) == []
    assert lab.rows() == []


def test_marks_of_streams_that_are_gone_are_removed_with_the_next_publish(lab):
    lab.run("b1", [1], 1, 4)
    lab.streams = {"logs/b"}
    publisher = lab.publisher()
    staged = publisher.stage("b2", lab.files(2), {"logs/b": Range(1, 1)})
    publisher.publish(staged)
    assert publisher.marks() == {"logs/b": 1}


def test_a_worker_that_slept_until_stream_and_mark_were_gone_publishes_nothing(lab):
    slow = lab.publisher()
    staged = slow.stage("slow", lab.files(1), {STREAM: Range(1, 1)})
    lab.publisher().publish(lab.publisher().stage("quick", lab.files(1), {STREAM: Range(1, 1)}))
    lab.streams = {"logs/b"}
    other = lab.publisher()
    other.publish(other.stage("next", lab.files(2), {"logs/b": Range(1, 1)}))
    assert other.marks() == {"logs/b": 1}
    assert slow.publish(staged) is Outcome.SUPERSEDED
    assert slow.hold(staged) is Outcome.SUPERSEDED
    assert slow.stage("slower", lab.files(1), {STREAM: Range(1, 1)}) is None
    assert lab.rows() == [1, 2]


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


class Lossy:
    """A catalog whose answers get lost, before or after the commit was applied."""

    def __init__(self, catalog, plan):
        self.catalog = catalog
        self.plan = plan

    def __getattr__(self, name):
        return getattr(self.catalog, name)

    def commit_table(self, *arguments):
        step = self.plan.pop(0) if self.plan else "pass"
        if step == "conflict":
            raise CommitFailedException("409")
        if step == "lost before":
            raise CommitStateUnknownException("504")
        answer = self.catalog.commit_table(*arguments)
        if step == "lost after":
            raise CommitStateUnknownException("504")
        if step == "cut after":
            CommitTableResponse.model_validate_json("{")
        return answer


@pytest.mark.parametrize("faults", [["conflict"], ["lost before"], ["lost after"], ["cut after"]])
@pytest.mark.parametrize("calm", [0, 1, 2])
def test_lost_answers_and_conflicts_leave_one_copy(lab, faults, calm):
    publisher = lab.publisher()
    publisher.table.table.catalog = Lossy(lab.lake.catalog(), ["pass"] * calm + faults * 2)
    staged = publisher.stage("b1", lab.files(1), {STREAM: Range(1, 1)})
    lab.append_by_another(2)
    assert publisher.publish(staged) is Outcome.PUBLISHED
    assert lab.rows() == [1, 2]
    assert publisher.marks() == {STREAM: 1}
