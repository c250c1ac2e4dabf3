"""Which snapshot is the first of its line: nothing was before it, and that is proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson

# The number that a writer gives to the first metadata file of a table.
_FIRST_VERSION = 0


def is_first_snapshot(metadata: MetadataJson, snapshot: Mapping[str, Any]) -> bool:
    """Tell whether it is proven that a snapshot never had a parent.

    That it names none is no proof: PyIceberg's expiry clears the parent of the oldest snapshot that
    it keeps. So nothing may have been there before it (its totals are what it added itself), and
    no commit may be missing before it:

    - Every commit takes the next sequence number. The snapshots with lower numbers are all
      retained, so that none of them was removed. A table that was replaced (`CREATE OR REPLACE
      TABLE`) begins a new line so; the snapshots of the line before are still there.
    - In format version 1 there are no numbers. The log of metadata files goes back to the first
      one, and at most that one, which made the table, is older than the snapshot.

    False means that it cannot be proven. One history is not told apart by metadata: a table of
    format version 1 that was emptied, then upgraded, then filled.
    """
    if snapshot.get("parent-snapshot-id") is not None or not _added_all_it_has(snapshot):
        return False
    number = snapshot.get("sequence-number") or 0
    if number == 0:
        return _is_first_in_metadata_log(metadata, snapshot)
    retained = {each.get("sequence-number") or 0 for each in metadata.snapshots.values()}
    return retained.issuperset(range(1, number))


def _added_all_it_has(snapshot: Mapping[str, Any]) -> bool:
    """Tell whether the summary says that the table was empty before; it may say nothing."""
    summary = snapshot.get("summary") or {}
    if "total-records" not in summary or "total-data-files" not in summary:
        return False

    def number(key: str) -> int:
        return int(summary.get(key, 0))

    return (
        number("total-records") == number("added-records")
        and number("total-data-files") == number("added-data-files")
        and number("total-delete-files") == number("added-delete-files")
        and not number("deleted-data-files")
        and not number("removed-delete-files")
    )


def _is_first_in_metadata_log(metadata: MetadataJson, snapshot: Mapping[str, Any]) -> bool:
    log = metadata.document.get("metadata-log") or []
    names = [str(entry["metadata-file"]).rpartition("/")[2] for entry in log]
    number = names[0].partition("-")[0] if names else ""
    if not number.isdigit() or int(number) != _FIRST_VERSION:
        return False
    older = [entry for entry in log if entry["timestamp-ms"] < snapshot["timestamp-ms"]]
    return len(older) <= 1
