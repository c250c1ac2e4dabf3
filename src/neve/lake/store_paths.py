"""Which store, which bucket, which key: a path taken apart. Pure."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from neve.errors import UnsupportedError

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_S3 = frozenset({"s3", "s3a", "s3n"})
# With and without TLS.
_SAME_STORE = {"abfs": "abfss"}


@dataclass(frozen=True)
class StorePath:
    """A path, letter by letter: nothing in it is decoded, as in Iceberg."""

    scheme: str
    bucket: str
    key: str


def store_path(path: str) -> StorePath:
    """Take a path apart.

    Raises:
        UnsupportedError: it is relative.
    """
    match = _SCHEME.match(path)
    if match is None:
        return StorePath("file", "", _absolute(path, path))
    scheme, rest = match[1].lower(), path[match.end() :]
    if scheme == "file":
        if rest.startswith("//localhost/"):
            rest = rest.removeprefix("//localhost")
        return StorePath("file", "", _absolute(path, "/" + rest.lstrip("/") if rest else rest))
    bucket, _, key = rest.removeprefix("//").partition("/")
    return StorePath("s3" if scheme in _S3 else scheme, bucket, key)


def place_of(path: str) -> str:
    """Return a path in one spelling: a file of the same store may be named in several."""
    place = store_path(path)
    if place.scheme == "file":
        # A file system takes `/w//t/./x` for `/w/t/x`; in an object store they are two.
        return "file:///" + posixpath.normpath("/" + place.key.lstrip("/"))
    return object_place(place)


def object_place(place: StorePath) -> str:
    """Return a path of an object store in one spelling."""
    return f"{_SAME_STORE.get(place.scheme, place.scheme)}://{place.bucket}/{place.key}"


def _absolute(path: str, local: str) -> str:
    if not local.startswith("/"):
        raise UnsupportedError(f"the path {path} is not absolute", hint="name the whole path")
    return local
