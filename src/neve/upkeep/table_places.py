"""Where the tables of all configured catalogs lie, for whoever asks whether files are shared.

It reads a table's metadata when it is first needed, and again only after the table has changed, so
one value serves many runs. Which files of a location another table references, its manifests say
(`references.py`): they are read once for all searches of a run, where a search has found something.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.errors import NeveError, NotFoundError, StorageError
from neve.lake.metadata_json import MOVED, MetadataJson
from neve.lake.paths import store_path
from neve.lake.profile import CatalogProfile, profile_named, profiles
from neve.lake.reachable_files import metadata_files
from neve.lake.resolved_places import ResolvedPlaces
from neve.lake.table_ref import TableRef
from neve.observe.failures import failure_of
from neve.upkeep.references import References

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.lake.metadata_reader import MetadataReader, Read

    MetadataFiles = Mapping[Identifier, str | None]

# Metadata documents that are in memory together.
_READ_TOGETHER = 64


@dataclass(frozen=True)
class UsedDirectories:
    """The directories that one table uses; each ends with a slash.

    Args:
        uuid: of the table. One that was registered a second time has it, too.
        moved: what a move has written down. The same table registered twice has the same; one that
            was moved shares no file with its source.
        named: where the files lie that its metadata alone names. They are not in its location if
            that was changed: data files then are not, too.
    """

    uuid: str
    moved: str | None
    location: str
    named: frozenset[str]

    def overlap(self, directory: str) -> bool:
        """Tell whether a directory lies in the table, or the table in it, or what it names.

        Tables may write into one directory, such as `write.data.path`, and share no file.
        """
        is_inside = directory.startswith(self.location)
        return is_inside or any(each.startswith(directory) for each in (self.location, *self.named))


@dataclass(frozen=True)
class _KnownTable:
    """What was read of a table when it was at a metadata file; None: the catalog did not say."""

    metadata_file: str | None
    used: UsedDirectories


@dataclass
class TablePlaces:
    """Knows where tables lie; lists and reads what is asked for."""

    lake: Lake
    _tables: dict[str, MetadataFiles] = field(default_factory=dict, repr=False)
    _known: dict[TableRef, _KnownTable] = field(default_factory=dict, repr=False)
    _resolved: ResolvedPlaces = field(default_factory=ResolvedPlaces, repr=False)
    _references: References | None = field(default=None, repr=False)

    def begin_run(self) -> None:
        """List tables anew when they are next asked about, and read again those that changed."""
        self._tables.clear()
        self._resolved = ResolvedPlaces()
        self._references = None
        self._known = {
            ref: known for ref, known in self._known.items() if known.metadata_file is not None
        }

    def why_shared(
        self,
        ref: TableRef,
        metadata: MetadataJson,
        files: Iterable[str] = (),
        *,
        anew: bool = False,
    ) -> str:
        """Say which other table has files in a table's location, or may have; empty: none has.

        Args:
            files: of the table, wherever they lie: nor may another table need these.
            anew: list the tables again, so that one which was created or registered since counts.

        Raises:
            NeveError: the table's own catalog does not answer.
        """
        profile = profile_named(self.lake.settings, ref.catalog)
        place = _Place.of(metadata, files, self._resolved)
        for name, other in profiles(self.lake.settings).items():
            if not other.has_catalog:
                continue
            own = ref.identifier if is_same_catalog(other, profile) else None
            try:
                reason = self._why_shared_in(name, own, place, anew=anew)
            except NeveError as error:
                if name == ref.catalog:
                    raise
                return f"catalog {name} cannot be asked whether it has tables there: {error}"
            if reason:
                return reason
        return ""

    def _why_shared_in(
        self, catalog: str, own: Identifier | None, place: _Place, *, anew: bool
    ) -> str:
        reader = self.lake.reader(catalog)
        if anew or catalog not in self._tables:
            self._list(catalog, reader)
        tables = self._tables[catalog]
        others = {name: TableRef(catalog, name) for name in tables if name != own}
        unknown = [name for name, ref in others.items() if ref not in self._known]
        for first in range(0, len(unknown), _READ_TOGETHER):
            some = unknown[first : first + _READ_TOGETHER]
            for name, metadata in reader.read_all(some).items():
                ref = others[name]
                try:
                    used = used_directories(_readable(metadata), self._resolved)
                except Exception as error:  # noqa: BLE001 - whatever is odd about it
                    if place.may_share_store(tables[name]):
                        reason = failure_of(error, "read", ref.name)
                        return f"table {ref.name}, which cannot be read, may lie there: {reason}"
                    continue
                self._known[ref] = _KnownTable(tables[name], used)
        for ref in others.values():
            if ref in self._known and place.is_used_by(self._known[ref].used):
                return f"its location is shared with table {ref.name}"
        return ""

    def references(
        self,
        ref: TableRef,
        metadata: MetadataJson,
        stop: threading.Event | None = None,
        *,
        anew: bool = False,
    ) -> References:
        """Return what other tables reference; to be called after `why_shared`, which lists them.

        Args:
            anew: read what is new of tables that have changed since they were read.
        """
        location = self._resolved.directory(metadata.location)
        if self._references is None or ref not in self._references.locations.get(location, ()):
            locations = {location: {ref}}
            for other, known in self._known.items():
                locations.setdefault(known.used.location, set()).add(other)
            self._references = References(self.lake, locations)
        tables = {
            TableRef(catalog, name): metadata_file
            for catalog, of_catalog in self._tables.items()
            for name, metadata_file in of_catalog.items()
        }
        self._references.read(tables, ref, stop, anew=anew)
        return self._references

    def _list(self, catalog: str, reader: MetadataReader) -> None:
        """List the tables of a catalog, and forget what is known of those that may lie elsewhere.

        Within a run a table counts as changed when its metadata went to another directory, so that
        one which is written all the time is read once for a run, not once for each question.
        """
        _require_mounted(profile_named(self.lake.settings, catalog))
        is_first = catalog not in self._tables
        tables = self._tables[catalog] = reader.metadata_files()
        for ref, known in list(self._known.items()):
            if ref.catalog != catalog:
                continue
            if ref.identifier in tables:
                before, now = known.metadata_file, tables[ref.identifier]
                if before == now or (not is_first and _parent(before) == _parent(now)):
                    continue
            del self._known[ref]


def _require_mounted(profile: CatalogProfile) -> None:
    """Refuse a catalog whose database file is not there: that it has no tables is not proven."""
    if profile.sqlite_file and not profile.sqlite_file.is_file():
        raise StorageError(
            f"{profile.sqlite_file} does not exist",
            hint=f"mount it, or take {profile.section} out of the configuration",
        )


@dataclass(frozen=True)
class _Place:
    """What must not be another table's: a location, and directories of files that lie elsewhere.

    Args:
        table: the uuid of the table, and what a move has written down, if it is about files that it
            has named: another one that has both may need them, wherever it lies by now.
    """

    table: tuple[str, str | None] | None
    location: str
    stores: frozenset[str]
    elsewhere: frozenset[str]

    @classmethod
    def of(cls, metadata: MetadataJson, files: Iterable[str], resolved: ResolvedPlaces) -> _Place:
        location = resolved.directory(metadata.location)
        directories = {_directory_of(path, resolved) for path in files}
        elsewhere = frozenset(each for each in directories if not each.startswith(location))
        table = (metadata.uuid, metadata.properties.get(MOVED)) if directories else None
        stores = frozenset(store_path(each).store for each in (location, *elsewhere))
        return cls(table, location, stores, elsewhere)

    def may_share_store(self, metadata_file: str | None) -> bool:
        """Tell whether a table of which only its metadata file is known may have files there."""
        return metadata_file is None or store_path(metadata_file).store in self.stores

    def is_used_by(self, used: UsedDirectories) -> bool:
        is_same = used.uuid != "" and (used.uuid, used.moved) == self.table
        return is_same or any(map(used.overlap, (self.location, *self.elsewhere)))


def _readable(read: Read) -> MetadataJson:
    if isinstance(read, MetadataJson):
        return read
    raise read or NotFoundError("it was dropped meanwhile")


def _parent(path: str | None) -> str | None:
    return path and path.rpartition("/")[0]


def is_same_catalog(one: CatalogProfile, other: CatalogProfile) -> bool:
    """Tell whether two names of the configuration certainly mean the same tables.

    A database keeps each catalog's tables under the catalog's name. A REST server may have several
    catalogs, told apart by the warehouse, a property, or the login.
    """
    if one.name == other.name:
        return True
    is_rest = one.settings.type == other.settings.type == "rest"
    return is_rest and _asked_for(one) == _asked_for(other)


def _asked_for(profile: CatalogProfile) -> tuple[object, ...]:
    """Return all by which a REST server may choose the catalog."""
    settings = profile.settings
    login = settings.token, settings.credential
    return settings.uri, settings.warehouse, settings.properties, *login


def used_directories(metadata: MetadataJson, resolved: ResolvedPlaces) -> UsedDirectories:
    """Return the directories that a table uses, as far as its metadata alone says so."""
    return UsedDirectories(
        metadata.uuid,
        metadata.properties.get(MOVED),
        resolved.directory(metadata.location),
        frozenset(_directory_of(path, resolved) for path in _named_files(metadata)),
    )


def _named_files(metadata: MetadataJson) -> Iterator[str]:
    yield from metadata_files(metadata)
    for snapshot in metadata.snapshots.values():
        if snapshot.get("manifest-list"):
            yield snapshot["manifest-list"]


def _directory_of(path: str, resolved: ResolvedPlaces) -> str:
    return resolved.file(path).rpartition("/")[0] + "/"
