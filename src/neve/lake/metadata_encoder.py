"""A table's metadata document written as JSON; what an earlier one had, too, is encoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from neve.lake.growing_lists import kept_members

# Lists that grow with each commit.
_GROWING = ("snapshots", "snapshot-log")


class MetadataEncoder:
    """Encodes the documents that one table has, one after the other.

    The members of a document must not change: they are told by being the same objects.
    """

    def __init__(self) -> None:
        self._growing = {key: _EncodedList() for key in _GROWING}

    def encode(self, document: Mapping[str, Any]) -> list[bytes]:
        """Return a document as JSON, in pieces to be written one after the other.

        Most of it is what was encoded before, as it is: a document may have megabytes.
        """
        growing = {key: document[key] for key in _GROWING if document.get(key)}
        rest = {key: value for key, value in document.items() if key not in growing}
        pieces = [to_json(rest)[:-1]]
        separator = b"," if rest else b""
        for key, members in growing.items():
            pieces += [b'%s"%s":[' % (separator, key.encode()), self._growing[key].encode(members)]
            separator = b"],"
        return [*pieces, b"]}" if growing else b"}"]


class _EncodedList:
    """The members of a list that grows at its end and is shortened at its beginning."""

    def __init__(self) -> None:
        self._members: Sequence[Any] = ()
        self._sizes: list[int] = []
        self._text = b""

    def encode(self, members: Sequence[Any]) -> bytes:
        """Return members as JSON, with commas; those of the last call are not encoded again."""
        kept = kept_members(self._members, members)
        added = [to_json(each) for each in members[len(kept) :]]
        # A comma follows each of those that were removed.
        start = sum(self._sizes[: kept.start]) + kept.start
        texts = [self._text[start:], *added] if kept else added
        self._sizes = [*(self._sizes[kept.start :] if kept else ()), *map(len, added)]
        self._text = b",".join(texts)
        self._members = members
        return self._text
