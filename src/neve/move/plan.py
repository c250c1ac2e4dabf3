"""The plan of one table: which version moves, which files, where each goes, and what blocks it.

Nothing is written here. A dry run prints the very plan that is carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from neve.errors import CatalogError, NeveError, NotFoundError, UnsupportedError, UsageError
from neve.lake.file_store import PROBE_PREFIX
from neve.lake.local_files import TEMPORARY_PREFIX
from neve.lake.metadata_json import MOVED, MetadataJson, decode_document
from neve.lake.profile import profile_named
from neve.lake.registering import registered_table
from neve.lake.table_ref import TableRef
from neve.move.copy import CopyJob
from neve.move.extension import require_unwritten, without_expired
from neve.move.files import TableFile
from neve.move.inventory import Inventory, list_files
from neve.move.leave_behind import leave_behind
from neve.move.metadata_pairs import is_below
from neve.move.paths import PathMap, Prefix, collisions, normal_path
from neve.move.record import read_record
from neve.move.register import read_target
from neve.move.report import PlanReport
from neve.move.spec import Existing, MoveSpec
from neve.move.target_location import free_location, require_apart, target_location
from neve.move.workers import Workers

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.file_store import FileStore

# Below the target's location: files that lie outside the source's.
_ELSEWHERE = "data/elsewhere"
# How names begin that only moves give: rewritten files (with their content's digest), and what a
# move at this moment, or a killed one, has not finished.
_OWN_NAMES = ("moved-", TEMPORARY_PREFIX, PROBE_PREFIX)
_METADATA_NAME = ".metadata.json"


@dataclass(frozen=True)
class TablePlan:
    """How one table is moved.

    Args:
        version: what moves of the source: its metadata with the source's paths.
        present: the table that the target had when this was planned.
        is_done: this version has arrived already.
        already: target files that were there when this was planned, and their lengths.
    """

    source: TableRef
    target: TableRef
    spec: MoveSpec
    version: MetadataJson
    present: MetadataJson | None
    location: str
    inventory: Inventory
    is_done: bool = False
    already: Mapping[str, int] | None = None
    left_behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()

    @cached_property
    def path_map(self) -> PathMap:
        return path_map(self.version.location, self.location)

    def target_path(self, file: TableFile) -> str:
        path = self.path_map.target(file.path)
        if path is None:
            raise TypeError(f"{file.path} goes nowhere")
        return path

    @cached_property
    def rewritten(self) -> tuple[TableFile, ...]:
        """Files with paths inside, which are written anew."""
        return tuple(file for file in self.inventory.files if file.kind.names_paths)

    @cached_property
    def copies(self) -> tuple[CopyJob, ...]:
        """Files that are copied as they are, without those that the target has."""
        if not self.spec.rewrite:
            return ()
        present = self.already or {}
        jobs = (
            CopyJob(file.path, self.target_path(file), file.size)
            for file in self.inventory.files
            if not file.kind.names_paths
        )
        return tuple(job for job in jobs if present.get(job.target, -1) != job.size)

    def require_unblocked(self) -> None:
        """Refuse a table that cannot be moved."""
        if self.blocked_by:
            more = f" (and {len(self.blocked_by) - 1} more)" if len(self.blocked_by) > 1 else ""
            raise UnsupportedError(
                f"{self.source.name} cannot be moved: {self.blocked_by[0]}{more}",
                hint="all reasons: --dry-run" if more else None,
            )

    def report(self) -> PlanReport:
        files = self.inventory.files
        rewrites = len(self.rewritten) + 1 if self.spec.rewrite and not self.is_done else 0
        copies = () if self.is_done else self.copies
        done = ("it has arrived already; nothing is to be done",) if self.is_done else ()
        return PlanReport(
            self.source.name,
            self.target.name,
            self.location,
            self.version.format_version,
            self.inventory.snapshots,
            tuple(sorted(self.version.refs)),
            dict(Counter(file.kind.value for file in files)),
            sum(file.size or 0 for file in files),
            len(copies),
            sum(job.size or 0 for job in copies),
            rewrites,
            self.spec.existing.value if self.present else None,
            self.left_behind,
            (*self.notes, *done),
            self.blocked_by,
        )


def path_map(source_location: str, location: str) -> PathMap:
    """Return where the files of a table go."""
    return PathMap([Prefix(source_location, location)], f"{location}/{_ELSEWHERE}")


def plan_table(
    lake: Lake,
    source: TableRef,
    spec: MoveSpec,
    source_store: FileStore,
    target_store: FileStore,
    workers: Workers,
    earlier_location: str | None = None,
) -> TablePlan:
    """Plan the move of a table's present version. Reads the catalogs' pointers once.

    Args:
        workers: read the manifests.
        earlier_location: where an interrupted move of this table has put files.

    Raises:
        NeveError: the target cannot take tables, or something cannot be reached.
    """
    target = TableRef(spec.target, source.identifier)
    pinned = _read_source(lake, source)
    present = read_target(lake, target)
    if not spec.rewrite:
        inventory = _list_files(pinned, source_store, workers)
        return _plan_in_place(pinned, present, source, target, spec, inventory)
    moved = leave_behind(pinned, source.name)
    version = moved.metadata
    if present is not None and spec.existing is Existing.EXTEND:
        version = without_expired(version, present)
    base = spec.location or earlier_location if present is None else spec.location
    location = target_location(lake, target, present, base)
    inventory = _list_files(version, source_store, workers)
    plan = TablePlan(source, target, spec, version, present, location, inventory)
    plan = replace(plan, left_behind=moved.lines, is_done=_is_done(plan))
    if plan.is_done:
        return plan
    if plan.present is None:
        plan = _with_free_location(
            lake, plan, target_store, is_resumed=earlier_location is not None
        )
    elif spec.existing is Existing.EXTEND:
        listed = _list_files(plan.present, target_store, workers)
        plan = replace(plan, already=_proven_files(plan.present, listed, target_store))
    shares = _share_a_store(lake, plan)
    return replace(plan, blocked_by=tuple(_blockers(plan, shares_store=shares)))


def _read_source(lake: Lake, source: TableRef) -> MetadataJson:
    pinned = registered_table(lake, source).read()
    if pinned is None:
        raise NotFoundError(f"table {source.name} was dropped", hint="run: neve tables")
    return pinned


def _plan_in_place(
    pinned: MetadataJson,
    present: MetadataJson | None,
    source: TableRef,
    target: TableRef,
    spec: MoveSpec,
    inventory: Inventory,
) -> TablePlan:
    """Plan to register the source's own metadata file: nothing is copied."""
    plan = TablePlan(source, target, spec, pinned, present, pinned.location, inventory)
    note = "the metadata file is registered as it is, with all refs and properties"
    return replace(plan, notes=(note,), is_done=_is_done(plan), blocked_by=tuple(_blockers(plan)))


