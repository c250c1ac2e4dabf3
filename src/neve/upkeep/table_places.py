"""Where the tables of all configured catalogs lie, for whoever asks whether a location is shared.

One value serves a whole maintenance run: it reads the metadata of each table once, however many
locations are asked about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.errors import NeveError
from neve.lake.metadata_json import MetadataJson
from neve.lake.profile import CatalogProfile, profile_named, profiles
from neve.lake.reachable_files import metadata_files
from neve.lake.table_ref import TableRef
from neve.lake.unreachable import place_of

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier

# Metadata documents that are in memory together.
_READ_TOGETHER = 64


@dataclass(frozen=True)
class UsedDirectories:
    """The directories that one table uses; each ends with a slash.

    Args:
        written: its location, and where else its writers put files.
        named: where the files lie that its metadata alone names. They are not in its location if
            that was changed: data files then are not, too.
    """

    written: frozenset[str]
    named: frozenset[str]

    def overlap(self, directory: str) -> bool:
        """Tell whether files of the table may lie in a directory, or it lies in one of theirs."""
        return any(directory.startswith(each) for each in self.written) or any(
            each.startswith(directory) for each in self.written | self.named
        )


@dataclass
class TablePlaces:
    """Knows where tables lie. A table's metadata is read when it is first needed, and only then."""

    lake: Lake
    _names: dict[str, list[Identifier]] = field(default_factory=dict, repr=False)
    _used: dict[TableRef, UsedDirectories] = field(default_factory=dict, repr=False)

    def why_shared(self, ref: TableRef, location: str, *, anew: bool = False) -> str:
        """Say which other table has files in a table's location, or may have; empty: none has.

        Args:
            anew: list the tables again, so that one which was created or registered since counts.

        Raises:
            NeveError: the table's own catalog does not answer.
        """
        profile = profile_named(self.lake.settings, ref.catalog)
        directory = _directory(location)
        for name, other in profiles(self.lake.settings).items():
            if not other.has_catalog or other.settings.type == "s3tables":
                # Nobody else can put a table into a bucket of S3 Tables.
                continue
            own = ref.identifier if is_same_catalog(other, profile) else None
            try:
                reason = self._why_shared_in(name, own, directory, anew=anew)
            except NeveError as error:
                if name == ref.catalog:
                    raise
                return f"catalog {name} cannot be asked whether it has tables there: {error}"
            if reason:
                return reason
        return ""

    def _why_shared_in(
        self, catalog: str, own: Identifier | None, directory: str, *, anew: bool
    ) -> str:
        reader = self.lake.reader(catalog)
        if anew or catalog not in self._names:
            self._names[catalog] = reader.list_tables()
        others = {name: TableRef(catalog, name) for name in self._names[catalog] if name != own}
        unknown = [name for name, ref in others.items() if ref not in self._used]
        for first in range(0, len(unknown), _READ_TOGETHER):
            for name, metadata in reader.read_all(unknown[first : first + _READ_TOGETHER]).items():
                if not isinstance(metadata, MetadataJson):
                    table = others[name].name
                    return f"the location of table {table}, which cannot be read, is not known"
                self._used[others[name]] = used_directories(metadata)
        for ref in others.values():
            if self._used[ref].overlap(directory):
                return f"its location is shared with table {ref.name}"
        return ""


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


def used_directories(metadata: MetadataJson) -> UsedDirectories:
    """Return the directories that a table uses, as far as its metadata alone says so."""
    keys = ("write.data.path", "write.metadata.path", "write.object-storage.path")
    elsewhere = (metadata.properties[key] for key in keys if key in metadata.properties)
    return UsedDirectories(
        frozenset(map(_directory, (metadata.location, *elsewhere))),
        frozenset(place_of(path).rpartition("/")[0] + "/" for path in _named_files(metadata)),
    )


def _named_files(metadata: MetadataJson) -> Iterator[str]:
    yield from metadata_files(metadata)
    for snapshot in metadata.snapshots.values():
        if snapshot.get("manifest-list"):
            yield snapshot["manifest-list"]


def _directory(path: str) -> str:
    return place_of(path.rstrip("/")) + "/"
