"""One batch at work: its events, what they amount to, and what they meet in the mirror."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from neve.lake.frames import added_rows
from neve.lake.identifier import Identifier
from neve.lake.java_tables import JavaTable
from neve.lake.plain_types import NeedsSparkError
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.checkpoint import BARRIER
from neve.merge.decision import ABSENT, LATE, REMOVE, REPEAT, TIE, TRUNCATED_AWAY, UPSERT
from neve.merge.driver_events import read_newest
from neve.merge.locators import Decided, DecidedHere, IndexLocator, ScanLocator
from neve.merge.mirror import names_at
from neve.merge.pending import Batch, Slice, consumed_slices
from neve.merge.read_events import (
    mirror_columns,
    plain_columns,
    read_changes,
    read_slices,
    require_same_columns,
    retried_if_expired,
)
from neve.merge.rejected import parse_rejected
from neve.merge.report import Counts, Tally
from neve.merge.shape import (
    Shape,
    as_text,
    barrier_column,
    literal,
    quoted,
    sequence_of,
    shape_of,
)
from neve.merge.side_tables import AT, BATCH, DELETED, KIND, TRUNCATED
from neve.merge.spec import TRUNCATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from neve.lake import Lake
    from neve.merge.drift import IncompatibleColumn
    from neve.merge.locators import Locator
    from neve.merge.plan import Look
    from neve.merge.rejected import RejectedEvents
    from neve.merge.spec import MergeSpec

logger = logging.getLogger(__name__)


@dataclass
class BatchWork:
    """A batch between reading and commit. Everything in it is pinned to snapshots."""

    lake: Lake
    session: SparkSession
    spec: MergeSpec
    tables: Look
    batch: Batch
    counts: Counts = field(default_factory=Counts)
    # The newest TRUNCATE, of this batch or an earlier one, as text.
    barrier: tuple[str, ...] | None = None
    # What is open as long as the batch is worked on.
    _stack: ExitStack = field(default_factory=ExitStack)
    _decided: DataFrame | None = None
    # The least and the greatest of the first sequence column of unresolved ties, once there are.
    _tied_between: tuple[Any, Any] | None = None
    _ties: int = 0

    @classmethod
    @contextmanager
    def reading(
        cls, lake: Lake, session: SparkSession, spec: MergeSpec, tables: Look, batch: Batch
    ) -> Iterator[BatchWork]:
        """Begin with a batch. Its events are read when they are asked for first."""
        with ExitStack() as stack, retried_if_expired(lake, spec, tables), lake.explaining():
            work = cls(lake, session, spec, tables, batch, _stack=stack)
            try:
                yield work
            finally:
                work._forget()

    @cached_property
    def _changelog(self) -> JavaTable:
        return JavaTable(self.lake, self.session, self.lake.ref(self.spec.changelog))

    @cached_property
    def _changes(self) -> DataFrame:
        changes = read_changes(self._stack, self._changelog, self.tables, self.batch)
        require_same_columns(self.spec, self.tables, changes)
        return changes

    @cached_property
    def shape(self) -> Shape:
        columns = plain_columns(self.tables)
        if columns is None:
            columns = mirror_columns(self._changelog, self.tables, self._changes.schema)
        return shape_of(self.spec, columns, self.tables.drift)

    @cached_property
    def retried(self) -> RejectedEvents | None:
        """The events that were set aside before, and are tried again."""
        if self.batch.rejected_id is None:
            return None
        rejected = self.lake.ref(self.spec.rejected)
        stored = added_rows(self.session, rejected, self.batch.rejected_id, None)
        return parse_rejected(stored, self._changes.schema, self.spec, self._incompatible)

    @cached_property
    def events(self) -> DataFrame:
        """The batch's events, in Spark, and what each does."""
        if self.retried is not None:
            return self.retried.accepted
        return tr.classified(self._changes, self.spec, self._incompatible)

    @property
    def main_id(self) -> int:
        """The snapshot of the mirror that the batch is decided on."""
        if self.tables.state is None:
            raise AssertionError("the mirror was prepared")
        return self.tables.state.main_id

    def decide(self, locator: ScanLocator) -> None:
        """Decide what becomes of each event, and keep it for a writer that reads it repeatedly."""
        self.barrier = self._known_barrier
        self._keep_decided(locator)
        if self.counts.has_truncate:
            # Rare, and known only now: the barrier decides over all other events.
            self.barrier = self._newest_barrier()
            self._keep_decided(locator)
        if self.counts.unresolved_ties:
            first = F.col(quoted(self.shape.sequence[0]))
            ties = self._kept().where(F.col(cols.DISPOSITION) == TIE)
            least, most = ties.agg(F.min(first), F.max(first)).collect()[0]
            self._tied_between = (least, most)
            self._keep_decided(locator)

    def _keep_decided(self, locator: ScanLocator) -> None:
        """Decide in one job that also counts, and keep what came of it."""
        self._forget()
        decided, mirror = self._decided_by(locator).frame, self._mirror_rows()
        if self._tied_between is not None and mirror is not None:
            decided = tr.with_settled_ties(decided, mirror, self.shape)
        decided = decided.persist()
        counted = decided.groupBy(cols.DISPOSITION).agg(
            F.count("*"), *(F.sum(name) for name in cols.SUMMED)
        )
        self._decided = decided
        self.count({what: Tally(*numbers) for what, *numbers in counted.collect()})

    def decided(self, locator: Locator) -> Decided | DecidedHere:
        """Return what becomes of each event, not computed yet.

        For a writer that counts what it sees, for `count`, so that one job does it all.
        """
        self.barrier = self._known_barrier
        if isinstance(locator, IndexLocator) and not self.reads_merged:
            try:
                newest = read_newest(self.tables, self.spec, self.batch, self.shape)
                return locator.decided_here(newest, self.shape, self.barrier)
            except NeedsSparkError as reason:
                logger.debug("%s: merged by a Spark job: %s", self.spec.name, reason)
        return self._decided_by(locator)

    def _decided_by(self, locator: Locator) -> Decided:
        shape, events = self.shape, self.events
        since = self.barrier_column
        if shape.marked and since is not None:
            # Values from before the barrier must not be folded into events after it.
            is_truncated = F.when(sequence_of(shape) < since, TRUNCATED_AWAY)
            events = events.withColumn(cols.OTHER, F.coalesce(F.col(cols.OTHER), is_truncated))
        rows = tr.as_rows(events, shape, self._incompatible)
        if self._tied_between is not None:
            rows = self._with_merged(rows, *self._tied_between)
        rows = locator.distributed(rows, shape)
        if shape.marked:
            reduced = tr.folded(rows, shape)
        else:
            # Events that were set aside are in the changelog, among those of the past.
            anew = self.tables.pending.whole is not None or self.retried is not None
            reduced = tr.latest(rows, shape, locator.partition_by, anew=anew)
        return locator.decided(reduced, shape, self.barrier)

    def _newest_barrier(self) -> tuple[str, ...] | None:
        known = self.barrier_column
        is_truncate = F.col(cols.REASON).isNull() & (F.col(cols.OPERATION) == TRUNCATE)
        newest = F.max(F.when(is_truncate, sequence_of(self.shape)))
        barrier = newest if known is None else F.greatest(newest, known)
        return self._as_barrier(self.events, barrier)

    def _as_barrier(self, rows: DataFrame, newest: Column) -> tuple[str, ...] | None:
        """Return the newest sequence of rows as text; None: there is none."""
        parts = [as_text(newest[name], self.shape, name) for name in self.shape.sequence]
        row = rows.agg(*parts).collect()[0]
        return None if any(part is None for part in row) else tuple(row)

    def _forget(self) -> None:
        if self._decided is not None:
            self._decided.unpersist()
            self._decided = None

    @cached_property
    def _known_barrier(self) -> tuple[str, ...] | None:
        """The newest TRUNCATE of earlier batches."""
        state = self.tables.state
        if state is None or state.checkpoint is not None:
            return state.barrier if state else None
        # The commits that said so are expired; the tombstones have it still.
        truncates = self.session.table(self.lake.ref(self.spec.tombstones).quoted)
        truncates = truncates.where(F.col(KIND) == TRUNCATED)
        return self._as_barrier(truncates, F.max(sequence_of(self.shape)))

    @property
    def barrier_column(self) -> Column | None:
        return barrier_column(self.barrier, self.shape)

    def barrier_summary(self) -> dict[str, str]:
        return {BARRIER: json.dumps(self.barrier)} if self.barrier else {}

    def scanning(self, tombstones_id: int | None, now: datetime) -> ScanLocator:
        """Return the locator that reads the whole mirror."""
        return ScanLocator(self._mirror_rows(), self._known_deletes(tombstones_id, now))

    def _mirror_rows(self) -> DataFrame | None:
        state = self.tables.state
        if state is None or self.tables.mirror is None or self.tables.mirror_is_empty:
            return None
        names = names_at(self.tables.mirror, state.main_id)
        return self._at(self.spec.mirror, state.main_id).select(
            *(F.col(quoted(before)).alias(name) for before, name in names.items()),
            cols.FILE,
            cols.POSITION,
        )

    def _known_deletes(self, snapshot_id: int | None, now: datetime) -> DataFrame | None:
        if snapshot_id is None:
            return None
        deletes = self._at(self.spec.tombstones, snapshot_id).where(F.col(KIND) == DELETED)
        retention = self.spec.tombstone_retention_seconds
        if retention is not None:
            # In whole seconds, as the index has these times.
            before = (now - timedelta(seconds=retention)).timestamp()
            deletes = deletes.where(F.unix_seconds(AT) >= F.lit(before))
        return deletes

    def count(self, tally: Mapping[str, Tally], *, indexed: bool = False) -> None:
        """Take over what was counted."""
        nothing = Tally()

        def of(what: str) -> Tally:
            return tally.get(what, nothing)

        newest = [of(what) for what in (UPSERT, REMOVE, ABSENT, REPEAT)]
        of_keys = [of(LATE), of(TIE), *newest]
        deletes = of(REMOVE).keys + of(ABSENT).keys
        truncates = of(tr.TRUNCATES).events
        # The newest TRUNCATE of a batch counts, unless an earlier batch had a newer one.
        barrier = int(truncates > 0 and self.barrier != self._known_barrier)
        self.counts = Counts(
            scanned=sum(kind.events for kind in tally.values()),
            applied=of(UPSERT).keys + deletes + barrier,
            superseded=sum(kind.events - kind.keys for kind in of_keys) + barrier * (truncates - 1),
            late=of(LATE).keys + (1 - barrier) * truncates,
            repeated=of(REPEAT).keys + of(TIE).keys,
            set_aside=of(tr.REJECTED).events,
            truncated=of(TRUNCATED_AWAY).events,
            reduced=sum(kind.keys for kind in of_keys),
            upserted=of(UPSERT).keys,
            deleted=of(REMOVE).keys,
            tombstones=deletes + (truncates > 0),
            late_full=sum(kind.full for kind in of_keys),
            ties=max(self._ties, sum(kind.contested for kind in newest)),
            unresolved_ties=0 if self.shape.marked else of(TIE).keys,
            duplicate_keys=of(tr.DUPLICATE).keys,
            has_truncate=truncates > 0,
            index_is_broken=any(kind.broken for kind in tally.values()),
            index_is_away=any(kind.away for kind in tally.values()),
        )
        if indexed:
            self.counts.index_hits = sum(kind.known for kind in of_keys)
            self.counts.index_misses = self.counts.reduced - self.counts.index_hits
            self.counts.index_cache_hits = sum(kind.cached for kind in tally.values())

    @property
    def events_in_files(self) -> int | None:
        """How many events there are by the files' metadata; None: it does not tell."""
        if self.batch.rejected_id is not None:
            return None
        recorded = self.batch.recorded
        if recorded in (None, self.counts.scanned) or self.batch.until_id is None:
            return recorded
        # Snapshots are summed up by whoever wrote them: what their files say counts.
        tasks = self._changelog.plan_files(self.batch.until_id, self.batch.after_id)
        return sum(task.records for task in tasks)

    def changes(self) -> DataFrame:
        """Return each key once that changes, of what `decide` has kept."""
        return self._kept().where(F.col(cols.DISPOSITION).isin(UPSERT, REMOVE))

    def duplicates(self) -> DataFrame:
        """Return the further rows of keys that change; somebody else must have written them."""
        return self._kept().where(F.col(cols.DISPOSITION) == tr.DUPLICATE)

    @property
    def is_decided(self) -> bool:
        return self._decided is not None

    def _kept(self) -> DataFrame:
        if self._decided is None:
            raise AssertionError("decide comes first")
        return self._decided

    def include_merged(self, least: Any, most: Any) -> None:
        """Have events decided again, together with merged ones of the same key and sequence.

        What the mirror's row came from is in the changelog alone: its operation is not in the
        mirror.

        Args:
            least: of the first sequence column of unresolved ties, as `most`.
        """
        self._ties = self.counts.unresolved_ties
        self._tied_between = (least, most)

    @property
    def reads_merged(self) -> bool:
        return self._tied_between is not None

    def _with_merged(self, rows: DataFrame, least: Any, most: Any) -> DataFrame:
        """Add the events that are merged already and have a key and sequence of these rows."""
        name = self.shape.sequence[0]
        ends = (literal(end, self.shape.columns[name].dataType) for end in (least, most))
        is_near = F.col(quoted(name)).between(*ends)
        on = list(self.shape.decisive)
        both = rows.withColumn(cols.MERGED, F.lit(0))
        for events in self._merged_events():
            merged = self._as_merged(events.where(is_near))
            merged = merged.join(rows.select(*map(quoted, on)), on=on, how="left_semi")
            both = both.unionByName(merged.withColumn(cols.MERGED, F.lit(1)))
        return both

    @property
    def _incompatible(self) -> tuple[IncompatibleColumn, ...]:
        return self.tables.drift.incompatible

    def _as_merged(self, part: DataFrame) -> DataFrame:
        """Return events of the past as the rows they were: their columns may have fitted then."""
        had = {field.name: field.dataType for field in part.schema}
        has = {field.name: field.dataType for field in self.shape.columns}
        incompatible = [
            column
            for column in self._incompatible
            if column.name in had and had[column.name] != has.get(column.name)
        ]
        events = tr.classified(part, self.spec, incompatible)
        rows = tr.as_rows(events, self.shape, incompatible)
        return rows.where(F.col(cols.OTHER).isNull())

    def _merged_events(self) -> Iterator[DataFrame]:
        """Return the events that are merged already, as far as the changelog still has them."""
        checkpoint = self.tables.state.checkpoint if self.tables.state else None
        if checkpoint is None:
            return
        changelog = self._changelog
        metadata, schema = self.tables.changelog, self.tables.drift.read_schema
        merged, slices = checkpoint.snapshot_id, list[Slice]()
        if merged is not None and metadata.snapshot_by_id(merged) is not None:
            if schema is None:
                # Iceberg leaves out files by the bounds of their sequences.
                names = names_at(metadata, merged).items()
                rows = self._at(self.spec.changelog, merged)
                yield rows.select(*(F.col(quoted(before)).alias(name) for before, name in names))
            else:
                tasks = changelog.plan_files(merged)
                slices += [Slice(task, 0, task.records) for task in tasks]
        if checkpoint.scanning is not None and metadata.snapshot_by_id(checkpoint.scanning):
            after = None if checkpoint.whole else merged
            tasks = changelog.plan_files(checkpoint.scanning, after)
            slices += consumed_slices(checkpoint, tasks)
        if slices:
            yield read_slices(self._stack, changelog, slices, schema)

    def tombstones(self, batch_id: str, now: datetime) -> DataFrame:
        """Return the keys this batch deletes, and its TRUNCATE."""
        tombstones = tr.tombstones_of(self._kept(), self.shape).withColumn(KIND, F.lit(DELETED))
        barrier = self.barrier_column
        if self.counts.has_truncate and barrier is not None:
            fields = {field.name: field.dataType for field in self.shape.columns}
            row = self.session.range(1).select(
                *(
                    barrier[name].alias(name)
                    if name in self.shape.sequence
                    else F.lit(None).cast(fields[name]).alias(name)
                    for name in self.shape.decisive
                ),
                F.lit(TRUNCATED).alias(KIND),
            )
            tombstones = tombstones.unionByName(row)
        return _stamped(tombstones, batch_id, now)

    def rejected(self, batch_id: str, now: datetime, known_id: int | None) -> DataFrame:
        """Return the events that could not be taken.

        Args:
            known_id: the snapshot with those that were set aside before, if there are any.
        """
        rows = tr.rejected(self.events)
        if self.tables.pending.whole is not None and known_id is not None:
            # Everything is merged, perhaps again: what was set aside before need not be twice.
            known = self._at(self.spec.rejected, known_id)
            # Not by their place: the changelog may have been compacted since.
            rows = rows.join(known, on=["reason", "event"], how="left_anti")
        return _stamped(rows, batch_id, now)

    def _at(self, identifier: Identifier, snapshot_id: int) -> DataFrame:
        reader = self.session.read.option("versionAsOf", snapshot_id)
        return reader.table(self.lake.ref(identifier).quoted)


def _stamped(rows: DataFrame, batch_id: str, now: datetime) -> DataFrame:
    return rows.withColumn(BATCH, F.lit(batch_id)).withColumn(AT, F.lit(now))
