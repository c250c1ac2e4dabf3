"""The files of a catalog as the steps of a move use them; each catalog with its own credentials."""

from __future__ import annotations

from functools import cached_property

from neve.errors import ConflictError, NotFoundError
from neve.lake.file_store import FileStore
from neve.lake.profile import CatalogProfile


class CatalogFiles:
    """Reads and writes files with the credentials of one catalog.

    Pickled, it is connected again on the other side: Spark's tasks read and write, too.
    """

    def __init__(self, profile: CatalogProfile) -> None:
        self._profile = profile

    def __reduce__(self) -> tuple[type[CatalogFiles], tuple[CatalogProfile]]:
        return CatalogFiles, (self._profile,)

    @cached_property
    def store(self) -> FileStore:
        return FileStore(self._profile)

    def close(self) -> None:
        if "store" in self.__dict__:
            self.store.close()

    def read(self, path: str) -> bytes:
        """Return the content of a source's file.

        Raises:
            NotFoundError: it is gone, though the version that is moved names it.
        """
        try:
            return self.store.read(path)
        except NotFoundError as error:
            raise NotFoundError(
                f"{path} does not exist",
                hint="if the source has expired snapshots meanwhile, run the command again: it "
                "plans the present version and copies only what is missing",
            ) from error

    def write(self, path: str, content: bytes) -> None:
        """Write a file whose name says its content, unless it is there.

        Raises:
            ConflictError: another file has the name.
        """
        if not self.store.write_new(path, content) and self.store.size(path) != len(content):
            raise ConflictError(
                f"{path} exists, and is another file", hint="move to another place: --location"
            )
