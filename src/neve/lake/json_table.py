"""A table as its metadata document: read and committed to as JSON, any format version, no JVM.

PyIceberg parses all snapshots into its model and back for each commit, writes no format version 3,
and drops what its model does not know.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from pyiceberg.catalog import delete_files
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io

from neve.errors import NotFoundError, UnknownOutcomeError
from neve.lake.catalog import missing_table
from neve.lake.commit_errors import committing
from neve.lake.faults import explained
from neve.lake.identifier import Identifier, name_of
from neve.lake.metadata_encoder import MetadataEncoder
from neve.lake.metadata_files import next_metadata_location, with_base_in_log
from neve.lake.metadata_json import MetadataJson, decode_document, unreadable_table
from neve.lake.metadata_updates import apply_updates
from neve.lake.pyiceberg_catalogs import NeveRestCatalog, NeveSqlCatalog
from neve.lake.rest_updates import assert_uuid

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from typing_extensions import Self

    from neve.lake.profile import CatalogProfile

logger = logging.getLogger(__name__)

# Of a table whose row names a new metadata file before the old one was read.
_MOST_READS = 20
# A REST server may hand out a login to the store with the metadata, which expires after a quarter
# of an hour at the earliest. One that answers 304 hands out none: so often it is not offered that.
LOGIN_SECONDS = 300.0


class JsonTable(Protocol):
    """One table, by its id: another one of the same name is not it.

    Args:
        metadata: as it was last read, or as our last commit has made it.
        is_refusal_certain: whether a refused commit was never applied by an earlier copy of it.
        compares_all_refs: whether a commit is refused if any ref has changed, and not only its own.
    """

    name: str
    identifier: Identifier
    catalog: Catalog
    metadata: MetadataJson
    is_refusal_certain: bool
    compares_all_refs: bool

    @property
    def io(self) -> FileIO:
        """Reads and writes the table's files."""

    def refresh(self) -> None:
        """Ask the catalog anew; metadata that has not changed is not read again each time.

        Raises NotFoundError: the table was dropped, or created again.
        """

    def renewed(self) -> JsonTable:
        """Return the table of this name as it is now; this one stays as it was read.

        Metadata that has not changed is the same object. Raises NotFoundError: there is none.
        """

    def commit(
        self,
        ref: str,
        updates: Sequence[Mapping[str, Any]],
        what: str,
        *,
        unmoved: Collection[str] = (),
    ) -> None:
        """Commit updates if `ref` is still where `metadata` has it: atomic, one attempt.

        Args:
            unmoved: further refs that must be where `metadata` has them.

        Raises:
            ConflictError: another writer was first; nothing was applied.
            UnknownOutcomeError: the request may have been applied.
            NeveError: nothing was applied, for another reason.
        """


def json_table(
    profile: CatalogProfile, catalog: Catalog, identifier: Identifier, uuid: str | None = None
) -> JsonTable:
    """Return a table that is not read yet: its first `refresh` does it.

    Args:
        uuid: the table's id; None: it is the one that the first `refresh` finds.
    """
    if isinstance(catalog, NeveRestCatalog):
        return _RestTable(profile, catalog, identifier, uuid)
    if isinstance(catalog, NeveSqlCatalog):
        return _DatabaseTable(profile, catalog, identifier, uuid)
    raise TypeError(catalog)


def read_document(
    profile: CatalogProfile, catalog: Catalog, identifier: Identifier
) -> MetadataJson:
    """Read a table's metadata, also of one that PyIceberg cannot read. Raises NotFoundError."""
    if len(identifier) < 2:
        raise missing_table(profile, catalog, identifier)
    with explained(profile):
        try:
            if isinstance(catalog, NeveRestCatalog):
                return catalog.read_document(identifier)[0]
            if isinstance(catalog, NeveSqlCatalog):
                return read_database_table(catalog, identifier)[0]
        except NoSuchTableError as error:
            raise missing_table(profile, catalog, identifier) from error
    raise TypeError(catalog)


