"""The upkeep of the tables that consolidation writes: now and then, each table on its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.ages import age_text
from neve.buffer.buffer import open_reader
from neve.config.merging import REJECTED_SUFFIX as MIRROR_REJECTED_SUFFIX
from neve.config.merging import TOMBSTONES_SUFFIX
from neve.errors import ConfigError, NeveError, NotFoundError
from neve.index.indexed_table import observe
from neve.index.maintain import remove_unreferenced
from neve.lake.catalog import list_tables, load_table
from neve.lake.followers import FollowerState, list_followers
from neve.lake.identifier import name_of
from neve.lake.staging import StagingTable
from neve.observe.failures import failure_of
from neve.publish import ledger
from neve.publish.publisher import Publisher
from neve.publish.rejected_rows import REJECTED_SUFFIX
from neve.sizes import size_text
from neve.telemetry.schemas import SCHEMAS
from neve.upkeep.abandoned import discard_abandoned
from neve.upkeep.ledger import compact_ledger
from neve.upkeep.orphans import OrphanSearch
from neve.upkeep.removals import has_index
from neve.upkeep.retention import carry_out_retention, plan_retention
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.row_age import RowAgePlan, delete_old_rows, plan_row_age
from neve.upkeep.snapshot_needs import needed_snapshots
from neve.upkeep.table_places import TablePlaces

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.unconfirmed import UnconfirmedWrite
    from neve.upkeep.retention_policy import RetentionPolicy
    from neve.upkeep.spec import UpkeepSpec

logger = logging.getLogger(__name__)

_FIRST_ORPHANS_SECONDS = 3600.0
PART = "upkeep"


@dataclass
class UpkeepReport:
    """What a look at the tables came to."""

    expired_snapshots: int = 0
    # Staged batches that lost against another worker's.
    abandoned: int = 0
    # Files of the ledger that were rewritten into few.
    compacted_files: int = 0
    # Files that no snapshot named, deleted.
    orphans: int = 0
    orphan_bytes: int = 0
    # How far the followers of all tables are behind.
    followers: list[FollowerState] = field(default_factory=list)
    # Why a table could not be looked after, by its name.
    failures: dict[str, str] = field(default_factory=dict)


@dataclass
class Upkeep:
    """Looks after the tables that consolidation writes."""

    lake: Lake
    spec: UpkeepSpec
    clock: Callable[[], float] = time.time
    # Direct writes that `neve recover` has yet to look for: asked anew in each run.
    unconfirmed_writes: Callable[[], Iterable[UnconfirmedWrite]] = tuple
    next_look: float = 0.0

    def __post_init__(self) -> None:
        self.reader = open_reader(self.spec.buffer)
        self.places = TablePlaces(self.lake)
        self._row_ages: dict[Identifier, RowAgePlan] = {}
        interval = self.lake.settings.upkeep.orphan_interval
        # Not at the start: a service that dies again and again would list everything each time.
        self.next_orphans = self.clock() + min(interval, _FIRST_ORPHANS_SECONDS)

    def run_when_due(self, stop: threading.Event | None = None) -> UpkeepReport | None:
        """Look after the tables if the last look is long enough ago; None when it is not."""
        now = self.clock()
        if now < self.next_look:
            return None
        self.next_look = now + self.lake.settings.upkeep.interval
        report = self.run(stop)
        if now >= self.next_orphans:
            self.next_orphans = now + self.lake.settings.upkeep.orphan_interval
            self.remove_orphans(report, stop)
        return report

    def run(self, stop: threading.Event | None = None) -> UpkeepReport:
        """Expire what can go, and discard what was abandoned, in every table, until `stop` is set.

        Best effort: a table that fails is named in the report, stops no other, and is looked after
        again at the next look. Nothing here is on the path of a batch.
        """
        report = UpkeepReport()
        self.places.begin_run()
        writes = self._known_writes(report)
        for identifier in self._listed(report):
            if stop is not None and stop.is_set():
                break
            with self._reporting(name_of(identifier), report):
                self._look_after(identifier, writes, report)
        if stop is None or not stop.is_set():
            with self._reporting("followers", report):
                report.followers = list_followers(self.lake)
        return report

    def remove_orphans(self, report: UpkeepReport, stop: threading.Event | None = None) -> None:
        """Delete files that no snapshot names, in every table whose policy allows it.

        Best effort, as `run`; lists each table's location.
        """
        writes = self._known_writes(report)
        if writes is None:
            return
        self.places.begin_run()
        for identifier in self._listed(UpkeepReport()):
            if stop is not None and stop.is_set():
                break
            search = OrphanSearch(self.lake, self.lake.ref(identifier), writes, self.places)
            with self._reporting(name_of(identifier), report):
                self._remove_orphans(identifier, search, report, stop)

    def _remove_orphans(
        self,
        identifier: Identifier,
        search: OrphanSearch,
        report: UpkeepReport,
        stop: threading.Event | None,
    ) -> None:
        metadata = self.lake.reader().read_document(identifier)
        policy = retention_policy(self.lake.settings, identifier, metadata)
        if not policy.remove_orphans:
            return
        plan = search.plan(self.clock() - policy.orphan_age_seconds, stop=stop)
        if plan.skipped:
            logger.info("%s: no orphans are removed: %s", plan.table, plan.skipped)
            return
        if has_index(policy.kind, metadata):
            # Shards that no root names lie outside of the table's location.
            mirror = observe(self.lake, identifier)
            report.orphans += remove_unreferenced(mirror, policy.orphan_age_seconds)
        if plan.orphans:
            self.lake.progress(
                f"{plan.table}: deleting {len(plan.orphans):,} files of {size_text(plan.bytes)} "
                f"that no snapshot names, older than {age_text(policy.orphan_age_seconds)}"
            )
        removed = search.remove(plan, stop)
        report.orphans += removed.files
        report.orphan_bytes += removed.bytes

    def _known_writes(self, report: UpkeepReport) -> tuple[UnconfirmedWrite, ...] | None:
        """Return the direct writes that are not confirmed; None: a record cannot be read.

        Then nobody knows which snapshots and files such writes need, and none is removed.
        """
        try:
            return tuple(self.unconfirmed_writes())
        except Exception as error:  # noqa: BLE001 - what needs none of them is done
            self._fail(report, "recovery records", error)
            return None

    @contextmanager
    def _reporting(self, name: str, report: UpkeepReport) -> Iterator[None]:
        """Report what a table fails with, so that it stops no other."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - other tables are looked after all the same
            self._fail(report, name, error)

    def _look_after(
        self,
        identifier: Identifier,
        writes: Sequence[UnconfirmedWrite] | None,
        report: UpkeepReport,
    ) -> None:
        now = self.clock()
        if self._is_staged_to(identifier):
            table = load_table(self.lake.profile, self.lake.catalog(), identifier)
            publisher = Publisher(StagingTable(self.lake.profile, table), self.reader)
            report.abandoned += discard_abandoned(publisher, self.spec.retain_staged_seconds, now)
            if identifier == ledger.IDENTIFIER:
                report.compacted_files += compact_ledger(self.lake, table, self.spec)
        if writes is not None:
            report.expired_snapshots += self._expire(identifier, writes, now)

    def _expire(
        self, identifier: Identifier, writes: Sequence[UnconfirmedWrite], now: float
    ) -> int:
        settings, ref = self.lake.settings, self.lake.ref(identifier)
        if settings.catalog.type == "s3tables":
            # The service expires snapshots by itself.
            return 0
        metadata = self.lake.reader().read_document(identifier)
        policy = retention_policy(settings, identifier, metadata)
        if self._delete_old_rows(identifier, metadata, policy, now):
            metadata = self.lake.reader().read_document(identifier)
        horizon_ms = int((now - policy.follow_horizon_seconds) * 1000)
        needed = needed_snapshots(self.lake, identifier, policy.kind, metadata, writes, horizon_ms)
        plan = plan_retention(ref.name, metadata, policy, now, needed, self.spec.expire_at_once)
        if not plan.is_empty:
            effect = plan.effect_on(len(metadata.snapshots))
            self.lake.progress(f"{plan.table}: {effect}: {plan.why}")
        removed = carry_out_retention(self.lake, ref, plan, policy, now, needed, places=self.places)
        return removed.snapshots

    def _delete_old_rows(
        self, identifier: Identifier, metadata: MetadataJson, policy: RetentionPolicy, now: float
    ) -> bool:
        plan = plan_row_age(name_of(identifier), metadata, policy, now)
        # Once for each boundary of the partitions, and after a start.
        if plan is None or plan == self._row_ages.get(identifier):
            return False
        if plan.skipped:
            logger.warning("%s: no rows are deleted by age: %s", plan.table, plan.skipped)
        deleted = delete_old_rows(self.lake, self.lake.ref(identifier), plan)
        self._row_ages[identifier] = plan
        return deleted.rows > 0

    def _is_staged_to(self, identifier: Identifier) -> bool:
        namespace = self.lake.profile.namespace(self.spec.namespace)
        name = identifier[-1].removesuffix(REJECTED_SUFFIX)
        is_telemetry = identifier[:-1] == namespace and name in SCHEMAS
        return is_telemetry or identifier == ledger.IDENTIFIER

    def _listed(self, report: UpkeepReport) -> list[Identifier]:
        with self._reporting("tables", report):
            return self._tables(report)
        return []

    def _tables(self, report: UpkeepReport) -> list[Identifier]:
        """Return the tables that there is something to do for, mirrors before their side tables."""
        settings = self.lake.settings
        mirrors = [
            (*self.lake.profile.namespace(table.namespace), table.mirror_table)
            for table in settings.merge.tables
        ]
        sides = {
            (*mirror[:-1], mirror[-1] + suffix)
            for mirror in mirrors
            for suffix in (TOMBSTONES_SUFFIX, MIRROR_REJECTED_SUFFIX)
        }
        namespaces = [self.lake.profile.namespace(self.spec.namespace), ledger.IDENTIFIER[:-1]]
        namespaces += [mirror[:-1] for mirror in mirrors]
        tables: dict[Identifier, None] = {}
        # With policies, any table of the catalog may be meant.
        for below in [None] if settings.upkeep.tables else list(dict.fromkeys(namespaces)):
            try:
                listed = list_tables(self.lake.profile, self.lake.catalog(), below)
            except NotFoundError:
                continue
            except NeveError as error:
                self._fail(report, name_of(below or ("tables",)), error)
                continue
            tables |= dict.fromkeys(listed)
        for line in settings.upkeep.policies_without_table(map(name_of, tables)):
            self._fail(report, "upkeep.tables", ConfigError(line))
        wanted = [
            each
            for each in tables
            if self._is_staged_to(each)
            or each in mirrors
            or each in sides
            or settings.upkeep.has_policy(name_of(each))
        ]
        return sorted(wanted, key=lambda each: (each in sides, each))

    def _fail(self, report: UpkeepReport, name: str, error: Exception) -> None:
        reason = str(failure_of(error, PART, name))
        logger.warning("%s was not looked after: %s", name, reason)
        report.failures[name] = reason
