"""One batch at work: its events, what they amount to, and what they meet in the mirror."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from neve.errors import ConflictError
from neve.lake.frames import added_rows
from neve.lake.identifier import Identifier
from neve.lake.java_tables import JavaTable
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.checkpoint import BARRIER, Checkpoint
from neve.merge.decision import ABSENT, LATE, REMOVE, TIE, UPSERT
from neve.merge.dropped import needs_schema
from neve.merge.locators import Decided, Locator, ScanLocator
from neve.merge.mirror import names_at
from neve.merge.pending import Batch, Slice, consumed_slices
from neve.merge.rejected import parse_rejected
from neve.merge.report import Counts, Tally
from neve.merge.shape import Shape, as_text, barrier_column, quoted, sequence_of, shape_of
from neve.merge.side_tables import AT, BATCH, DELETED, KIND, TRUNCATED
from neve.merge.spec import TRUNCATE
from neve.merge.unreadable import fields_to_read

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyspark.sql import Column, DataFrame, SparkSession

    from neve.lake import Lake
    from neve.lake.table_ref import TableRef
    from neve.merge.drift import Unfit
    from neve.merge.plan import Look
    from neve.merge.rejected import RejectedEvents
    from neve.merge.spec import MergeSpec


@dataclass
class BatchWork:
    """A batch between reading and commit. Everything in it is pinned to snapshots."""

    lake: Lake
    session: SparkSession
    spec: MergeSpec
    found: Look
    batch: Batch
    events: DataFrame
    shape: Shape
    # Where the events were set aside before, and are tried again.
    retried: RejectedEvents | None = None
    counts: Counts = field(default_factory=Counts)
    # The newest TRUNCATE, of this batch or an earlier one, as text.
    barrier: tuple[str, ...] | None = None
    _won: DataFrame | None = None
    _buries: bool = False
    _located: DataFrame | None = None

    @classmethod
    @contextmanager
    def reading(
        cls, lake: Lake, session: SparkSession, spec: MergeSpec, found: Look, batch: Batch
    ) -> Iterator[BatchWork]:
        """Read a batch's events and look at what they are."""
        with ExitStack() as stack, lake.explaining():
            changelog = JavaTable(lake, session, lake.ref(spec.changelog))
            changes = _changes(stack, changelog, found, batch)
            _require_same_columns(spec, found, changes)
            columns = _columns(changelog, lake.ref(spec.mirror), found, changes.schema)
            shape = shape_of(spec, columns, found.drift.dropped)
            retried = None
            if batch.rejected_id is None:
                events = tr.classified(changes, spec, found.drift.unfit)
            else:
                rejected = lake.ref(spec.rejected)
                stored = added_rows(session, rejected, batch.rejected_id, None)
                retried = parse_rejected(stored, changes.schema, spec, found.drift.unfit)
                events = retried.accepted
            work = cls(lake, session, spec, found, batch, events, shape, retried)
            try:
                yield work
            finally:
                work._forget()

    @property
    def main_id(self) -> int:
        """The snapshot of the mirror that the batch is decided on."""
        if self.found.state is None:
            raise AssertionError("the mirror was prepared")
        return self.found.state.main_id

    def look_up_once(self, locator: Locator) -> None:
        """Call `look_up`, unless that was done: a first batch is read before its mirror is made."""
        if self._located is None:
            self.look_up(locator)

    def look_up(self, locator: Locator) -> None:
        """Find what the events meet, and decide what becomes of each."""
        self.barrier = self._known_barrier()
        self._decide(locator)
        if self.counts.truncated:
            # Rare, and known only now: the barrier decides over all other events.
            self.barrier = self._newest_barrier()
            self._decide(locator)
        self._won = self._winning_ties()

    def _decide(self, locator: Locator) -> None:
        """Reduce, locate and dispose in one job that also counts, and keep what came of it."""
        self._forget()
        self._located = self._decided(locator).as_frame().persist()
        self._count(self._located, indexed=locator.name == "index")

    def _decided(self, locator: Locator) -> Decided:
        shape, events = self.shape, self.events
        since = self.barrier_column
        if shape.marked and since is not None:
            # Values from before the barrier must not be folded into events after it.
            is_gone = F.when(sequence_of(shape) < since, tr.TRUNCATED_AWAY)
            events = events.withColumn(cols.OTHER, F.coalesce(F.col(cols.OTHER), is_gone))
        rows = locator.distributed(tr.as_rows(events, shape, self._unfit), shape)
        if shape.marked:
            reduced = tr.folded(rows, shape)
        else:
            reduced = tr.latest(rows, shape, locator.partition_by)
        return locator.decided(reduced, shape, self.barrier)

    def in_one_go(self, locator: Locator) -> Decided:
        """Return what `look_up` would find, not computed yet.

        For a writer that counts what it sees, for `take`, so that one job does it all.
        """
        self.barrier = self._known_barrier()
        return self._decided(locator)

    @property
    def has_ties(self) -> bool:
        """Whether events have a sequence that the mirror has, and may say something else."""
        return bool(self.counts.repeated) and not self.shape.marked

    def _newest_barrier(self) -> tuple[str, ...] | None:
        known = self.barrier_column
        is_truncate = F.col(cols.REASON).isNull() & (F.col(cols.OPERATION) == TRUNCATE)
        newest = F.max(F.when(is_truncate, sequence_of(self.shape)))
        barrier = newest if known is None else F.greatest(newest, known)
        texts = [as_text(barrier[name], self.shape, name) for name in self.shape.sequence]
        row = self.events.agg(*(text.alias(f"part{n}") for n, text in enumerate(texts))).collect()
        return tuple(row[0])

    def _forget(self) -> None:
        if self._located is not None:
            self._located.unpersist()
            self._located = None

    def _known_barrier(self) -> tuple[str, ...] | None:
        state = self.found.state
        if state is None or state.checkpoint is not None:
            return state.barrier if state else None
        # The commits that said so are expired; the tombstones have it still.
        truncates = self.session.table(self.lake.ref(self.spec.tombstones).quoted)
        newest = F.max(sequence_of(self.shape))
        parts = [as_text(newest[name], self.shape, name) for name in self.shape.sequence]
        row = truncates.where(F.col(KIND) == TRUNCATED).agg(*parts).collect()[0]
        return None if any(part is None for part in row) else tuple(row)

    @property
    def barrier_column(self) -> Column | None:
        return barrier_column(self.barrier, self.shape)

    def barrier_summary(self) -> dict[str, str]:
        return {BARRIER: json.dumps(self.barrier)} if self.barrier else {}

    def scanning(self, buried_id: int | None, now: datetime) -> Locator:
        """Return the locator that reads the whole mirror."""
        return ScanLocator(self._mirror_rows(), self._buried(buried_id, now))

    def _mirror_rows(self) -> DataFrame | None:
        state = self.found.state
        if state is None or self.found.mirror is None or self.found.mirror_is_empty:
            return None
        names = names_at(self.found.mirror, state.main_id)
        return self._at(self.spec.mirror, state.main_id).select(
            *(F.col(quoted(before)).alias(name) for before, name in names.items()),
            cols.FILE,
            cols.POSITION,
        )

    def _buried(self, snapshot_id: int | None, now: datetime) -> DataFrame | None:
        if snapshot_id is None:
            return None
        found = self._at(self.spec.tombstones, snapshot_id).where(F.col(KIND) == DELETED)
        retention = self.spec.tombstone_retention_seconds
        if retention is not None:
            found = found.where(F.col(AT) >= F.lit(now - timedelta(seconds=retention)))
        return found

    def _count(self, decided: DataFrame, *, indexed: bool) -> None:
        counted = decided.groupBy(cols.DISPOSITION).agg(
            F.count("*"), *(F.sum(name) for name in cols.SUMMED)
        )
        tally = {what: Tally(*numbers) for what, *numbers in counted.collect()}
        self.take(tally, indexed=indexed)

    def take(self, tally: Mapping[str, Tally], *, indexed: bool) -> None:
        """Take over what was counted."""
        nothing = Tally()

        def of(what: str) -> Tally:
            return tally.get(what, nothing)

        of_keys = [of(what) for what in (LATE, TIE, UPSERT, REMOVE, ABSENT)]
        self._buries = bool(of(REMOVE).keys + of(ABSENT).keys)
        self.counts = Counts(
            scanned=sum(one.events for one in tally.values()),
            set_aside=of(tr.REJECTED).events,
            reduced=sum(one.keys for one in of_keys),
            deduplicated=sum(one.events - one.keys for one in of_keys),
            upserted=of(UPSERT).keys,
            deleted=of(REMOVE).keys,
            late=of(LATE).keys + of(tr.TRUNCATED_AWAY).events,
            late_full=sum(one.full for one in of_keys),
            repeated=of(TIE).keys,
            doubled=of(tr.DUPLICATE).keys,
            truncated=bool(of(tr.TRUNCATES).events),
        )
        if indexed:
            self.counts.index_hits = sum(one.known for one in of_keys)
            self.counts.index_misses = self.counts.reduced - self.counts.index_hits
            self.counts.index_cache_hits = sum(one.cached for one in of_keys)

    @property
    def has_changes(self) -> bool:
        return bool(self.counts.upserted or self._buries)

    def changes(self, *, with_absent: bool = False) -> DataFrame:
        """Return each key once that changes, with where its row is.

        Args:
            with_absent: deletes of keys without a row, too, which leave a tombstone; and further
                rows of a key, which go.
        """
        if self._located is None:
            raise AssertionError("look_up comes first")
        kinds = [UPSERT, REMOVE, *([ABSENT, tr.DUPLICATE] if with_absent else [])]
        kept = self._located.where(F.col(cols.DISPOSITION).isin(kinds))
        return kept if self._won is None else kept.unionByName(self._won)

    def _winning_ties(self) -> DataFrame | None:
        """Return events of a sequence the mirror has already, where they are the greater ones.

        What the mirror's row came from is in the changelog alone: its operation is not in the
        mirror. With an unchanged marker a row is made of several events, and the first stays.
        """
        if not self.counts.repeated or self.shape.marked or self._located is None:
            return None
        ties = self._located.where(F.col(cols.DISPOSITION) == TIE)
        first = F.col(quoted(self.shape.sequence[0]))
        bounds = ties.agg(F.min(first).alias("least"), F.max(first).alias("most")).collect()[0]
        with ExitStack() as stack:
            is_near = first.between(bounds["least"], bounds["most"])
            known = [self._as_merged(part.where(is_near)) for part in self._history(stack)]
            if not known:
                known = [self._as_merged(self.events.where(F.lit(False)).drop(*cols.OF_EVENT))]
            known_rows = reduce(lambda one, other: one.unionByName(other), known)
            anew = self.found.pending.whole is not None
            won_ties = tr.winning_ties(ties, known_rows, self.shape, anew=anew)
            mirror = self._mirror_rows()
            if anew and mirror is not None:
                won_ties = tr.changing(won_ties, mirror, self.shape)
            winners = won_ties.localCheckpoint()
        won = winners.count()
        self.counts.repeated -= won
        self.counts.upserted += won
        return winners if won else None

    @property
    def _unfit(self) -> tuple[Unfit, ...]:
        return self.found.drift.unfit

    def _as_merged(self, part: DataFrame) -> DataFrame:
        """Return events of the past as the rows they were: their columns may have fitted then."""
        had = {field.name: field.dataType for field in part.schema}
        has = {field.name: field.dataType for field in self.shape.columns}
        unfit = [
            one
            for one in self._unfit
            if one.column in had and had[one.column] != has.get(one.column)
        ]
        rows = tr.as_rows(tr.classified(part, self.spec, unfit), self.shape, unfit)
        return rows.where(F.col(cols.OTHER).isNull())

    def _history(self, stack: ExitStack) -> list[DataFrame]:
        """Return the events that are merged already, as far as the changelog still has them."""
        checkpoint = self.found.state.checkpoint if self.found.state else None
        changelog = JavaTable(self.lake, self.session, self.lake.ref(self.spec.changelog))
        parts = []
        merged = checkpoint.snapshot_id if checkpoint else None
        if merged is not None and self.found.changelog.snapshot_by_id(merged) is not None:
            parts.append(self._at(self.spec.changelog, merged))
        begun = self._begun_slices(checkpoint, changelog)
        if begun:
            parts.append(_slices(stack, changelog, begun))
        return parts

    def _begun_slices(
        self, checkpoint: Checkpoint | None, changelog: JavaTable
    ) -> tuple[Slice, ...]:
        if checkpoint is None or checkpoint.scanning is None:
            return ()
        if self.found.changelog.snapshot_by_id(checkpoint.scanning) is None:
            return ()
        after = None if checkpoint.whole else checkpoint.snapshot_id
        return consumed_slices(checkpoint, changelog.plan_files(checkpoint.scanning, after))

    @property
    def has_tombstones(self) -> bool:
        return self._buries or self.counts.truncated

    def tombstones(self, batch_id: str, now: datetime) -> DataFrame:
        """Return the keys this batch deletes, and its TRUNCATE."""
        if self._located is None:
            raise AssertionError("look_up comes first")
        buried = tr.tombstones_of(self._located, self.shape).withColumn(KIND, F.lit(DELETED))
        barrier = self.barrier_column
        if self.counts.truncated and barrier is not None:
            fields = {field.name: field.dataType for field in self.shape.columns}
            row = self.session.range(1).select(
                *(
                    barrier[name].alias(name)
                    if name in self.shape.sequence
                    else F.lit(None).cast(fields[name]).alias(name)
                    for name in dict.fromkeys((*self.shape.keys, *self.shape.sequence))
                ),
                F.lit(TRUNCATED).alias(KIND),
            )
            buried = buried.unionByName(row)
        return _stamped(buried, batch_id, now)

    def rejected(self, batch_id: str, now: datetime, known_id: int | None) -> DataFrame:
        """Return the events that could not be taken.

        Args:
            known_id: the snapshot with those that were set aside before, if there are any.
        """
        rows = tr.rejected(self.events)
        if self.found.pending.whole is not None and known_id is not None:
            # Everything is merged, perhaps again: what was set aside before need not be twice.
            known = self._at(self.spec.rejected, known_id)
            # Not by their place: the changelog may have been compacted since.
            rows = rows.join(known, on=["reason", "event"], how="left_anti")
        return _stamped(rows, batch_id, now)

    def _at(self, identifier: Identifier, snapshot_id: int) -> DataFrame:
        reader = self.session.read.option("versionAsOf", snapshot_id)
        return reader.table(self.lake.ref(identifier).quoted)