def read_database_table(
    catalog: NeveSqlCatalog,
    identifier: Identifier,
    io: FileIO | None = None,
    known: MetadataJson | None = None,
) -> tuple[MetadataJson, FileIO]:
    """Read the metadata file that a table's row names. Raises NoSuchTableError, OSError.

    Args:
        io: of an earlier read, whose connections are used again.
        known: what was read before. Metadata files never change.
    """
    location = catalog.metadata_location(identifier)
    if known is not None and io is not None and known.metadata_location == location:
        return known, io
    io = io or load_file_io(catalog.properties, location)
    for _ in range(_MOST_READS):
        try:
            with io.new_input(location).open() as file:
                content = file.read()
            break
        except FileNotFoundError:
            # Writers that are fast delete it before it is read: the row names a newer one then.
            named, location = location, catalog.metadata_location(identifier)
            if location == named:
                raise
    else:
        raise FileNotFoundError(location)
    try:
        return MetadataJson(location, decode_document(content)), io
    except ValueError as error:
        raise unreadable_table(identifier, "invalid metadata") from error


def swap_document(
    catalog: NeveSqlCatalog,
    io: FileIO,
    identifier: Identifier,
    base: MetadataJson,
    document: Mapping[str, Any],
    encoder: MetadataEncoder | None = None,
) -> MetadataJson:
    """Write a metadata file and have the table's row name it, if it still names `base`.

    Args:
        encoder: that has encoded the table's documents so far.

    Raises:
        CommitFailedException: the row names another file; nothing was applied.
    """
    location = next_metadata_location(base)
    # Its name is new, so that a store need not be asked whether it is there: a HEAD and a LIST.
    with io.new_output(location).create(overwrite=True) as file:
        for piece in (encoder or MetadataEncoder()).encode(document):
            file.write(piece)
    try:
        catalog.swap_metadata(identifier, base.metadata_location, location)
    except CommitFailedException:
        # Certain: the row names another metadata file, and nobody ever saw this one.
        delete_files(io, {location}, "metadata")
        raise
    return MetadataJson(location, document)


def delete_after_commit(io: FileIO, table: str, paths: set[str], kind: str) -> None:
    """Delete files that no retained snapshot needs; those that cannot be are logged and left."""
    try:
        delete_files(io, paths, kind)
    except Exception as error:  # noqa: BLE001 - the commit is applied, whatever happens here
        logger.warning("%s: some %s files are left: %s", table, kind, error)


class _Table:
    """What tables of all catalogs share."""

    def __init__(
        self, profile: CatalogProfile, catalog: Catalog, identifier: Identifier, uuid: str | None
    ) -> None:
        self.name = name_of(identifier)
        self._profile = profile
        self.identifier = identifier
        self._uuid = uuid
        self.catalog = catalog
        self._io: FileIO | None = None
        self._metadata: MetadataJson | None = None

    @property
    def metadata(self) -> MetadataJson:
        if self._metadata is None:
            raise RuntimeError("the table was not read yet")
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: MetadataJson) -> None:
        self._metadata = metadata

    @property
    def io(self) -> FileIO:
        if self._io is None:
            raise RuntimeError("the table was not read yet")
        return self._io

    def refresh(self) -> None:
        with explained(self._profile):
            try:
                metadata, io = self._read()
            except NoSuchTableError as error:
                raise missing_table(self._profile, self.catalog, self.identifier) from error
        if self._uuid is None:
            self._uuid = metadata.uuid
        if metadata.uuid != self._uuid:
            raise NotFoundError(
                f"table {self.name} was dropped and created again",
                hint="begin with the new table",
            )
        self.metadata = metadata
        # One with the same login keeps its connections.
        if self._io is None or io.properties != self._io.properties:
            self._io = io

    def renewed(self) -> Self:
        table = copy(self)
        table._uuid = None  # noqa: SLF001 - of the same class
        table.refresh()
        return table

    def _read(self) -> tuple[MetadataJson, FileIO]:
        raise NotImplementedError


