"""Files that are written at the same time: on an object store each is a request of its own."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream

_WRITES_AT_ONCE = 16


class SideBySideWrites(FileIO):
    """A FileIO that begins to write a file when its stream is closed, and goes on meanwhile.

    Nothing may name the files before `finish`. What is written is held in memory until then.
    """

    def __init__(self, files: FileIO) -> None:
        super().__init__(files.properties)
        self._files = files
        self._pool = ThreadPoolExecutor(_WRITES_AT_ONCE, thread_name_prefix="neve-writes")
        self._writes: list[Future[None]] = []

    def new_input(self, location: str) -> InputFile:
        return self._files.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return _HeldOutput(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._files.delete(location)

    def write(self, location: str, data: bytes) -> None:
        """Begin to write a whole file under a name that no other file has."""

        def put() -> None:
            # A new name, so that a store need not be asked whether it is there.
            with self._files.new_output(location).create(overwrite=True) as stream:
                stream.write(data)

        self._writes.append(self._pool.submit(put))

    def finish(self) -> None:
        """Wait until every file is written; raise what the first that failed raised."""
        self._pool.shutdown()
        for write in self._writes:
            write.result()


class _HeldOutput(OutputFile):
    def __init__(self, location: str, owner: SideBySideWrites) -> None:
        super().__init__(location)
        self._owner = owner
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return self._owner.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002, FBT001, FBT002 - the port's
        return _HeldStream(self._take)

    def _take(self, data: bytes) -> None:
        self._size = len(data)
        self._owner.write(self.location, data)


class _HeldStream(io.BytesIO):
    """Hands over what was written when it is closed, unless its writer failed."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        super().__init__()
        self._take = take

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._take(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        if kind is not None:
            # Nobody names half a file.
            super().close()
        self.close()

    def __del__(self) -> None:
        """Write nothing: who forgets to close a file has failed."""