def _is_done(plan: TablePlan) -> bool:
    """Tell whether the target has this version: who runs a move again changes nothing."""
    present, version = plan.present, plan.version
    if present is None or plan.spec.existing is Existing.REPLACE:
        return False
    if not plan.spec.rewrite:
        return present.metadata_location == version.metadata_location
    record = read_record(version)
    return record is not None and record == read_record(present)


def _list_files(table: MetadataJson, store: FileStore, workers: Workers) -> Inventory:
    return list_files(table.document, store.read, workers=workers, path=table.metadata_location)


def _with_free_location(
    lake: Lake, plan: TablePlan, store: FileStore, *, is_resumed: bool
) -> TablePlan:
    """Look at what lies at the target; keep away from somebody else's files."""
    wanted = plan.location

    def is_taken(location: str) -> bool:
        if _has_table(lake, plan.target.catalog, location, store):
            return True
        if is_resumed and location == wanted:
            return False
        own = {job.target: job.size for job in replace(plan, location=location).copies}
        return any(
            own.get(path) != size and not _is_left_over(path, plan.version.uuid, store)
            for path, size in store.list_sizes(location).items()
        )

    free = free_location(wanted, plan.version.uuid, is_taken)
    if free == wanted:
        return plan
    note = f"other files lie at {wanted}: it goes to {free}"
    return replace(plan, location=free, notes=(*plan.notes, note))