def _require_same_columns(spec: MergeSpec, found: Look, changes: DataFrame) -> None:
    """Refuse columns that nobody has compared with the mirror's: they changed a moment ago."""
    looked_at = {field.name for field in fields_to_read(spec, found.changelog.schema())}
    read = {name for name in changes.columns if not name.startswith(cols.DROPPED)}
    read -= {cols.FILE, cols.POSITION}
    if read != looked_at:
        changed = ", ".join(sorted(read ^ looked_at))
        raise ConflictError(
            f"{spec.changelog_name}: its columns have changed: {changed}",
            hint="it is tried again",
            retryable=True,
        )


def _columns(
    changelog: JavaTable, mirror: TableRef, found: Look, changes: T.StructType
) -> T.StructType:
    """Return the mirror's columns as they are once it has followed the changelog."""
    if found.mirror is None:
        return T.StructType([field for field in changes if field.name in found.drift.taken])
    renamed = dict(found.drift.renamed)
    present = [
        T.StructField(renamed.get(field.name, field.name), field.dataType)
        for field in changelog.session.table(mirror.quoted).schema
    ]
    sources = {each.column.name: each.read_as for each in found.drift.dropped}
    wider = {
        name: changes[source].dataType
        for name in found.drift.widened
        if (source := name if name in changes.names else sources[name]) in changes.names
    }
    fields = [T.StructField(field.name, wider.get(field.name, field.dataType)) for field in present]
    return T.StructType([*fields, *(changes[name] for name in found.drift.added)])


