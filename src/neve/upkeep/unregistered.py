"""Tables whose files lie in the warehouse and which the catalog does not know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from neve.lake.metadata_json import MetadataJson

if TYPE_CHECKING:
    from neve.lake import Lake

_DEEPEST = 6


def unregistered_tables(lake: Lake) -> list[str]:
    """Return the names of tables that lie in a local warehouse and are in no catalog entry.

    They were dropped without their files, or their entry was lost. Files of tables are not listed,
    only directories above them. In an object store that cannot be done, and none are named.
    """
    warehouse = lake.profile.local_warehouse
    if warehouse is None or not lake.profile.has_catalog:
        return []
    reader = lake.reader()
    identifiers = reader.list_tables()
    known = {warehouse.joinpath(*identifier) for identifier in identifiers}
    known |= {
        Path(metadata.location.removeprefix("file://"))
        for metadata in reader.read_all(identifiers).values()
        if isinstance(metadata, MetadataJson)
    }
    return sorted(
        ".".join(directory.relative_to(warehouse).parts)
        for directory in _table_directories(warehouse)
        if directory not in known
    )


def _table_directories(warehouse: Path) -> list[Path]:
    found = []
    for directory, below, _ in os.walk(warehouse):
        path = Path(directory)
        depth = len(path.relative_to(warehouse).parts)
        if "metadata" in below and any((path / "metadata").glob("*.metadata.json*")):
            found.append(path)
            below.clear()
        elif depth >= _DEEPEST:
            below.clear()
    return [path for path in found if len(path.relative_to(warehouse).parts) > 1]
