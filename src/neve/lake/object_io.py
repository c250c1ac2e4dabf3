"""PyIceberg's FileIO with one request for a small file of S3, where pyarrow makes up to six.

pyarrow asks for a file's size before it reads, and for the file, its directory and the parts of an
upload when it writes. A table's metadata are many small files, one after the other, so that most
of a small commit is waiting for answers. Files that grow past a limit, data files that are read,
and stores other than S3 are left to pyarrow. It is the default for S3 (`profile.s3_file_io`).
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import Any

from obstore.exceptions import BaseError
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from neve.errors import Code, NeveError, NotFoundError
from neve.lake.immutable_files import held_files
from neve.lake.local_faults import PassingStoreError
from neve.lake.object_files import ObjectFiles, is_plain
from neve.lake.paths import store_path
from neve.lake.range_reads import objects_of
from neve.lake.store_faults import WRITING, repeated

# What is written up to this size is held in memory, and is one request.
SMALL_BYTES = 8 * 1024 * 1024
_MOST_READ_BYTES = 1 << 62
# Who calls tries again, too: a store that never answers must not take long.
_ATTEMPTS = 3
# What pyarrow knows of logins and ways to a store, and obstore is not told.
_LEFT_TO_PYARROW = (
    "s3.role-arn",
    "s3.profile-name",
    "s3.anonymous",
    "s3.proxy-uri",
    "client.role-arn",
    "client.profile-name",
    "client.access-key-id",
)
# These are read whole.
_METADATA = (".avro", ".json")
# Of these, parts are read.
_VECTORS = "-deletes.puffin"


class ObjectFileIO(PyArrowFileIO):
    """Reads metadata files and writes small files of S3 by single requests."""

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        """Return a file to read."""
        key = self._key(location)
        if key is None or not location.endswith((*_METADATA, _VECTORS)):
            return super().new_input(location)
        files = objects_of(location, self.properties)
        kind = _RangedInput if location.endswith(_VECTORS) else _SmallInput
        return kind(location, files, key, self._store)

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        """Return a file to write."""
        key = self._key(location)
        if key is None:
            return super().new_output(location)
        return _SmallOutput(location, objects_of(location, self.properties), key, self)

    @property
    def _store(self) -> str:
        return self.properties.get("s3.endpoint") or ""

    def hold(self, location: str, data: bytes) -> None:
        """Keep a file that was written: who reads it next need not ask the store."""
        held_files.put(self._store, location, data)

    def large_output(self, location: str) -> OutputFile:
        """Return a file to write in parts, as pyarrow does."""
        return super().new_output(location)

    def _key(self, location: str) -> str | None:
        if any(self.properties.get(name) for name in _LEFT_TO_PYARROW):
            return None
        place = store_path(location)
        return place.key if place.is_s3 and is_plain(place.key) else None

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        path = location if isinstance(location, str) else location.location
        held_files.forget(self._store, path)
        super().delete(path)


class _SmallInput(InputFile):
    """A file that is read whole."""

    def __init__(self, location: str, files: ObjectFiles, key: str, store: str) -> None:
        super().__init__(location)
        self._files, self._key, self._store = files, key, store

    def __len__(self) -> int:
        facts = _attempted(lambda: self._files.facts(self._key), "cannot read", self.location)
        if facts is None:
            raise FileNotFoundError(f"{self.location} does not exist")
        return int(facts.size)

    def exists(self) -> bool:
        return (
            _attempted(lambda: self._files.facts(self._key), "cannot read", self.location)
            is not None
        )

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - the port's
        data = self.held()
        if data is None:
            content = _attempted(
                lambda: self._files.get(self._key, _MOST_READ_BYTES), "cannot read", self.location
            )
            data = bytes(content.data)
            held_files.put(self._store, self.location, data)
        return io.BytesIO(data)

    def held(self) -> bytes | None:
        return held_files.get(self._store, self.location)

    def read_range(self, offset: int, length: int) -> bytes:
        """Read a part of the file: fewer bytes where it ends earlier."""
        return bytes(
            _attempted(
                lambda: self._files.get_range(self._key, offset, length),
                "cannot read",
                self.location,
            )
        )


class _RangedInput(_SmallInput):
    """A file of which parts are read whose places are known: its size is never asked for."""

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - the port's
        return super().open(seekable) if self.held() is not None else _RangedStream(self)


class _RangedStream(io.RawIOBase):
    """Reads each range by one request."""

    def __init__(self, file: _RangedInput) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {
            io.SEEK_SET: 0,
            io.SEEK_CUR: self._position,
            io.SEEK_END: len(self._file) if whence == io.SEEK_END else 0,
        }[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        length = size if size >= 0 else len(self._file) - self._position
        data = self._file.read_range(self._position, length) if length > 0 else b""
        self._position += len(data)
        return data


class _SmallOutput(OutputFile):
    """A file that is one request, unless it grows."""

    def __init__(self, location: str, files: ObjectFiles, key: str, owner: ObjectFileIO) -> None:
        super().__init__(location)
        self._files, self._key, self._owner = files, key, owner
        self.size: int | None = None

    def __len__(self) -> int:
        return len(self._owner.new_input(self.location)) if self.size is None else self.size

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return self._owner.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - the port's
        return _GrowingStream(self, overwrite=overwrite)

    def create_large(self, *, overwrite: bool) -> OutputStream:
        return self._owner.large_output(self.location).create(overwrite=overwrite)

    def put(self, data: bytes, *, overwrite: bool) -> None:
        """Write the whole file. Raises FileExistsError."""
        attempts = 0

        def attempt() -> bool:
            nonlocal attempts
            attempts += 1
            if overwrite:
                self._files.put(self._key, data)
                return True
            if self._files.put_new(self._key, data) is not None:
                return True
            # After a lost answer the file that is there is our own; not after a failure.
            return attempts > 1 and self._files.get(self._key, len(data)).data == data

        if not _attempted(attempt, WRITING, self.location):
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        self.size = len(data)
        self._owner.hold(self.location, data)


class _GrowingStream(io.RawIOBase):
    """Holds what is written until it is closed, or too much to be held."""

    def __init__(self, file: _SmallOutput, *, overwrite: bool) -> None:
        super().__init__()
        self._file = file
        self._overwrite = overwrite
        self._buffer: io.BytesIO | None = io.BytesIO()
        self._large: Any = None
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._position += size
        if self._buffer is not None:
            self._buffer.write(data)
            if self._position <= SMALL_BYTES:
                return size
            self._large = self._file.create_large(overwrite=self._overwrite)
            data, self._buffer = self._buffer.getvalue(), None
        self._large.write(data)
        return size

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        """Write the file, if it was not written yet. Raises FileExistsError."""
        if self.closed:
            return
        buffer, self._buffer = self._buffer, None
        super().close()
        if self._large is not None:
            self._large.close()
        elif buffer is not None:
            self._file.put(buffer.getvalue(), overwrite=self._overwrite)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            # Nobody names half a file.
            self._buffer = None
        self.close()

    def __del__(self) -> None:
        """Write nothing: who forgets to close a file has failed."""


def _attempted(attempt: Any, what: str, path: str) -> Any:
    """Repeat what may pass; raise what a file system raises."""
    try:
        return repeated(attempt, what, path, _ATTEMPTS)
    except NotFoundError as error:
        raise FileNotFoundError(error.message) from error
    except NeveError as error:
        kind = PermissionError if error.code is Code.REFUSED else OSError
        raise (PassingStoreError if error.retryable else kind)(error.message) from error
    except BaseError as error:
        raise OSError(str(error).partition("\n")[0]) from error
