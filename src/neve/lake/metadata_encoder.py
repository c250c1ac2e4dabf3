"""A table's metadata document written as JSON; what an earlier one had, too, is encoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

# Lists that grow with each commit, and whose members are the same objects in the next document.
_GROWING = ("snapshots", "snapshot-log")


class MetadataEncoder:
    """Encodes the documents that one table has, one after the other.

    The members of a document must not change: they are told by being the same objects.
    """

    def __init__(self) -> None:
        # The member is kept so that no other object gets its id.
        self._encoded: dict[int, tuple[Any, bytes]] = {}

    def encode(self, document: Mapping[str, Any]) -> bytes:
        """Return a document as JSON."""
        growing = {key: document[key] for key in _GROWING if document.get(key)}
        rest = {key: value for key, value in document.items() if key not in growing}
        known, self._encoded = self._encoded, {}
        lists = [
            b'"%s":[%s]' % (key.encode(), self._members(members, known))
            for key, members in growing.items()
        ]
        body = to_json(rest)[1:-1]
        return b"{%s}" % b",".join([body, *lists] if body else lists)

    def _members(self, members: Sequence[Any], known: Mapping[int, tuple[Any, bytes]]) -> bytes:
        encoded = [known.get(id(member)) or (member, to_json(member)) for member in members]
        self._encoded.update(
            (id(member), pair) for member, pair in zip(members, encoded, strict=True)
        )
        return b",".join([text for _, text in encoded])
