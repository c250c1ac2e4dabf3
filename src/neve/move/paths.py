"""Where each file of a table goes: source paths become target paths, no two the same. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from neve.errors import UnsupportedError

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):/*")
# Different names of one store.
_SAME_STORE = {"s3a": "s3", "s3n": "s3"}


def normal_path(path: str) -> str:
    """Spell a path so that two spellings of one file are equal.

    `s3a://` is `s3://`, `/a` and `file:/a` are `file:///a`. Nothing is decoded: Iceberg takes
    paths letter by letter.
    """
    match = _SCHEME.match(path)
    if match is None:
        return "file:///" + path.lstrip("/") if path.startswith("/") else path
    scheme = match[1].lower()
    scheme = _SAME_STORE.get(scheme, scheme)
    rest = path[match.end() :]
    return f"file:///{rest}" if scheme == "file" else f"{scheme}://{rest}"


def below(prefix: str, path: str) -> str | None:
    """Return a path relative to a directory, None if it lies elsewhere.

    `…/orders_2/x` is not below `…/orders`.
    """
    directory = normal_path(prefix).rstrip("/") + "/"
    normal = normal_path(path)
    return normal[len(directory) :] if normal.startswith(directory) else None


@dataclass(frozen=True)
class Prefix:
    """A directory and what takes its place."""

    source: str
    target: str


class PathMap:
    """Maps paths by their longest prefix; a path below none goes below `elsewhere`."""

    def __init__(self, prefixes: Sequence[Prefix], elsewhere: str | None = None) -> None:
        directories = [
            (normal_path(each.source).rstrip("/") + "/", each.target.rstrip("/") + "/")
            for each in prefixes
        ]
        self._directories = sorted(directories, key=lambda each: -len(each[0]))
        self._elsewhere = elsewhere

    def target(self, path: str) -> str | None:
        """Return where a file goes; None: no prefix fits it, and there is no place for it."""
        normal = normal_path(path)
        for source, target in self._directories:
            if normal.startswith(source):
                return target + normal[len(source) :]
        if self._elsewhere is None:
            return None
        directory, _, name = normal.rpartition("/")
        # The whole directory, so that equal names of different directories stay apart.
        digest = hashlib.sha256(directory.encode()).hexdigest()[:16]
        return f"{self._elsewhere.rstrip('/')}/{digest}/{name}"

    def required_target(self, path: str) -> str:
        """Return where a file goes.

        Raises:
            UnsupportedError: there is no place for it.
        """
        target = self.target(path)
        if target is None:
            raise UnsupportedError(
                f"{path} lies below none of the prefixes",
                hint="name another pair: --from PREFIX --to PREFIX",
            )
        return target

    def directory(self, path: str) -> str | None:
        """Return what takes the place of a directory; None: no prefix fits it."""
        normal = normal_path(path).rstrip("/") + "/"
        for source, target in self._directories:
            if normal.startswith(source):
                return (target + normal[len(source) :]).rstrip("/")
        return None


def collisions(targets: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yield two source files that would become one file."""
    sources: dict[str, str] = {}
    for source, target in targets.items():
        first = sources.setdefault(target, source)
        if normal_path(first) != normal_path(source):
            yield first, source