class _RestTable(_Table):
    """A table of a REST catalog, which checks requirements and writes metadata files itself."""

    is_refusal_certain = False
    compares_all_refs = False

    def __init__(
        self,
        profile: CatalogProfile,
        catalog: NeveRestCatalog,
        identifier: Identifier,
        uuid: str | None,
    ) -> None:
        super().__init__(profile, catalog, identifier, uuid)
        self._catalog = catalog
        # When the login to the store was handed out.
        self._login_at = 0.0
        # The last metadata file that the server has sent, and its ETag: a commit's answer has none.
        self._sent: tuple[str, str | None] = ("", None)

    def _read(self) -> tuple[MetadataJson, FileIO]:
        known, io, began = self._metadata, self._io, time.monotonic()
        if known is None or io is None or began - self._login_at > LOGIN_SECONDS:
            answer = self._catalog.read_document(self.identifier)
        else:
            location, sent = self._sent
            etag = sent if location == known.metadata_location else known.etag
            changed = self._catalog.read_changed_document(self.identifier, etag)
            if changed is None:
                return known, io
            answer = changed
        self._login_at = began
        self._sent = answer[0].metadata_location, answer[0].etag
        if known is not None and known.metadata_location == answer[0].metadata_location:
            # A server that gives no ETag, or a new login. Metadata files never change.
            return known, answer[1]
        return answer

    def commit(
        self,
        ref: str,
        updates: Sequence[Mapping[str, Any]],
        what: str,
        *,
        unmoved: Collection[str] = (),
    ) -> None:
        at = self.metadata.refs
        requirements: list[dict[str, Any]] = [
            *assert_uuid(self.metadata),
            *(
                {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": at.get(name)}
                for name in dict.fromkeys((ref, *unmoved))
            ),
        ]
        with committing(self._profile, self.name, what):
            metadata = self._catalog.update_table(self.identifier, requirements, updates)
        # Without the answer's metadata, the next commit is refused, and the table is read again.
        self.metadata = metadata or self.metadata


class _DatabaseTable(_Table):
    """A table whose row in a database names its metadata file; the swap of that name commits."""

    is_refusal_certain = True
    compares_all_refs = True

    def __init__(
        self,
        profile: CatalogProfile,
        catalog: NeveSqlCatalog,
        identifier: Identifier,
        uuid: str | None,
    ) -> None:
        super().__init__(profile, catalog, identifier, uuid)
        self._catalog = catalog
        # Metadata files that a commit whose answer was lost made unneeded, if it was applied.
        self._unneeded: set[str] = set()
        self._encoder = MetadataEncoder()

    def _read(self) -> tuple[MetadataJson, FileIO]:
        return read_database_table(self._catalog, self.identifier, self._io, self._metadata)

    def commit(
        self,
        ref: str,  # noqa: ARG002 - the swap compares all metadata, and with it each ref
        updates: Sequence[Mapping[str, Any]],
        what: str,
        *,
        unmoved: Collection[str] = (),  # noqa: ARG002
    ) -> None:
        now_ms, unneeded = int(time.time() * 1000), set(self._unneeded)
        try:
            with committing(self._profile, self.name, what):
                changed = apply_updates(self.metadata, updates, now_ms)
                document, dropped = with_base_in_log(self.metadata, changed)
                unneeded |= dropped
                self.metadata = swap_document(
                    self._catalog, self.io, self.identifier, self.metadata, document, self._encoder
                )
        except UnknownOutcomeError:
            self._unneeded = unneeded
            raise
        # Known to be applied: nothing that fails from here on may say otherwise.
        self._unneeded = set()
        logged = {entry["metadata-file"] for entry in document["metadata-log"]}
        delete_after_commit(self.io, self.name, unneeded - logged, "metadata")
