"""The steps of a merge; each can be killed, repeated, and run by two workers at once.

Delivery: exactly once. How far a mirror has come stands in the summary of the commit that brought
it there, so rows, deletions and checkpoint appear together or not at all. Merging the same events
again changes nothing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import ancestors_of

from neve import failpoints
from neve.errors import (
    ConfigError,
    ConflictError,
    NeveError,
    UnknownOutcomeError,
    UnsupportedError,
)
from neve.index.maintain import Refreshed, build, refreshed
from neve.index.mirrors import observe
from neve.index.removal import remove_unreferenced
from neve.index.state import find_root
from neve.lake.catalog import load_table
from neve.lake.create import load_if_exists
from neve.lake.java_tables import MAIN, JavaTable, isolated
from neve.merge.batch import BatchWork
from neve.merge.checkpoint import (
    BATCH_ID,
    CHECKPOINT,
    REJECTED,
    TOMBSTONES,
    Checkpoint,
)
from neve.merge.indexed import index_locator
from neve.merge.locate import Locator
from neve.merge.mirror import (
    mirror_properties,
    origins_property,
    partition_spec,
    source_property,
    united_schema,
)
from neve.merge.plan import Look, look, look_anew, next_batch
from neve.merge.replace_rows import ReplaceRows
from neve.merge.report import Counts, Preview, TableReport
from neve.merge.side import REJECTED_SCHEMA, SideTable, tombstones_schema
from neve.merge.spec import merge_specs
from neve.merge.strategy import ON_TRUNCATE, Choice, MergeInto, Strategy, Writer, choose
from neve.observe.traces import span
from neve.publish.apply import Retry

if TYPE_CHECKING:
    import threading

    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake import Lake
    from neve.merge.spec import MergeSpec

logger = logging.getLogger(__name__)

Observe = Callable[["Lake", "MergeSpec"], Look]


@dataclass(frozen=True)
class Committed:
    """One batch that is in the mirror."""

    counts: Counts
    seconds: float
    reaches: Checkpoint


@dataclass
class _Way:
    """How one batch is merged."""

    choice: Choice
    locator: Locator
    writer: Writer
    by_statement: MergeInto
    scan: Callable[[], Locator]
    leaves_index: bool = False


@dataclass
class Merger:
    """Keeps one mirror."""

    lake: Lake
    spec: MergeSpec
    retry: Retry = field(default_factory=Retry)
    progress: Callable[[str], None] = logger.info
    strategy: Strategy = Strategy.AUTO

    @property
    def name(self) -> str:
        return self.spec.name

    def rebuild(self) -> TableReport:
        """Make the mirror anew of the whole changelog, in one commit that replaces all its rows.

        Raises:
            CatalogError: the changelog's history is not complete.
        """
        started = time.monotonic()
        report = TableReport(self.name)
        done = self._insist(report, look_anew)
        if done is not None:
            report.add(done.counts, done.seconds)
        report.duration_seconds = time.monotonic() - started
        return report

    def preview(self) -> Preview:
        """Say what the next commit would change. Writes nothing."""
        found = look(self.lake, self.spec)
        if found.pending.is_empty:
            return Preview(self.name, notes=_notes(self.name, found))
        with ExitStack() as stack:
            session = stack.enter_context(isolated(self.lake, {}))
            batch = next_batch(found, self.spec, JavaTable(self.lake, session, self.spec.changelog))
            work = stack.enter_context(
                BatchWork.reading(self.lake, session, self.spec, found, batch)
            )
            buried = found.state.tombstones_id if found.state else None
            work.look_up(work.scanning(buried, datetime.now(timezone.utc)))
        choice = choose(found, self.spec, batch.events, self.strategy)
        if work.counts.truncated:
            choice = ON_TRUNCATE
        return Preview(
            self.name,
            found.pending.lag_snapshots,
            work.counts,
            choice.strategy.value,
            choice.why,
            _notes(self.name, found),
        )

    def merge(self, stop: threading.Event | None = None) -> TableReport:
        """Merge all that is waiting, a commit for each batch; stop between commits when asked.

        Raises:
            NeveError: the mirror is as the last commit left it, and the next call goes on there.
        """
        started = time.monotonic()
        report = TableReport(self.name)
        try:
            while True:
                done = self._insist(report)
                if done is None:
                    break
                report.add(done.counts, done.seconds)
                self.progress(_told(self.name, report))
                self._build_index(report)
                if stop is not None and stop.is_set():
                    break
        finally:
            report.duration_seconds = time.monotonic() - started
        return report

    def _insist(self, report: TableReport, observe: Observe = look) -> Committed | None:
        """Merge one batch, on fresh metadata each time, until it is done or refused for good."""
        for number in range(self.retry.attempts):
            try:
                return self._merge_batch(report, observe)
            except NeveError as error:
                if not error.retryable or number + 1 == self.retry.attempts:
                    raise
                report.conflicts += isinstance(error, ConflictError)
                logger.warning("%s", error)
                self.retry.wait(number)
        return None

    def _merge_batch(self, report: TableReport, observe: Observe) -> Committed | None:
        started = time.monotonic()
        with span("merge.look", table=self.name):
            found = observe(self.lake, self.spec)
        report.lag_seconds = found.pending.lag_seconds
        report.lag_snapshots = found.pending.lag_snapshots
        for note in _notes(self.name, found):
            report.note(note)
        if found.pending.is_empty:
            return None
        with ExitStack() as stack:
            with span("merge.prepare", table=self.name):
                found = self._prepare(found)
                failpoints.reach("merge.prepared")
                session = stack.enter_context(isolated(self.lake, {}))
                changelog = JavaTable(self.lake, session, self.spec.changelog)
                batch = next_batch(found, self.spec, changelog)
            work = stack.enter_context(
                BatchWork.reading(self.lake, session, self.spec, found, batch)
            )
            self._apply(work, report)
        failpoints.reach("merge.published")
        return Committed(work.counts, time.monotonic() - started, batch.reaches)

    def _prepare(self, found: Look) -> Look:
        """Make the mirror, or give it the columns it lacks. Idempotent."""
        anew = look_anew if found.rebuild else look
        mirror = JavaTable(self.lake, self.lake.spark, self.spec.mirror)
        if found.mirror is None or found.state is None:
            tombstones = self._tombstones(found).empty()
            rejected = self._rejected().empty()
            mirror.create(
                found.schema.model_dump_json(),
                partition_spec(self.spec, found.schema).model_dump_json(),
                mirror_properties(self.spec, str(found.changelog.table_uuid)),
                {
                    CHECKPOINT: Checkpoint(str(found.changelog.table_uuid)).encode(),
                    TOMBSTONES: str(tombstones),
                    REJECTED: str(rejected),
                },
            )
            return self._prepare(anew(self.lake, self.spec))
        remembered = {
            **origins_property(found.drift, found.changelog, found.mirror),
            **source_property(self.spec, str(found.changelog.table_uuid)),
        }
        grown = found.drift.changes_mirror
        if grown or not remembered.items() <= found.mirror.properties.items():
            mirror.union_schema(united_schema(found.drift).model_dump_json(), remembered)
        return self._prepare(anew(self.lake, self.spec)) if grown else found

    def _apply(self, work: BatchWork, report: TableReport) -> None:
        """Decide a batch, write what is beside the mirror, then commit to the mirror itself."""
        found, state = work.found, work.found.state
        if state is None:
            raise AssertionError("the mirror was prepared")
        batch_id, now = uuid.uuid4().hex, datetime.now(timezone.utc)
        tombstones, rejected = self._tombstones(found), self._rejected()
        with span("merge.beside", table=self.name):
            tombstones.open()
            rejected.open()
        buried = tombstones.empty() if found.rebuild else tombstones.go_to(state.tombstones_id)
        refused = rejected.go_to(state.rejected_id)
        way = self._choose_way(work, tombstones, buried, now, report)
        files = self._write(work, way, batch_id, now)
        report.strategy, report.why = way.choice.strategy.value, way.choice.why
        report.index_wanted |= way.leaves_index
        if files:
            with span("merge.bury", table=self.name):
                buried = tombstones.append(files, {BATCH_ID: batch_id})
        failpoints.reach("merge.buried")
        if work.counts.set_aside:
            files = rejected.write(work.rejected(batch_id, now))
            refused = rejected.append(files, {BATCH_ID: batch_id})
        failpoints.reach("merge.rejected")
        summary = {
            CHECKPOINT: work.batch.reaches.encode(),
            BATCH_ID: batch_id,
            TOMBSTONES: str(buried),
            REJECTED: str(refused),
            **work.barrier_summary(),
        }
        try:
            with span("merge.commit", table=self.name):
                way.writer.commit(work, summary)
        except UnknownOutcomeError:
            # Nothing is cleaned up: the commit is there, or it is not.
            if not self._is_published(batch_id):
                raise
        if isinstance(way.writer, ReplaceRows) and way.writer.compacted:
            self._remove_old_shards()

    def _remove_old_shards(self) -> None:
        """Remove files of the index that no retained snapshot names. Best effort."""
        try:
            remove_unreferenced(observe(self.lake, self.spec.mirror))
        except NeveError as error:
            logger.warning("%s: old files of the index were not removed: %s", self.name, error)

    def _choose_way(
        self,
        work: BatchWork,
        tombstones: SideTable,
        buried: int,
        now: datetime,
        report: TableReport,
    ) -> _Way:
        """Take the cheapest way to find rows and to replace them."""
        choice = choose(work.found, self.spec, work.batch.events, self.strategy)
        index = None
        if choice.strategy is Strategy.INDEX:
            with span("merge.index", table=self.name):
                index, choice = self._fresh_index(work, choice, report)
        scan = partial(work.scanning, buried, now)
        locator = scan() if index is None else index_locator(work.session, index, work.batch.events)
        mirror = JavaTable(self.lake, work.session, self.spec.mirror)
        by_statement = MergeInto(self.lake, mirror, tombstones)
        if choice.strategy is Strategy.MERGE:
            return _Way(choice, locator, by_statement, by_statement, scan)
        table = load_table(self.lake.profile, self.lake.catalog(), self.spec.mirror)
        by_files = ReplaceRows(table, tombstones, index)
        return _Way(choice, locator, by_files, by_statement, scan)

    def _write(self, work: BatchWork, way: _Way, batch_id: str, now: datetime) -> list[DataFile]:
        """Decide a batch and write what can be before the commit, in one job if possible."""
        writer = way.writer
        if isinstance(writer, ReplaceRows):
            with span("merge.at_once", table=self.name):
                if writer.write_at_once(work, way.locator, batch_id, now):
                    return writer.tombstone_files
            if work.counts.index_is_broken:
                self._leave_index(way, writer)
        with span("merge.decide", table=self.name):
            work.look_up(way.locator)
            if work.counts.index_is_broken and isinstance(writer, ReplaceRows):
                # It could be read a moment ago; what it did not say would be taken for new rows.
                self._leave_index(way, writer)
                work.look_up(way.locator)
        if work.counts.truncated and way.choice.strategy is not Strategy.MERGE:
            way.choice, way.writer = ON_TRUNCATE, way.by_statement
        with span("merge.write", table=self.name):
            return way.writer.write(work, batch_id, now)

    def _leave_index(self, way: _Way, writer: ReplaceRows) -> None:
        """Go on without an index that cannot be read, and have it built anew afterwards."""
        way.choice = Choice(Strategy.SCAN, "the index is broken, and is built anew")
        way.locator, way.leaves_index = way.scan(), True
        way.writer = ReplaceRows(writer.table, writer.tombstones)

    def _fresh_index(
        self, work: BatchWork, choice: Choice, report: TableReport
    ) -> tuple[Refreshed | None, Choice]:
        """Bring the index to the snapshot the batch is decided on, or say why it is not used.

        A merge does not wait for a whole index, unless it was asked to: it reads the keys once
        more, and the index is built when the batch is in.
        """
        try:
            mirror = observe(self.lake, self.spec.mirror)
            if work.found.state is None or mirror.main_id != work.found.state.main_id:
                raise ConflictError(f"{self.name}: main has moved", retryable=True)
            root, why = find_root(mirror)
            if root is None and self.strategy is not Strategy.INDEX:
                report.index_wanted = True
                return None, Choice(Strategy.SCAN, f"there is no index yet: {why}")
            found = refreshed(self.lake, mirror, self.progress)
        except UnsupportedError as error:
            return None, Choice(Strategy.SCAN, error.message)
        report.count_index(found)
        return found, choice

    def _build_index(self, report: TableReport) -> None:
        """Build the index that the next merge will use; a failure costs nothing but time."""
        if not report.index_wanted:
            return
        report.index_wanted = False
        try:
            report.count_index(build(self.lake, self.spec.mirror, self.progress))
        except NeveError as error:
            report.note(f"{self.name}: the index was not built: {error.message}")

    def _is_published(self, batch_id: str) -> bool:
        """Look for a commit whose answer was lost, for as long as a merge is insisted on."""
        metadata = self._mirror_metadata()
        if metadata is None:
            return False
        main = metadata.snapshot_by_name(MAIN)
        return any(
            one.summary is not None and one.summary[BATCH_ID] == batch_id
            for one in ancestors_of(main, metadata)
        )

    def _mirror_metadata(self) -> TableMetadata | None:
        for number in range(self.retry.attempts):
            try:
                found = load_if_exists(self.lake.profile, self.lake.catalog(), self.spec.mirror)
            except NeveError as error:
                if not error.retryable or number + 1 == self.retry.attempts:
                    raise
                self.retry.wait(number)
            else:
                return found.metadata if found else None
        return None

    def _tombstones(self, found: Look) -> SideTable:
        schema = tombstones_schema(self.spec, found.schema)
        return SideTable(self.lake, self.spec.tombstones, schema)

    def _rejected(self) -> SideTable:
        return SideTable(self.lake, self.spec.rejected, REJECTED_SCHEMA)


def configured_mergers(
    lake: Lake, names: tuple[str, ...], progress: Callable[[str], None], strategy: str = "auto"
) -> list[Merger]:
    """Return what keeps each configured mirror, or each of the named ones.

    Raises:
        ConfigError: none is configured.
    """
    lake.profile.require_catalog("merging")
    specs = merge_specs(lake.settings, names)
    if not specs:
        raise ConfigError(
            "merge.tables names no mirror", hint="see docs/mirroring-a-database.md for an example"
        )
    chosen = Strategy(strategy)
    return [Merger(lake, spec, progress=progress, strategy=chosen) for spec in specs]


def _notes(name: str, found: Look) -> list[str]:
    notes = [found.pending.note] if found.pending.note else []
    drift = found.drift
    for what, columns in (("added", drift.added), ("widened", drift.widened)):
        if columns and found.mirror is not None:
            notes.append(f"{name}: columns {what}: {', '.join(columns)}")
    return notes + [
        f"{name}: {one.why}; such rows are set aside ({one.remedy})" for one in drift.unfit
    ]


def _told(name: str, report: TableReport) -> str:
    return (
        f"{name}: batch {report.batches}, {report.rows_scanned} events: "
        f"{report.rows_upserted} rows written, {report.rows_deleted} deleted"
    )
