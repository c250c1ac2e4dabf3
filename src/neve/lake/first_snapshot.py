"""Which snapshot is the first of its line: nothing was before it, and that is proven."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import fastavro

from neve.errors import UnsupportedError
from neve.lake.store_faults import explaining

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson

ReadFile = Callable[[str], bytes]

# The number that a writer gives to the first metadata file of a table.
_FIRST_VERSION = 0


def is_first_snapshot(
    metadata: MetadataJson, snapshot: Mapping[str, Any], read: ReadFile | None = None
) -> bool:
    """Tell whether it is proven that a snapshot never had a parent.

    That it names none is no proof: PyIceberg's expiry clears the parent of the oldest snapshot that
    it keeps. But nobody changes its manifest list, and Iceberg and PyIceberg write the parent into
    the header of that file. Where there is no such header, or nothing to read it with, the metadata
    must prove it: nothing was there before the snapshot (its totals are what it added itself), and
    no commit is missing before it:

    - Every commit takes the next sequence number. The snapshots with lower numbers are all
      retained, so that none of them was removed. A table that was replaced (`CREATE OR REPLACE
      TABLE`) begins a new line so; the snapshots of the line before are still there.
    - In format version 1 there are no numbers. The log of metadata files goes back to the first
      one, and at most that one, which made the table, is older than the snapshot.

    False means that it cannot be proven. One history is not told apart by metadata: a table of
    format version 1 that was emptied, then upgraded, then filled.

    Args:
        read: reads a file of the table.
    """
    if snapshot.get("parent-snapshot-id") is not None:
        return False
    added_all = _added_all_it_has(snapshot)
    parent = None if read is None else _parent_in_manifest_list(snapshot, read)
    if parent is not None:
        return parent == "null" and added_all is not False
    if not added_all:
        return False
    number = snapshot.get("sequence-number") or 0
    if number == 0:
        return _is_first_in_metadata_log(metadata, snapshot)
    retained = {each.get("sequence-number") or 0 for each in metadata.snapshots.values()}
    return retained.issuperset(range(1, number))


def _parent_in_manifest_list(snapshot: Mapping[str, Any], read: ReadFile) -> str | None:
    """Return the parent that a snapshot was written with, "null" for none; None: not known."""
    path = snapshot.get("manifest-list")
    if not path:
        return None
    try:
        with explaining("reading the manifest list", path):
            content = read(path)
    except UnsupportedError:
        # PyIceberg, through which object stores are read without a JVM, refuses the table.
        return None
    try:
        header = fastavro.reader(io.BytesIO(content)).metadata
    except (ValueError, EOFError):
        # No Avro: who reads the rows says so.
        return None
    is_its_own = header.get("snapshot-id") == str(snapshot["snapshot-id"])
    return header.get("parent-snapshot-id") if is_its_own else None


def _added_all_it_has(snapshot: Mapping[str, Any]) -> bool | None:
    """Tell whether the summary says that the table was empty before; None: it says nothing."""
    summary = snapshot.get("summary") or {}
    if "total-records" not in summary or "total-data-files" not in summary:
        return None

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
