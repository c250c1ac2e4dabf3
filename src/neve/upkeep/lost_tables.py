"""Register a table again whose entry in the catalog was lost, from its newest metadata file.

Which file is the newest: metadata files have numbers that rise by one with each commit, and each
names those before it in its log. A file that another one names was replaced. Of those that are left
the one with the highest number counts. Two with that number are two attempts of one commit, of
which one was refused: only a person can say which. So it is if the catalog names a file that
cannot be read: going back to an older one loses the commits since.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neve import failpoints
from neve.errors import ConflictError, CorruptionError, NeveError, NotFoundError, UsageError
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.file_store import FileStore
from neve.lake.horizons import KEYS
from neve.lake.identifier import name_of
from neve.lake.metadata_json import MetadataJson, decode_document
from neve.lake.near_names import missing_table_error
from neve.lake.paths import local_path, place_of
from neve.lake.profile import profile_named
from neve.lake.registering import registered_table, require_registering
from neve.lake.tables import summarize
from neve.upkeep.metadata_of_others import METADATA_FILE
from neve.upkeep.newest_metadata import newest_metadata, number_of
from neve.upkeep.orphans import Orphan
from neve.upkeep.unreferenced import unreferenced_files

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.table_ref import TableRef
    from neve.lake.unconfirmed import ReadUnconfirmed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LostTablePlan:
    """A table that can be registered again, and from which file."""

    table: str
    metadata_location: str
    table_uuid: str
    rows: int | None
    snapshots: int
    reason: str
    is_mirror: bool = False
    replaces: str = ""
    """The file that the catalog names and nobody can read; empty: it has no such table."""


@dataclass(frozen=True)
class LostTableReport:
    """What came of registering a table again.

    Args:
        outcome: `registered`; in a dry run `would be registered`.
        index: what became of a mirror's index; empty: it has none.
        unreferenced: files of its location that are in no snapshot; see `unreferenced.py`.
    """

    table: str
    outcome: str
    metadata_location: str
    rows: int | None
    snapshots: int
    reason: str
    index: str = ""
    unreferenced_files: int | None = None
    unreferenced_bytes: int | None = None
    unreferenced_is_complete: bool = True
    unreferenced_skipped: str = ""
    unreferenced: tuple[Orphan, ...] = field(default=(), repr=False)


def plan_lost_table(
    lake: Lake, ref: TableRef, location: str | None = None, metadata_file: str | None = None
) -> LostTablePlan:
    """Choose the metadata that a lost table is registered with. Reads; writes nothing.

    Args:
        location: where the table lies; None: where the catalog puts new tables of this name.
        metadata_file: the file that a person has chosen.

    Raises:
        ConflictError: there is such a table, or its files are those of another table; or two files
            may be the newest.
        NotFoundError: there is no metadata file.
        CorruptionError: what may be the newest file cannot be read.
    """
    require_registering(lake, ref.catalog)
    unreadable = _unreadable_entry(lake, ref)
    profile = profile_named(lake.settings, ref.catalog)
    with FileStore(profile) as store:
        if metadata_file:
            path, reason = metadata_file, "it was chosen"
        else:
            where = location or _default_location(lake, ref)
            try:
                path, reason = _find_newest(store, where, known_damaged=unreadable)
            except NotFoundError as error:
                if location or unreadable:
                    raise
                raise _nothing_lost(lake, ref, error) from error
        newest = _read(store, path)
    if unreadable and not metadata_file:
        raise CorruptionError(
            f"{unreadable}, which the catalog names for {ref.name}, cannot be read",
            hint="restore it; or go back to the newest that can be read, and lose the commits "
            f"since: neve recover --table {ref.name} --metadata {newest.metadata_location}",
        )
    _require_unused(lake, ref, newest)
    summary = summarize(ref.identifier, newest)
    return LostTablePlan(
        ref.name,
        newest.metadata_location,
        newest.uuid,
        summary.rows,
        len(newest.snapshots),
        reason,
        KEYS in newest.properties,
        unreadable,
    )


def _nothing_lost(lake: Lake, ref: TableRef, error: NotFoundError) -> NotFoundError:
    """Say that nobody knows a table of this name; most likely it is misspelled."""
    reader = lake.reader(ref.catalog)
    missing = missing_table_error(ref.catalog, ref.identifier, reader.list_tables())
    return NotFoundError(
        f"{missing.message}, nor was it lost: {error.message}",
        hint=f"if it lies elsewhere, name its directory with --location; {missing.hint}",
    )


def is_registered(lake: Lake, ref: TableRef) -> bool:
    """Tell whether the catalog has a table of this name whose metadata can be read.

    Raises as `_read_entry`.
    """
    return _read_entry(lake, ref)[0] is not None


def _unreadable_entry(lake: Lake, ref: TableRef) -> str:
    """Return the file that the catalog names for a table, if it is damaged; none: no entry.

    Raises:
        ConflictError: there is such a table.

    Raises as `_read_entry`, too.
    """
    present, damaged = _read_entry(lake, ref)
    if present is not None:
        raise ConflictError(
            f"{ref.name} is in the catalog: nothing is registered in its place",
            hint=f"neve recover --table {ref.name} alone says what is broken in it",
        )
    return damaged


def _read_entry(lake: Lake, ref: TableRef) -> tuple[MetadataJson | None, str]:
    """Return a table's metadata, or the damaged file that the catalog names instead; or neither.

    Raises:
        StorageError, CatalogError: the store or the catalog does not answer: that is no damage.
    """
    table = registered_table(lake, ref)
    try:
        return table.read(), ""
    except NeveError:
        named = table.named_file()
        if named is None or not _is_damaged(lake, ref, named):
            raise
        return None, named


def _is_damaged(lake: Lake, ref: TableRef, metadata_file: str) -> bool:
    with FileStore(profile_named(lake.settings, ref.catalog)) as store:
        try:
            _read(store, metadata_file)
        except (NotFoundError, CorruptionError):
            return True
    return False


def register_lost_table(
    lake: Lake,
    ref: TableRef,
    plan: LostTablePlan,
    unconfirmed: ReadUnconfirmed = tuple,
) -> LostTableReport:
    """Register the table that a plan names, rebuild its index, list what no snapshot names.

    Atomic; a death after the commit leaves a registered table, whose index the next merge builds.

    Args:
        unconfirmed: reads the direct writes whose files may yet come into the table.

    Raises:
        ConflictError: somebody has created or registered a table of this name meanwhile.
    """
    table = registered_table(lake, ref)

    def find_applied() -> bool | None:
        present = table.read()
        return True if present is not None and present.uuid == plan.table_uuid else None

    def attempt() -> bool:
        if plan.replaces:
            table.replace(MetadataJson(plan.replaces, {}), plan.metadata_location)
        else:
            table.insert(plan.metadata_location)
        return True

    commit_until_known(
        lambda: None,
        attempt,
        find_applied,
        policy=RetryPolicy(attempts=1),
        counters=CommitCounters(),
    )
    failpoints.reach("recover.table_registered")
    logger.info("%s: registered with %s", plan.table, plan.metadata_location)
    report = replace(planned_report(plan), outcome="registered")
    if plan.is_mirror:
        report = replace(report, index=_rebuild_index(lake, ref))
    return replace(report, **unreferenced_files(lake, ref, unconfirmed))


def planned_report(plan: LostTablePlan) -> LostTableReport:
    """Return what a dry run says."""
    return LostTableReport(
        plan.table,
        "would be registered",
        plan.metadata_location,
        plan.rows,
        plan.snapshots,
        plan.reason,
        "would be rebuilt" if plan.is_mirror else "",
    )


def _find_newest(store: FileStore, location: str, known_damaged: str) -> tuple[str, str]:
    """Return the newest metadata file in a table's directory, and why it is that one."""
    directory = f"{location.rstrip('/')}/metadata"
    paths = sorted(
        file.path
        for file in store.list_files(directory)
        if METADATA_FILE.fullmatch(file.path.rpartition("/")[2])
    )
    damaged: list[str] = []

    def documents() -> Iterator[MetadataJson]:
        for path in paths:
            try:
                yield _read(store, path)
            except CorruptionError:
                damaged.append(path)

    try:
        newest, reason = newest_metadata(documents())
    except NotFoundError:
        newest = reason = ""
    known = known_damaged.rpartition("/")[2]
    newer = [
        path
        for path in damaged
        if number_of(path) >= number_of(newest) and path.rpartition("/")[2] != known
    ]
    if newer:
        raise CorruptionError(
            f"{newer[-1]} cannot be read, and may be the newest metadata file",
            hint="restore it, or choose another one with --metadata",
        )
    if not newest:
        raise NotFoundError(
            f"{directory} has no metadata file",
            hint="name the table's directory with --location",
        )
    return newest, reason


