"""Metadata files of another table, or of a view, in a table's location.

A table that the catalog has lost leaves its files, and one that is made anew under its name lies in
the same place: no snapshot of it names those files, and the catalog knows of nobody who does. So it
is with tables of a catalog that is not configured here. Only their metadata files tell.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from neve.errors import NotFoundError
from neve.lake.manifests import in_parallel
from neve.lake.metadata_json import decode_document
from neve.lake.reachable_files import metadata_files
from neve.lake.store_paths import place_of

if TYPE_CHECKING:
    from neve.lake.file_store import FileStore
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.stored_files import ListedFile

METADATA_FILE = re.compile(r".*\.metadata\.json(\.gz)?")
# The format, the id and the location come first, whoever writes the file.
_HEAD_BYTES = 16 * 1024
_UUID = re.compile(rb'"(?:table|view)-uuid"\s*:\s*"([^"]*)"')
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
        self._waiting: list[str] = []
        self.found: str | None = None
        """A metadata file of another table or view; None: none was found so far."""

    def see(self, file: ListedFile) -> None:
        """Take note of a file of the location.

        Raises:
            StorageError: a metadata file cannot be read, so that nobody knows whose it is.
        """
        name = file.path.rpartition("/")[2]
        # Stores refuse to read a part of an empty file.
        if file.size and METADATA_FILE.fullmatch(name) and place_of(file.path) not in self._named:
            self._waiting.append(file.path)
            if len(self._waiting) == _LOOKED_AT_TOGETHER:
                self.look()

    def look(self) -> None:
        """Look at the files that were seen and not looked at. Raises as `see`."""
        paths, self._waiting = self._waiting, []
        for path, is_of_another in zip(paths, in_parallel(self._is_of_another, paths), strict=True):
            if is_of_another:
                self.found = self.found or path

    def _is_of_another(self, path: str) -> bool:
        try:
            uuid = _uuid_in(self._store.read_range(path, 0, _HEAD_BYTES))
            if uuid in (None, self._uuid):
                return False
            return self._is_another(self._store.read(path), is_damaged_one=uuid != _FURTHER_ON)
        except NotFoundError:
            # Of a refused commit, which has deleted it meanwhile.
            return False

    def _is_another(self, content: bytes, *, is_damaged_one: bool) -> bool:
        """Tell whether a document is another's. A table without versions has nothing to lose.

        Such documents are common: of two that create a table at once, one leaves its own.
        """
        try:
            document = decode_document(content)
            uuid, snapshots = document.get("table-uuid"), document.get("snapshots")
        except (ValueError, EOFError, OSError, zlib.error, AttributeError):
            return is_damaged_one
        if "view-uuid" in document:
            return True
        return uuid is not None and str(uuid).lower() != self._uuid and bool(snapshots)


def _uuid_in(head: bytes) -> str | None:
    """Return the id in the first bytes of a document; None: they are of no document."""
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head)
        except zlib.error:
            return None
    match = _UUID.search(head)
    if match is not None:
        return match[1].decode(errors="replace").lower()
    return _FURTHER_ON if head.startswith(b"{") else None