def _has_table(lake: Lake, catalog: str, location: str, store: FileStore) -> bool:
    """Tell whether a location is that of a table: of the same one, moved before and renamed there.

    All tables are read, but only if an earlier move came as far as to write metadata.
    """
    files = store.list_sizes(f"{location}/metadata")
    if not any(path.endswith(_METADATA_NAME) for path in files):
        return False
    reader = lake.reader(catalog)
    listed = reader.metadata_files()
    for name, table in reader.read_all(listed).items():
        if isinstance(table, MetadataJson):
            if is_below(location, table.location):
                return True
        elif table is not None and is_below(location, listed[name] or location):
            # It cannot be read, and may lie there.
            return True
    return False


def _is_left_over(path: str, table_uuid: str, store: FileStore) -> bool:
    """Tell whether an earlier move of this table has written a file."""
    name = path.rpartition("/")[2]
    if name.startswith(_OWN_NAMES):
        return True
    if not name.endswith(_METADATA_NAME):
        return False
    try:
        metadata = MetadataJson(path, decode_document(store.read(path)))
    except (ValueError, NotFoundError):
        return False
    return MOVED in metadata.properties and metadata.uuid == table_uuid


def _proven_files(present: MetadataJson, inventory: Inventory, store: FileStore) -> dict[str, int]:
    """Return the files of a table that a move extends: they were proven when it was registered."""
    stored = {normal_path(path): size for path, size in store.list_sizes(present.location).items()}
    return {
        file.path: file.size
        for file in inventory.files
        # One that was lost since is copied again.
        if file.size is not None and stored.get(normal_path(file.path)) == file.size
    }


def _share_a_store(lake: Lake, plan: TablePlan) -> bool:
    """Tell whether a path means the same file at the source and at the target."""
    if normal_path(plan.location).startswith("file:"):
        return True
    source, target = (
        profile_named(lake.settings, each.catalog).storage for each in (plan.source, plan.target)
    )
    return source.endpoint == target.endpoint


def _blockers(plan: TablePlan, *, shares_store: bool = True) -> Iterator[str]:
    yield from map(str, plan.inventory.problems)
    if plan.present is not None and not plan.is_done:
        yield from _blockers_of_target(plan, plan.present)
    if not plan.spec.rewrite:
        return
    if shares_store:
        try:
            require_apart(plan.version.location, plan.location)
        except UsageError as error:
            yield str(error)
    targets = {file.path: plan.target_path(file) for file in plan.inventory.files}
    for first, second in collisions(targets):
        yield f"{first} and {second} would become one file"


def _blockers_of_target(plan: TablePlan, present: MetadataJson) -> Iterator[str]:
    if plan.spec.existing is Existing.REFUSE:
        yield (
            f"{plan.target.name} exists already; extend it: --incremental; or put the source in "
            "its place: --replace"
        )
    elif plan.spec.existing is Existing.EXTEND:
        document = {**plan.version.document, "location": plan.location}
        try:
            require_unwritten(present, MetadataJson(plan.version.metadata_location, document))
        except CatalogError as error:
            yield str(error)


def failed_plan(source: TableRef, spec: MoveSpec, error: NeveError) -> PlanReport:
    """Say why a table has no plan."""
    target = TableRef(spec.target, source.identifier)
    return PlanReport(source.name, target.name, blocked_by=(str(error),))