def _changes(stack: ExitStack, changelog: JavaTable, found: Look, batch: Batch) -> DataFrame:
    schema = found.drift.read_schema
    if batch.until_id is not None:
        after_id, until_id = batch.after_id, batch.until_id
        if schema and needs_schema(found.changelog, schema, after_id, until_id):
            tasks = changelog.plan_files(until_id, after_id)
            return stack.enter_context(changelog.scan(tasks, schema.model_dump_json()))
        rows = added_rows(changelog.session, changelog.ref, batch.until_id, batch.after_id)
        return rows.select("*", cols.FILE, cols.POSITION)
    return _slices(stack, changelog, batch.slices, schema)


def _slices(
    stack: ExitStack, changelog: JavaTable, slices: Sequence[Slice], schema: Schema | None = None
) -> DataFrame:
    schema_json = schema.model_dump_json() if schema else None
    rows = stack.enter_context(changelog.scan([one.task for one in slices], schema_json))
    # At most two files are cut: the first and the last.
    cut = [one for one in slices if not one.is_whole]
    if not cut:
        return rows
    inside = [
        (F.col(cols.FILE) == one.task.path)
        & (F.col(cols.POSITION) >= one.start)
        & (F.col(cols.POSITION) < one.end)
        for one in cut
    ]
    whole = ~F.col(cols.FILE).isin([one.task.path for one in cut])
    return rows.where(reduce(or_, inside, whole))


def _stamped(rows: DataFrame, batch_id: str, now: datetime) -> DataFrame:
    return rows.withColumn(BATCH, F.lit(batch_id)).withColumn(AT, F.lit(now))
