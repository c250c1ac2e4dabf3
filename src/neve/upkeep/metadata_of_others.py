"""Metadata files of another table, or of a view, in a table's location.

A table that the catalog has lost leaves its files, and one that is made anew under its name lies in
the same place: no snapshot of it names those files, and the catalog knows of nobody who does. So it
is with tables of a catalog that is not configured here, and with the newest versions of a table
whose catalog was restored from a copy. Only the metadata files tell.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING

from neve.errors import NeveError, NotFoundError
from neve.lake.manifests import in_parallel
from neve.lake.metadata_json import decode_document
from neve.lake.paths import place_of
from neve.lake.reachable_files import metadata_files
from neve.lake.resolved_places import ResolvedPlaces
from neve.upkeep.newest_metadata import number_of

if TYPE_CHECKING:
    from neve.lake.file_store import FileStore
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.stored_files import ListedFile

METADATA_FILE = re.compile(r".*\.metadata\.json(\.gz)?")
# The format, the id and the location come first, whoever writes the file.
_HEAD_BYTES = 16 * 1024
_UUID = re.compile(rb'"(?:table|view)-uuid"\s*:\s*"([^"]*)"')
_LOCATION = re.compile(rb'"location"\s*:\s*("(?:[^"\\]|\\.)*")')
_GZIP = b"\x1f\x8b"
# In place of an id: of a document that does not begin with it, such as one with sorted keys.
_FURTHER_ON = ""
_LOOKED_AT_TOGETHER = 64


class MetadataOfOthers:
    """Looks at metadata files that a table does not name itself, some at the same time.

    Args:
        store: reads the files.
        metadata: of the table whose location is searched.
    """

    def __init__(self, store: FileStore, metadata: MetadataJson) -> None:
        self._store = store
        self._uuid = metadata.uuid.lower()
        self._named = {place_of(path) for path in metadata_files(metadata)}
        self._places = ResolvedPlaces()
        self._place = self._places.directory(metadata.location)
        self._waiting: list[ListedFile] = []
        self.found: str | None = None
        """A metadata file of another table or view; None: none was found so far."""
        self._newest = metadata.metadata_location
        self._ahead: str | None = None

    def see(self, file: ListedFile) -> None:
        """Take note of a file of the location.

        Raises:
            StorageError: a metadata file cannot be read, so that nobody knows whose it is.
        """
        name = file.path.rpartition("/")[2]
        # Stores refuse to read a part of an empty file.
        if file.size and METADATA_FILE.fullmatch(name) and place_of(file.path) not in self._named:
            self._waiting.append(file)
            if len(self._waiting) == _LOOKED_AT_TOGETHER:
                self.look()

    def look(self) -> None:
        """Look at the files that were seen and not looked at. Raises as `see`."""
        files, self._waiting = self._waiting, []
        for file, is_of_another in zip(files, in_parallel(self._is_of_another, files), strict=True):
            if is_of_another:
                self.found = self.found or file.path
            elif is_of_another is False and _is_ahead(file.path, self._newest):
                self._ahead = self._newest = file.path

    def newer_than(self, metadata: MetadataJson) -> str | None:
        """Return the table's own metadata file of a version that the catalog does not know of.

        A number that is higher by one may be of a commit that was refused.

        Args:
            metadata: as the catalog has it after the search, which commits may have gone on beside.
        """
        is_newer = self._ahead and _is_ahead(
            self._ahead, metadata.metadata_location, by_more_than=1
        )
        return self._ahead if is_newer else None

    def _is_of_another(self, file: ListedFile) -> bool | None:
        """Tell whether a file is of another table or view; None: of nobody.

        So is what was copied here from another place of the table: it names no file of this one.
        """
        try:
            head = _text_of(self._store.read_range(file.path, 0, min(file.size, _HEAD_BYTES)))
            uuid = _uuid_in(head)
            if uuid is None or (uuid == self._uuid and self._is_elsewhere(_location_in(head))):
                return None
            if uuid == self._uuid:
                return False
            return self._is_another(self._store.read(file.path), is_damaged_one=uuid != _FURTHER_ON)
        except NotFoundError:
            # Of a refused commit, which has deleted it meanwhile.
            return None

    def _is_another(self, content: bytes, *, is_damaged_one: bool) -> bool | None:
        """Do the same with the whole document. A table without versions has nothing to lose.

        Such documents are common: of two that create a table at once, one leaves its own.
        """
        try:
            document = decode_document(content)
            uuid, snapshots = document.get("table-uuid"), document.get("snapshots")
        except ValueError:
            return is_damaged_one or None
        if str(uuid).lower() == self._uuid:
            return None if self._is_elsewhere(document.get("location")) else False
        return True if "view-uuid" in document or snapshots else None

    def _is_elsewhere(self, location: str | None) -> bool:
        try:
            return bool(location) and self._places.directory(str(location)) != self._place
        except NeveError:
            # A relative path: nobody knows where that is.
            return False


def _is_ahead(path: str, current: str, by_more_than: int = 0) -> bool:
    """Tell whether a metadata file's number is higher than that of the current one.

    Hadoop catalogs have numbers of their own, as in `v12.metadata.json`. Where such a table is
    registered in another catalog, the first version there has the number 0.
    """
    if _is_of_hadoop(path) == _is_of_hadoop(current):
        known = number_of(current)
        return known >= 0 and number_of(path) > known + by_more_than
    return _is_of_hadoop(current) and number_of(path) >= by_more_than


def _is_of_hadoop(path: str) -> bool:
    return path.rpartition("/")[2].startswith("v")


def _text_of(head: bytes) -> bytes:
    """Return the first bytes of a document; empty: they are of none."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head)
    except zlib.error:
        return b""


def _uuid_in(head: bytes) -> str | None:
    """Return the id in the first bytes of a document; None: they are of no document."""
    match = _UUID.search(head)
    if match is not None:
        return match[1].decode(errors="replace").lower()
    return _FURTHER_ON if head.startswith(b"{") else None


def _location_in(head: bytes) -> str | None:
    match = _LOCATION.search(head)
    try:
        return str(json.loads(match[1])) if match else None
    except ValueError:
        return None
