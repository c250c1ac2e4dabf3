"""A table's metadata document written as JSON; what an earlier one had, too, is encoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

from pydantic_core import to_json

# Lists that grow with each commit, and whose members are the same objects in the next document.
_GROWING = ("snapshots", "snapshot-log")


class MetadataEncoder:
    """Encodes the documents that one table has, one after the other.

    The members of a document must not change: they are told by being the same objects.
    """

    def __init__(self) -> None:
        self._growing = {key: _EncodedList() for key in _GROWING}

    def encode(self, document: Mapping[str, Any]) -> bytes:
        """Return a document as JSON."""
        growing = {key: document[key] for key in _GROWING if document.get(key)}
        rest = {key: value for key, value in document.items() if key not in growing}
        lists = [
            b'"%s":[%s]' % (key.encode(), self._growing[key].encode(members))
            for key, members in growing.items()
        ]
        body = to_json(rest)[1:-1]
        return b"{%s}" % b",".join([body, *lists] if body else lists)


class _EncodedList:
    """The members of a list that grows at its end and is shortened at its beginning."""

    def __init__(self) -> None:
        self._members: Sequence[Any] = ()
        self._texts: list[bytes] = []

    def encode(self, members: Sequence[Any]) -> bytes:
        """Return members as JSON, with commas; those of the last call are not encoded again."""
        removed = next((n for n, each in enumerate(self._members) if each is members[0]), 0)
        kept = self._members[removed:]
        if len(kept) > len(members) or not all(map(is_, kept, members)):
            kept, removed = (), len(self._members)
        self._texts = self._texts[removed:] + [to_json(each) for each in members[len(kept) :]]
        self._members = members
        return b",".join(self._texts)
