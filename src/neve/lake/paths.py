"""Where files are: which store, which bucket, which key. The only place that takes paths apart.

A path is taken letter by letter, as Hadoop, Iceberg and DuckDB do: `%20` is three letters of a
name, and `#` is one. docs/decisions/0022-paths-letter-by-letter.md has what each was seen to do.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from neve.errors import UnsupportedError

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_MAKES = re.compile(r"\b(CREATE|REPLACE)\b", re.IGNORECASE)
_S3 = frozenset({"s3", "s3a", "s3n"})
# With and without TLS.
_SAME_STORE = {"abfs": "abfss"}
# PyIceberg and Java's S3FileIO end a path at the first two; DuckDB cannot read the third.
_REFUSED_LETTERS = '?#"'
# Control letters, which URL parsers strip, and bytes of a file name that are no UTF-8.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cs"})


@dataclass(frozen=True)
class StorePath:
    """A path, letter by letter: nothing in it is decoded, as in Iceberg."""

    scheme: str
    bucket: str
    key: str

    @property
    def store(self) -> str:
        """What holds the path: a bucket, or the file system of this machine."""
        return f"{_SAME_STORE.get(self.scheme, self.scheme)}://{self.bucket}"

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def is_s3(self) -> bool:
        return self.scheme == "s3"


def store_path(path: str) -> StorePath:
    """Take a path apart.

    Raises:
        UnsupportedError: it is relative, or of another machine.
    """
    match = _SCHEME.match(path)
    if match is None:
        return StorePath("file", "", _absolute(path, path))
    scheme, rest = match[1].lower(), path[match.end() :]
    if scheme == "file":
        return StorePath("file", "", _local_part(path, rest))
    bucket, _, key = rest.removeprefix("//").partition("/")
    return StorePath("s3" if scheme in _S3 else scheme, bucket, key)


def local_path(path: str) -> Path | None:
    """Return a path of this machine's file system, None for any other."""
    if _SCHEME.match(path) is None:
        return Path(path)
    place = store_path(path)
    return Path(place.key) if place.is_local else None


def local_address(path: str | Path) -> str:
    """Return the address of a local file or directory, as both engines take it."""
    return f"file://{path}"


def place_of(path: str) -> str:
    """Return a path in one spelling: a file of the same store may be named in several."""
    place = store_path(path)
    if place.is_local:
        # A file system takes `/w//t/./x` for `/w/t/x`; in an object store they are two.
        return "file:///" + posixpath.normpath("/" + place.key.lstrip("/"))
    return object_place(place)


def object_place(place: StorePath) -> str:
    """Return a path of an object store in one spelling."""
    return f"{place.store}/{place.key}"


def unusable_part(path: str) -> str | None:
    """Return what of a path some engine takes for something else; None: all read and write there.

    Java's S3FileIO would put each file of a table at `s3://b/a#b` into the one object `a`.
    """
    for letter in path:
        if letter in _REFUSED_LETTERS or unicodedata.category(letter) in _REFUSED_CATEGORIES:
            return ascii(letter)
    return None


def require_usable_places(*places: str) -> None:
    """Refuse names and locations of something new in which engines would not agree on letters.

    Raises:
        UnsupportedError: it names the letter.
    """
    for place in places:
        if part := unusable_part(place):
            raise UnsupportedError(
                f"{place!a} has {part} in it, which not every engine takes for a letter of a path",
                hint='choose a name and a location without ? # " and control characters',
            )


def may_make_unusable_place(statement: str) -> bool:
    """Tell whether a SQL statement may make such a thing: for most, no parser needs to look."""
    return bool(_MAKES.search(statement) and any(each in statement for each in _REFUSED_LETTERS))


def _local_part(path: str, rest: str) -> str:
    if rest.startswith("//localhost/"):
        rest = rest.removeprefix("//localhost")
    if rest.startswith("//") and not rest.startswith("///"):
        raise UnsupportedError(
            f"the path {path} names a host, {rest[2:].partition('/')[0]}",
            hint="a local path is file:///directory, with three slashes",
        )
    return _absolute(path, "/" + rest.lstrip("/") if rest.startswith("/") else rest)


def _absolute(path: str, local: str) -> str:
    if not local.startswith("/"):
        raise UnsupportedError(f"the path {path} is not absolute", hint="name the whole path")
    return local
