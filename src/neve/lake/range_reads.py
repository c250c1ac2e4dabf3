"""Read ranges of files in an object store, many at once.

A FileIO asks for a file's size before each read. What is read here has a known length, so that a
range is one request.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from obstore.exceptions import BaseError
from pyiceberg.io import FileIO, load_file_io

from neve.lake.object_access import ObjectAccess, file_io_access
from neve.lake.object_files import ObjectFiles, is_plain
from neve.lake.paths import store_path
from neve.lake.s3_store import s3_store
from neve.lake.store_faults import answer_of, repeated

# Most of a request is waiting.
REQUESTS_AT_ONCE = 32


@dataclass(frozen=True)
class FileRange:
    """Some bytes of a file."""

    path: str
    offset: int
    length: int


def read_ranges(
    properties: Mapping[str, str], ranges: Sequence[FileRange]
) -> Iterator[tuple[FileRange, Any]]:
    """Read ranges, in the given order; each is one request to S3.

    Fewer bytes are returned where a file ends earlier.

    Args:
        properties: of the FileIO that reads such files.

    Raises:
        NotFoundError: there is no such file.
        StorageError: the store refused, or failed as often as it was asked.
    """

    def read(wanted: FileRange) -> Any:
        attempt = _reader(properties, wanted)
        return repeated(attempt, "cannot read a range", wanted.path)

    if len(ranges) == 1:
        yield ranges[0], read(ranges[0])
    elif ranges:
        with ThreadPoolExecutor(min(REQUESTS_AT_ONCE, len(ranges))) as pool:
            yield from zip(ranges, pool.map(read, ranges), strict=True)


def read_whole(properties: Mapping[str, str], path: str) -> bytes:
    """Read a small file by one request. Raises as `read_ranges`."""
    return bytes(repeated(_whole_reader(properties, path), "cannot read", path))


def _whole_reader(properties: Mapping[str, str], path: str) -> Callable[[], Any]:
    place = store_path(path)
    if place.is_s3 and is_plain(place.key):
        files = objects_of(path, properties)
        return lambda: files.get(place.key, sys.maxsize).data

    def read() -> bytes:
        with load_file_io(dict(properties), path).new_input(path).open() as stream:
            data: bytes = stream.read()
            return data

    return read


def _reader(properties: Mapping[str, str], wanted: FileRange) -> Callable[[], Any]:
    place = store_path(wanted.path)
    if place.is_s3 and is_plain(place.key):
        files = objects_of(wanted.path, properties)
        return lambda: _read_object(files, place.key, wanted)
    return lambda: _read_by_file_io(load_file_io(dict(properties), wanted.path), wanted)


def objects_of(path: str, properties: Mapping[str, str]) -> ObjectFiles:
    """Return the objects of the bucket that a file of S3 is in; clients are kept."""
    return _objects(store_path(path).bucket, file_io_access(properties))


@lru_cache(maxsize=16)
def _objects(bucket: str, access: ObjectAccess) -> ObjectFiles:
    return ObjectFiles(s3_store(bucket, access))


def _read_object(files: ObjectFiles, key: str, wanted: FileRange) -> Any:
    try:
        return files.get_range(key, wanted.offset, wanted.length)
    except BaseError as error:
        if answer_of(error).status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            # The file ends before the range begins.
            return b""
        raise


def _read_by_file_io(io: FileIO, wanted: FileRange) -> bytes:
    with io.new_input(wanted.path).open(seekable=True) as stream:
        stream.seek(wanted.offset)
        data: bytes = stream.read(wanted.length)
        return data