def _read(store: FileStore, path: str) -> MetadataJson:
    try:
        metadata = MetadataJson(path, decode_document(store.read(path)))
        _ = (metadata.uuid, metadata.location, metadata.snapshots, metadata.refs)
        _ = metadata.last_updated_ms
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorruptionError(f"{path} is no metadata file: {type(error).__name__}") from error
    return metadata


def _require_unused(lake: Lake, ref: TableRef, metadata: MetadataJson) -> None:
    """Refuse to register a table under a second name: each would delete what the other needs."""
    reader = lake.reader(ref.catalog)
    named = reader.metadata_files()
    for identifier, other in reader.read_all(named).items():
        if identifier == ref.identifier:
            continue
        # Of a table that cannot be read, the catalog may still say where its metadata lies.
        is_same = (
            other.uuid == metadata.uuid
            if isinstance(other, MetadataJson) and other.uuid
            else _directory(named[identifier]) == _directory(metadata.metadata_location)
        )
        if is_same:
            raise ConflictError(
                f"the files are those of table {name_of(identifier)}, which is in the catalog",
                hint="rename that table instead",
            )


def _directory(path: str | None) -> str | None:
    return path and place_of(path).rpartition("/")[0]


def _rebuild_index(lake: Lake, ref: TableRef) -> str:
    from neve.index.maintain import build

    try:
        index = build(lake, ref.identifier)
    except NeveError as error:
        logger.warning("%s: its index was not rebuilt: %s", ref.name, error)
        return f"not rebuilt: {error}; the next merge does it"
    return f"rebuilt from {index.files_indexed} files"


def _default_location(lake: Lake, ref: TableRef) -> str:
    warehouse = profile_named(lake.settings, ref.catalog).warehouse
    if not warehouse or ("://" not in warehouse and not warehouse.startswith("/")):
        raise UsageError(
            f"where the files of {ref.name} lie is not known", hint="say it with --location"
        )
    place = local_path(warehouse) or warehouse
    return "/".join((str(place).rstrip("/"), *ref.identifier))
