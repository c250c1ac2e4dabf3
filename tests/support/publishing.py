"""A table of one column and publishers at it, without Spark, and a catalog that fails on demand."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from requests.exceptions import JSONDecodeError

from neve.buffer.stream_states import StreamState
from neve.lake.commit_errors import committing
from neve.lake.commit_loop import RetryPolicy
from neve.lake.data_files import write_data_files
from neve.lake.frames import SplitRows
from neve.lake.staging import StagingTable
from neve.publish.audited_publisher import AuditedPublisher
from neve.publish.audits import AuditResult
from neve.publish.batch import Outcome
from neve.publish.publisher import Publisher
from neve.publish.ranges import Range

STREAM = "logs/a"
OTHERS = "logs/x-"
QUICK = RetryPolicy(attempts=6, first_seconds=0.001, most_seconds=0.01)


class KnownStreams:
    """What a buffer says of its streams: `publisher.Streams`. Streams called x-… are another's."""

    def __init__(self, *present):
        self.present = set(present)
        self.dropped_streams = set()

    def drop(self, stream):
        self.present.discard(stream)
        self.dropped_streams.add(stream)

    def stream_states(self, names):
        return {name: self._state(name) for name in names}

    def dropped(self, names):
        return {name for name in names if name in self.dropped_streams}

    def _state(self, name):
        if name in self.dropped_streams:
            return StreamState.DROPPED
        return StreamState.PRESENT if name in self.present else StreamState.MISSING

    def owns(self, stream):
        return stream in self.present or not stream.startswith(OTHERS)


class Lab:
    """A table, and what tests do to it."""

    def __init__(self, lake):
        self.lake = lake
        catalog = lake.catalog()
        catalog.create_namespace_if_not_exists("otel")
        self.schema = pa.schema([("id", pa.int64())])
        self.streams = KnownStreams(STREAM, "logs/b")
        catalog.create_table("otel.logs", self.schema)

    def publisher(self):
        table = self.lake.catalog().load_table("otel.logs")
        return Publisher(StagingTable(self.lake.profile, table), self.streams, QUICK)

    def files(self, *ids):
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        table = self.lake.catalog().load_table("otel.logs")
        rows = pa.table({"id": pa.array(ids, pa.int64())}, self.schema)
        return list(_dataframe_to_data_files(table.metadata, rows, table.io))

    def rows(self, name="otel.logs"):
        table = self.lake.catalog().load_table(name)
        return sorted(table.scan().to_arrow()["id"].to_pylist())

    def refs(self, name="otel.logs"):
        return sorted(self.lake.catalog().load_table(name).metadata.refs)

    def snapshot_ids(self):
        table = self.lake.catalog().load_table("otel.logs")
        return {snapshot.snapshot_id for snapshot in table.metadata.snapshots}

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


class Lossy:
    """A table whose commits go wrong: refused, or applied or not while the answer gets lost.

    A step of the plan may be a function: it is called before the commit, which then passes.
    With `swaps_only`, the plan is for the commits that move `main`, and all others pass.
    """

    def __init__(self, staging, plan, *, swaps_only=False):
        self.table = staging._table
        self.profile = staging.profile
        self.plan = list(plan)
        self.swaps_only = swaps_only
        staging._table = self

    def __getattr__(self, name):
        return getattr(self.table, name)

    def commit(self, ref, updates, what):
        moves_main = any(update.get("ref-name") == "main" for update in updates)
        is_hit = self.plan and (moves_main or not self.swaps_only)
        step = self.plan.pop(0) if is_hit else "pass"
        if callable(step):
            step()
        before = self.table.metadata
        with committing(self.profile, self.table.name, what):
            if step == "conflict":
                raise CommitFailedException("409")
            if step == "lost before":
                raise CommitStateUnknownException("504")
            self.table.commit(ref, updates, what)
            if step in ("lost after", "cut after"):
                self.table.metadata = before
            if step == "lost after":
                raise CommitStateUnknownException("504")
            if step == "cut after":
                raise JSONDecodeError("cut", "{", 1)


# Rows from here on fail the audit below.
BAD = 100


class AuditedById(AuditedPublisher):
    """Sets rows aside whose id is too high, without Spark."""

    stored = frozenset()

    def _checked(self, staged):
        return staged

    def _run_audits(self, staged, _):
        failing = sum(number >= BAD for number in self._ids(staged))
        total = int(staged.summary["added-records"])
        return (AuditResult("is_low", "between", failing == 0, failing, total, "set_aside"),)

    def _without_stored(self, staged):
        table = self.rejected.open().table
        self.stored = set(table.added_rows(table.main_id, 1000)["id"].to_pylist())
        return staged

    def _count_failing(self, staged):
        return sum(number >= BAD for number in self._ids(staged))

    def _split(self, staged, batch_id):
        ids = [number for number in self._ids(staged) if number not in self.stored]
        bad = [number for number in ids if number >= BAD]
        rejected = pa.table({"id": pa.array(bad, pa.int64()), "batch_id": [batch_id] * len(bad)})
        clean = pa.table({"id": pa.array(sorted(set(ids) - set(bad)), pa.int64())})
        return SplitRows(
            _write(self.publisher.table, clean),
            _write(self.rejected.open().table, rejected),
            Counter(is_low=len(bad)),
        )

    def _ids(self, staged):
        return self.publisher.table.added_rows(staged.snapshot_id, 1000)["id"].to_pylist()


def _write(table, rows):
    return write_data_files(table.metadata, table.io, rows) if len(rows) else []
