"""Manifest lists and manifests as bytes: read side by side, for Java, which is given them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyiceberg.io import InputFile, InputStream
from pyiceberg.manifest import ManifestFile, read_manifest_list

from neve.errors import StorageError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_READS_AT_ONCE = 16


def read_file(files: FileIO, path: str) -> bytes:
    """Read a whole file. Raises StorageError."""
    try:
        with files.new_input(path).open() as stream:
            data: bytes = stream.read()
            return data
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}", retryable=True) from error


def read_manifests(files: FileIO, manifests: Sequence[ManifestFile]) -> dict[str, bytes]:
    """Read manifests, some at the same time. Raises StorageError."""
    paths = [manifest.manifest_path for manifest in manifests]
    if len(paths) < 2:
        return {path: read_file(files, path) for path in paths}
    with ThreadPoolExecutor(min(_READS_AT_ONCE, len(paths))) as pool:
        contents = pool.map(lambda path: read_file(files, path), paths)
        return dict(zip(paths, contents, strict=True))


def manifests_in(manifest_list: bytes) -> list[ManifestFile]:
    """Return what a manifest list names."""
    return list(read_manifest_list(_BytesInput(manifest_list)))


class _BytesInput(InputFile):
    def __init__(self, data: bytes) -> None:
        super().__init__("")
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - the port's
        return io.BytesIO(self._data)
