"""Move a tag of a table by a compare-and-set on the tag itself: any format version, no JVM.

Other writers' commits are no conflict; another move of the same tag is. A REST catalog checks the
tag. In a database's catalog the metadata file is edited as JSON: PyIceberg writes no format
version 3, and drops what its model does not know.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyiceberg.catalog import delete_files
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from neve.errors import NotFoundError
from neve.lake.catalog import missing_table
from neve.lake.commit_errors import committing
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.faults import explained
from neve.lake.metadata_files import next_metadata_location, with_base_in_log
from neve.lake.metadata_json import MAIN, MetadataJson, decode_document, unreadable_table
from neve.lake.metadata_reader import as_json
from neve.lake.profile import profile_named
from neve.lake.pyiceberg_catalogs import NeveSqlCatalog

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef

logger = logging.getLogger(__name__)

# Without it, a tag lives as long as the table property history.expire.max-ref-age-ms says.
_FOR_EVER_MS = 2**63 - 1


@dataclass(frozen=True)
class TagMove:
    """Where a tag goes, and a table property that tells this move from any other one.

    Args:
        expected_id: the snapshot it is at; None: there is no such tag.
        snapshot_id: the snapshot it moves to; None: it is removed, and the property with it.
        mark: the property's name and its value, which no other move has.
    """

    tag: str
    expected_id: int | None
    snapshot_id: int | None
    mark: tuple[str, str]

    def is_applied(self, metadata: MetadataJson) -> bool:
        if self.snapshot_id is None:
            return self.tag not in metadata.refs
        name, value = self.mark
        return metadata.properties.get(name) == value

    def is_possible(self, metadata: MetadataJson) -> bool:
        return metadata.refs.get(self.tag) == self.expected_id


def move_tag(
    lake: Lake, ref: TableRef, table_uuid: str, move: TagMove, retry: RetryPolicy | None = None
) -> bool:
    """Move or remove a tag; False: it is not where it was expected, and nothing was changed.

    Atomic; idempotent for the same mark.

    Raises:
        NotFoundError: the table was dropped, or dropped and created again.
        ConflictError: other writers were first in every attempt; nothing was changed.
        UnknownOutcomeError: the answer was lost, and the table does not show the move yet.
    """
    profile = profile_named(lake.settings, ref.catalog)
    is_database = profile.settings.type in ("sqlite", "postgres")
    table: _TaggedTable = (_DatabaseTable if is_database else _RestTable)(lake, ref)

    def attempt() -> bool:
        if move.is_applied(table.metadata):
            return True
        if not move.is_possible(table.metadata):
            return False
        if move.snapshot_id is not None and move.snapshot_id not in table.metadata.snapshots:
            raise NotFoundError(
                f"{ref.name}: snapshot {move.snapshot_id} has expired, so that no tag can name it",
                hint="begin at a version that is still there: neve describe " + ref.name,
            )
        table.send(move)
        return True

    def refresh() -> None:
        with explained(profile):
            try:
                table.refresh()
            except NoSuchTableError as error:
                catalog = lake.catalog(ref.catalog)
                raise missing_table(profile, catalog, ref.identifier) from error
        if table.metadata.uuid != table_uuid:
            raise NotFoundError(
                f"table {ref.name} was dropped and created again",
                hint="follow the new table from its beginning",
            )

    return commit_until_known(
        refresh,
        attempt,
        lambda: True if move.is_applied(table.metadata) else None,
        policy=retry or RetryPolicy(),
        counters=CommitCounters(),
    )


class _TaggedTable(Protocol):
    metadata: MetadataJson

    def refresh(self) -> None:
        """Read the catalog anew."""

    def send(self, move: TagMove) -> None:
        """Commit in one attempt; raises what `commit_errors.py` says."""


class _RestTable:
    """A table of a REST catalog, which checks the tag itself."""

    metadata: MetadataJson

    def __init__(self, lake: Lake, ref: TableRef) -> None:
        self._lake = lake
        self._ref = ref
        self._table: Table

    def refresh(self) -> None:
        self._table = self._lake.load(self._ref)
        self.metadata = as_json(self._table)

    def send(self, move: TagMove) -> None:
        profile = profile_named(self._lake.settings, self._ref.catalog)
        requirements = (
            AssertTableUUID(uuid=self._table.metadata.table_uuid),
            AssertRefSnapshotId(ref=move.tag, snapshot_id=move.expected_id),
        )
        with committing(profile, self._ref.name, f"moving tag {move.tag}"):
            self._table.catalog.commit_table(self._table, requirements, _updates(move))


def _updates(move: TagMove) -> tuple[TableUpdate, ...]:
    name, value = move.mark
    if move.snapshot_id is None:
        return (
            RemoveSnapshotRefUpdate(ref_name=move.tag),
            RemovePropertiesUpdate(removals=[name]),
        )
    return (
        SetSnapshotRefUpdate(
            ref_name=move.tag,
            type=SnapshotRefType.TAG,
            snapshot_id=move.snapshot_id,
            max_ref_age_ms=_FOR_EVER_MS,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        ),
        SetPropertiesUpdate(updates={name: value}),
    )


class _DatabaseTable:
    """A table whose row in a database names its metadata file; the swap of that name commits."""

    metadata: MetadataJson

    def __init__(self, lake: Lake, ref: TableRef) -> None:
        catalog = lake.catalog(ref.catalog)
        if not isinstance(catalog, NeveSqlCatalog):
            raise TypeError(catalog)
        self._profile = profile_named(lake.settings, ref.catalog)
        self._catalog = catalog
        self._ref = ref
        self._io: FileIO

    def refresh(self) -> None:
        location = self._catalog.metadata_location(self._ref.identifier)
        self._io = load_file_io(self._catalog.properties, location)
        with self._io.new_input(location).open() as file:
            content = file.read()
        try:
            self.metadata = MetadataJson(location, decode_document(content))
        except ValueError as error:
            raise unreadable_table(self._ref.identifier, "invalid metadata") from error

    def send(self, move: TagMove) -> None:
        base = self.metadata
        document, removed = _with_tag(base, move)
        location = next_metadata_location(base)
        with committing(self._profile, self._ref.name, f"moving tag {move.tag}"):
            with self._io.new_output(location).create() as file:
                file.write(json.dumps(document).encode())
            try:
                self._catalog.swap_metadata(self._ref.identifier, base.metadata_location, location)
            except CommitFailedException:
                # Certain: the row names another metadata file, and nobody ever saw this one.
                delete_files(self._io, {location}, "metadata")
                raise
        delete_files(self._io, removed, "metadata")


def _with_tag(base: MetadataJson, move: TagMove) -> tuple[dict[str, Any], set[str]]:
    """Return the metadata after a move, and the metadata files that nobody needs any more."""
    refs = dict(base.document.get("refs") or {})
    if base.current_snapshot_id is not None:
        # Old writers name no refs. With some but no main, expiry would take what is current.
        refs.setdefault(MAIN, {"snapshot-id": base.current_snapshot_id, "type": "branch"})
    properties = dict(base.properties)
    refs.pop(move.tag, None)
    properties.pop(move.mark[0], None)
    if move.snapshot_id is not None:
        refs[move.tag] = {
            "snapshot-id": move.snapshot_id,
            "type": "tag",
            "max-ref-age-ms": _FOR_EVER_MS,
        }
        properties[move.mark[0]] = move.mark[1]
    return with_base_in_log(base, {**base.document, "refs": refs, "properties": properties})
