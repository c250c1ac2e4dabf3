"""Tables whose files lie in the warehouse and which the catalog does not know."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from neve.lake.file_store import FileStore
from neve.lake.identifier import name_of
from neve.lake.metadata_json import MetadataJson
from neve.lake.resolved_places import ResolvedPlaces
from neve.upkeep.metadata_of_others import METADATA_FILE
from neve.upkeep.table_places import used_directories

if TYPE_CHECKING:
    from neve.lake import Lake

_DEEPEST = 6
_METADATA = "metadata"


def unregistered_tables(lake: Lake) -> list[str]:
    """Return the names of tables that lie in the warehouse and are in no catalog entry.

    They were dropped without their files, or their entry was lost. Directories above tables are
    listed, on disk or in an object store; neither tables that the catalog knows, nor data files.

    Raises:
        NeveError: the catalog or the store cannot be asked.
    """
    warehouse = (lake.profile.warehouse or "").rstrip("/")
    is_place = warehouse.startswith("/") or "://" in warehouse
    if not is_place or not lake.profile.has_catalog:
        return []
    reader = lake.reader()
    identifiers, resolved = reader.list_tables(), ResolvedPlaces()
    known = {resolved.directory("/".join((warehouse, *identifier))) for identifier in identifiers}
    files = reader.metadata_files()
    for identifier, metadata in reader.read_all(identifiers).items():
        # Of one that cannot be read, the catalog may still say where its metadata lies.
        path = files.get(identifier)
        if isinstance(metadata, MetadataJson):
            used = used_directories(metadata, resolved)
            known |= {used.location, *used.named}
        elif path:
            known.add(resolved.directory(path.rpartition("/")[0]))
    with FileStore(lake.profile) as store:
        found = _table_directories(store, warehouse, known, resolved)
        return sorted(map(name_of, found))


def _table_directories(
    store: FileStore, warehouse: str, known: Collection[str], resolved: ResolvedPlaces
) -> Iterator[tuple[str, ...]]:
    """Yield the directories of tables that are not known, by their names below the warehouse."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        names = waiting.pop()
        directory = "/".join((warehouse, *names))
        below = [
            name
            for name in store.list_directories(directory)
            if resolved.directory(f"{directory}/{name}") not in known
        ]
        if _METADATA in below and _has_metadata_file(store, f"{directory}/{_METADATA}"):
            if len(names) > 1:
                yield names
        elif len(names) < _DEEPEST:
            waiting += [(*names, name) for name in below]


def _has_metadata_file(store: FileStore, directory: str) -> bool:
    return any(
        METADATA_FILE.fullmatch(file.path.rpartition("/")[2])
        for file in store.list_files(directory)
    )
