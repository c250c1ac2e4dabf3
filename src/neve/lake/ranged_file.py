"""A seekable file over requests for ranges, as pyarrow reads Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable


class RangedFile(io.RawIOBase):
    """Reads what it is asked for and keeps nothing; put a buffer around it."""

    def __init__(self, read_range: Callable[[int, int], bytes], size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed: any buffer
        length = min(len(buffer), max(0, self._size - self._position))
        data = self._read_range(self._position, length)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
