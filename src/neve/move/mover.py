"""Moves one table: copy, rewrite, verify, register; a journal lets it go on after an interruption.

Every step finds what it did before, so a move that is run again repeats none of the work. Nothing
is registered before it is proven, and nothing is ever written through the source's credentials.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from neve import failpoints
from neve.errors import ConflictError, CorruptionError, NeveError, NotFoundError
from neve.lake.identifier import name_of
from neve.lake.metadata_json import MetadataJson, decode_document
from neve.lake.profile import profile_named
from neve.lake.spark_tasks import SparkTasks
from neve.lake.table_ref import TableRef
from neve.move.check_files import wrong_files
from neve.move.copy import CopyCounts, copy_files
from neve.move.files import FileKind, WrittenFile
from neve.move.inventory import list_files
from neve.move.journal import Journal, journal_path, read_journal
from neve.move.metadata_pairs import Defect
from neve.move.move_state import MoveHeader, MoveState, Stage
from neve.move.plan import TablePlan, path_map, plan_table
from neve.move.progress import Progress
from neve.move.rate_limit import RateLimit
from neve.move.register import Outcome, read_target, register
from neve.move.report import CheckReport, MoveReport
from neve.move.rewriter import Rewriter, RewrittenTable
from neve.move.spec import Engine, MoveSpec, Verification
from neve.move.stores import CatalogFiles
from neve.move.verify import Version, verify
from neve.move.verify_reading import StoredVersion, check_pyiceberg, check_rows
from neve.move.workers import Processes, SparkWorkers

if TYPE_CHECKING:
    from neve.lake import Lake

_MOST_PROBLEMS = 50
_COMPRESSED = (".gz.metadata.json", ".metadata.json.gz")


class Mover:
    """Moves tables to one catalog; several at once may be moved by several threads."""

    def __init__(self, lake: Lake, spec: MoveSpec, progress: Progress) -> None:
        self._lake = lake
        self._spec = spec
        self._progress = progress
        self._limit = RateLimit(spec.bytes_per_second)
        self._files: dict[str, CatalogFiles] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._workers = Processes()

    def stop(self) -> None:
        """End the moves in progress at their next step, before they register anything."""
        self._stopped.set()
        self._workers.close()

    def close(self) -> None:
        self._workers.close()
        for files in self._files.values():
            files.close()

    def plan(self, source: TableRef) -> TablePlan:
        """Plan the move of a table. Writes nothing."""
        state = read_journal(self._journal_path(source))
        earlier = None
        if state is not None and state.header is not None:
            is_same = state.header.source_catalog == source.catalog
            earlier = state.header.location if is_same and not self._spec.location else None
        return plan_table(
            self._lake,
            source,
            self._spec,
            self.files(source.catalog).store,
            self.files(self._spec.target).store,
            self._workers,
            earlier,
        )

    def move(self, source: TableRef) -> MoveReport:
        """Move a table. Resumable and idempotent: when it has arrived, nothing is done.

        Raises:
            NeveError: it is not registered, or (code: unknown_outcome) nobody knows.
        """
        began = time.monotonic()
        plan = self.plan(source)
        if plan.is_done:
            return _report(plan, Outcome.ALREADY_THERE, plan.present, began)
        plan.require_unblocked()
        with Journal(self._journal_path(source)) as journal:
            _begin(journal, plan)
            try:
                return self._carry_out(plan, journal, began)
            except Exception as error:
                reason = str(error) if isinstance(error, NeveError) else type(error).__name__
                is_damage = isinstance(error, CorruptionError)
                journal.failed(_next_stage(journal), reason, is_damage=is_damage)
                raise

    def files(self, catalog: str) -> CatalogFiles:
        """Return the files of a catalog."""
        with self._lock:
            if catalog not in self._files:
                self._files[catalog] = CatalogFiles(profile_named(self._lake.settings, catalog))
            return self._files[catalog]

    def _journal_path(self, source: TableRef) -> Path:
        directory = Path(self._lake.settings.move.journals)
        return journal_path(directory, self._spec.target, name_of(source.identifier))

    def _carry_out(self, plan: TablePlan, journal: Journal, began: float) -> MoveReport:
        name = plan.source.name
        journal.reached(Stage.PLANNED)
        failpoints.reach("move.planned")
        copied, rewritten = CopyCounts(), None
        moved = plan.version
        if plan.spec.rewrite:
            self.files(plan.spec.target).store.check_conditional_put(plan.location)
            copied = self._copy(plan, journal)
            self._progress.say(f"{name}: rewriting {len(plan.rewritten) + 1} files")
            rewritten = self._rewrite(plan, journal)
            moved = MetadataJson(rewritten.metadata.path, rewritten.document)
        self._progress.say(f"{name}: verifying")
        notes = self._verify(plan, moved)
        journal.reached(Stage.VERIFIED)
        failpoints.reach("move.verified")
        self._require_running()
        registration = register(self._lake, plan.target, moved, plan.spec.existing, plan.present)
        failpoints.reach("move.registered")
        journal.reached(Stage.REGISTERED, registered=registration.metadata.metadata_location)
        report = _report(
            plan, registration.outcome, registration.metadata, began, copied, rewritten
        )
        return replace(report, left_behind=(*report.left_behind, *notes))

    def _copy(self, plan: TablePlan, journal: Journal) -> CopyCounts:
        self._progress.expect(sum(job.size or 0 for job in plan.copies))
        copied = copy_files(
            plan.copies,
            self.files(plan.source.catalog).store,
            self.files(plan.spec.target).store,
            done=journal.copied,
            already=dict(journal.state.copied),
            files_at_once=plan.spec.files_at_once,
            limit=self._limit,
            on_bytes=self._count,
        )
        journal.reached(Stage.COPIED)
        failpoints.reach("move.copied")
        return copied

    def _count(self, size: int) -> None:
        self._require_running()
        self._progress.add(size)

    def _require_running(self) -> None:
        if self._stopped.is_set():
            raise ConflictError("the move was stopped", hint="run it again: it goes on there")

    def _rewrite(self, plan: TablePlan, journal: Journal) -> RewrittenTable:
        on_spark = plan.spec.engine is Engine.SPARK

        def note(_: FileKind, path: str, written: WrittenFile) -> None:
            journal.rewritten(path, written)

        rewriter = Rewriter(
            self.files(plan.source.catalog).read,
            self.files(plan.spec.target).write,
            plan.path_map,
            plan.location,
            known=self._rewritten_before(plan, journal),
            done=note,
            workers=SparkWorkers(SparkTasks(self._lake)) if on_spark else self._workers,
        )
        rewritten = rewriter.rewrite(
            plan.version.document,
            plan.inventory,
            compressed=plan.version.metadata_location.endswith(_COMPRESSED),
        )
        journal.reached(Stage.REWRITTEN, metadata=rewritten.metadata.path)
        failpoints.reach("move.rewritten")
        return rewritten

    def _rewritten_before(self, plan: TablePlan, journal: Journal) -> dict[str, WrittenFile]:
        """Return what the journal says was rewritten, as far as it is still there."""
        known = dict(journal.state.rewritten)
        store = self.files(plan.spec.target).store
        sizes = store.sizes([file.path for file in known.values()])
        return {path: file for path, file in known.items() if sizes[file.path] == file.size}

    def _verify(self, plan: TablePlan, moved: MetadataJson) -> tuple[str, ...]:
        """Prove that the copy is whole; return what could not be tried."""
        source, target = (self.files(each) for each in (plan.source.catalog, plan.spec.target))
        if not plan.spec.rewrite:
            wrong = tuple(islice(wrong_files(plan.inventory, target.store), _MOST_PROBLEMS))
            if wrong:
                raise CorruptionError(
                    f"{plan.source.name} is not whole in the store of catalog {plan.spec.target}: "
                    f"{wrong[0]}",
                    hint="nothing was registered; copy its files: leave --skip-rewrite out",
                )
        else:
            verify(
                Version(plan.version, source.store),
                Version(moved, target.store),
                plan.path_map.target,
                every_field=plan.spec.verification is Verification.FULL,
                workers=self._workers,
            ).require_whole(plan.source.name, plan.inventory.tally)
        return self._try_reading(plan, moved)

    def _try_reading(self, plan: TablePlan, moved: MetadataJson) -> tuple[str, ...]:
        """Have engines read the copy, in a catalog that nobody sees."""
        source, target = (
            StoredVersion(metadata, profile_named(self._lake.settings, ref.catalog))
            for metadata, ref in ((plan.version, plan.source), (moved, plan.target))
        )
        opened = check_pyiceberg(source, target)
        opened.require_readable(plan.source.name)
        if plan.spec.verification is Verification.FULL:
            check_rows(self._lake, source, target).require_readable(plan.source.name)
        return opened.notes

    def check(self, target: TableRef) -> CheckReport:
        """Check a table that was moved before: its files, and its source if that is still there.

        Writes nothing.
        """
        present = read_target(self._lake, target)
        if present is None:
            raise NotFoundError(f"table {target.name} does not exist", hint="neve move status")
        files = self.files(target.catalog)
        inventory = list_files(
            present.document,
            files.store.read,
            workers=self._workers,
            path=present.metadata_location,
        )
        wrong = [*islice(wrong_files(inventory, files.store), _MOST_PROBLEMS)]
        state = read_journal(self._journal_path(target))
        if not wrong and state is not None and state.is_finished:
            wrong = [str(each) for each in self._compare_with_source(state)]
        outcome = "damaged" if wrong else "whole"
        return CheckReport(
            target.name,
            target.catalog,
            outcome,
            len(inventory.files),
            inventory.snapshots,
            inventory.tally.rows,
            tuple(wrong),
        )

    def _compare_with_source(self, state: MoveState) -> Sequence[Defect]:
        """Compare the version that was moved with what became of it; nothing, if one is deleted."""
        header, written = state.header, state.facts.get("metadata")
        if header is None or written is None:
            return ()
        source, target = self.files(header.source_catalog), self.files(header.target_catalog)
        version = MetadataJson(header.source_metadata, json.loads(header.document))
        try:
            moved = MetadataJson(written, decode_document(target.store.read(written)))
            compared = verify(
                Version(version, source.store),
                Version(moved, target.store),
                path_map(version.location, header.location).target,
                every_field=self._spec.verification is Verification.FULL,
                workers=self._workers,
            )
        except NotFoundError:
            self._progress.say(
                f"{header.target_table}: one end no longer has the version that was moved; only "
                "the target's present files were checked"
            )
            return ()
        if compared.defects or self._spec.verification is not Verification.FULL:
            return compared.defects
        at_source, at_target = (
            StoredVersion(metadata, profile_named(self._lake.settings, catalog))
            for metadata, catalog in (
                (version, header.source_catalog),
                (moved, header.target_catalog),
            )
        )
        return check_rows(self._lake, at_source, at_target).defects


def _begin(journal: Journal, plan: TablePlan) -> None:
    """Go on with the move of the same version, or begin one."""
    header, version = journal.state.header, plan.version
    is_same = (
        header is not None
        and (header.source_catalog, header.source_metadata, header.location)
        == (plan.source.catalog, version.metadata_location, plan.location)
        and not journal.state.is_finished
    )
    if is_same:
        journal.resume()
    else:
        journal.begin(
            MoveHeader(
                uuid.uuid4().hex,
                plan.source.catalog,
                name_of(plan.source.identifier),
                version.metadata_location,
                plan.target.catalog,
                name_of(plan.target.identifier),
                plan.location,
                json.dumps(version.document).encode(),
                {
                    "existing": plan.spec.existing.value,
                    "verification": plan.spec.verification.value,
                    "engine": plan.spec.engine.value,
                },
            )
        )
    report = plan.report()
    journal.counted(
        {
            "snapshots": report.snapshots,
            "files": report.copy_files,
            "bytes": report.copy_bytes,
            "rewrites": report.rewrite_count,
        }
    )


def _next_stage(journal: Journal) -> Stage:
    """Return the stage that was not completed."""
    stages = list(Stage)
    reached = journal.state.stage
    following = 0 if reached is None else stages.index(reached) + 1
    return stages[min(following, len(stages) - 1)]


def _report(
    plan: TablePlan,
    outcome: Outcome,
    metadata: MetadataJson | None,
    began: float,
    copied: CopyCounts | None = None,
    rewritten: RewrittenTable | None = None,
) -> MoveReport:
    counts = copied or CopyCounts()
    files = sum(not file.kind.names_paths for file in plan.inventory.files)
    fresh = counts.files - counts.existing_files
    return MoveReport(
        plan.source.name,
        plan.target.name,
        outcome.value,
        metadata.location if metadata else plan.location,
        metadata.metadata_location if metadata else None,
        plan.inventory.snapshots,
        plan.inventory.tally.rows,
        plan.inventory.tally.deletes,
        fresh,
        counts.bytes - counts.existing_bytes,
        files - fresh,
        rewritten.rewrite_count + 1 if rewritten else 0,
        (*plan.left_behind, *(rewritten.notes if rewritten else ())),
        time.monotonic() - began,
    )
