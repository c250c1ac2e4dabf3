"""Whole files of a table, read without a JVM: from the local disk, else through PyIceberg."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from neve.lake.paths import local_path

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef


def file_reader(lake: Lake, ref: TableRef) -> Callable[[str], bytes]:
    """Return what reads a file of a table; the catalog is asked only for files that are elsewhere.

    Raises:
        OSError: the file cannot be read.
    """
    files: list[FileIO] = []

    def read(path: str) -> bytes:
        local = local_path(path)
        if local is not None:
            return local.read_bytes()
        if not files:
            files.append(lake.load(ref).io)
        with files[0].new_input(path).open() as stream:
            content: bytes = stream.read()
            return content

    return read
