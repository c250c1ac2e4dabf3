"""Files of an index as they are stored: opened, mapped where they are local, missing ones named."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO

from neve.errors import CorruptionError, StorageError, UnsupportedError


@contextmanager
def opened(io: FileIO, path: str) -> Iterator[tuple[Any, int]]:
    """Open a file of an index for reading and say its size.

    Raises:
        CorruptionError: it is missing.
        StorageError: the store does not let it be read now.
    """
    try:
        source = io.new_input(path)
        stream = source.open(seekable=True)
        # Opening has asked for the size already, where pyarrow did it.
        size = stream.size() if hasattr(stream, "size") else len(source)
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}", retryable=True) from error
    with stream:
        yield stream, size


def missing(path: str) -> CorruptionError:
    return CorruptionError(
        f"index file {path} is missing", hint="the index is rebuilt from the table"
    )


def list_files(io: FileIO, location: str) -> dict[str, int]:
    """Return the files of an index by path, each with its time of modification in milliseconds."""
    from pyarrow.fs import FileSelector
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(io, PyArrowFileIO):
        raise UnsupportedError(f"{type(io).__name__} cannot list the files of an index")
    scheme, host, path = PyArrowFileIO.parse_location(location, io.properties)
    selector = FileSelector(path, allow_not_found=True)
    found = io.fs_by_scheme(scheme, host).get_file_info(selector)
    return {
        f"{location}/{one.base_name}": one.mtime_ns // 1_000_000 for one in found if one.is_file
    }


def file_stamp(path: Path, name: str) -> tuple[int, int, int]:
    """Return what changes when a file does. Raises CorruptionError where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise missing(name) from error
    except OSError as error:
        raise StorageError(f"{name} cannot be read: {error}", retryable=True) from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def map_local(path: Path, name: str) -> mmap.mmap:
    """Map a local file. Raises CorruptionError where there is none."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise missing(name) from error
    except (OSError, ValueError) as error:
        # A file of no bytes cannot be mapped.
        raise CorruptionError(f"index file {name} cannot be read: {error}") from error
