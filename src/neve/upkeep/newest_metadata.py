"""Which of a table's metadata files is the newest. Pure.

Metadata files have numbers that rise by one with each commit, and each names those before it in its
log. A file that another one names was replaced. Of those that are left the one with the highest
number counts. Two with that number are two attempts of one commit, of which one was refused: only a
person can say which. So it is if another one that nothing has replaced was written later: the table
was set back to an older version once, and written again from there. And if another one says that
the table lies elsewhere: `neve rewrite` counts anew from 0, beside the metadata that was copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.errors import ConflictError, NotFoundError
from neve.lake.paths import place_of

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson

_NUMBER = re.compile(r"v?(\d+)[-.]")
# So much a writer's clock may be ahead of another's.
_CLOCKS_DIFFER_MS = 60_000


@dataclass(frozen=True)
class _Version:
    """A metadata file, without what is in it: a table may have very many."""

    path: str
    updated_ms: int
    location: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def number(self) -> int:
        return number_of(self.path)


def newest_metadata(documents: Iterable[MetadataJson]) -> tuple[str, str]:
    """Return the newest of a table's metadata files, and why it is; see the module. Pure.

    Args:
        documents: looked at one after the other; none is kept.

    Raises:
        ConflictError: two may be the newest, or they are of different tables.
        NotFoundError: there is none.
    """
    versions: list[_Version] = []
    uuids: set[str] = set()
    replaced: set[str] = set()
    for each in documents:
        uuids.add(each.uuid)
        place = each.location.rstrip("/")
        versions.append(_Version(each.metadata_location, each.last_updated_ms, place))
        log = each.document.get("metadata-log") or ()
        replaced.update(place_of(str(entry["metadata-file"])) for entry in log)
    if not versions:
        raise NotFoundError(
            "there is no metadata file", hint="name the table's directory with --location"
        )
    if len(uuids) > 1:
        raise ConflictError(
            f"the location has metadata of {len(uuids)} tables, one dropped and created again",
            hint="choose one of its files with --metadata",
        )
    newest = _newest_of([each for each in versions if place_of(each.path) not in replaced])
    others = f" of {len(versions)}" if len(versions) > 1 else ""
    return newest.path, f"{newest.name} is the newest{others}, by its number and by their logs"


def _newest_of(versions: Sequence[_Version]) -> _Version:
    """Return the one with the highest number, of those that no other one has replaced."""
    newest, *others = sorted(versions, key=lambda each: -each.number)
    same = [each.name for each in (newest, *others) if each.number == newest.number]
    if len(same) > 1:
        raise ConflictError(
            f"{', '.join(sorted(same))} are two attempts of one commit, and nothing says which one "
            "was applied",
            hint="look at both, and choose one with --metadata",
        )
    for each in others:
        if each.location != newest.location:
            raise ConflictError(
                f"{newest.name} has the highest number, and says that the table lies at "
                f"{newest.location}; {each.name} says at {each.location}",
                hint="choose the one of the place where its files are, with --metadata",
            )
        if each.updated_ms > newest.updated_ms + _CLOCKS_DIFFER_MS:
            raise ConflictError(
                f"{newest.name} has the highest number, and {each.name} was written later: the "
                "table was set back to an older version once, and written again from there",
                hint="look at both, and choose one with --metadata",
            )
    return newest


def number_of(path: str) -> int:
    """Return the number in a metadata file's name; -1: it has none."""
    match = _NUMBER.match(path.rpartition("/")[2])
    return int(match[1]) if match else -1
