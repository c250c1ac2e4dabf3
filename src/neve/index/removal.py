"""Which files of an index nobody needs any more."""

from __future__ import annotations

from collections.abc import Mapping

from neve.index.root import Root


def unreferenced(
    files: Mapping[str, int], retained: Mapping[str, Root], written_before_ms: int
) -> list[str]:
    """Return files that are neither a retained root nor named by one, sorted.

    A shard is written before the root that names it, and a root before the commit that names that:
    so what is younger than any running merge is left alone.

    Args:
        files: what lies in the index's location, each with its time of modification in ms.
        retained: the roots that retained snapshots or the table's properties name, by path.
        written_before_ms: files written at this time or later stay.
    """
    needed = set(retained)
    needed.update(shard.path for root in retained.values() for shard in root.shards)
    return sorted(
        path
        for path, modified_ms in files.items()
        if path not in needed and modified_ms < written_before_ms
    )
