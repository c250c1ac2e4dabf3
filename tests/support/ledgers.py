"""A ledger that looks as old as a test wants it, without the time to get there."""

from __future__ import annotations

from copy import copy
from datetime import datetime, timezone

from pyiceberg.manifest import clear_manifest_cache, write_manifest_list

from neve.publish.ledger import LedgerEntry

# Data files in a manifest that merges have filled, and its length.
FILES_IN_MANIFEST = 270
MANIFEST_BYTES = 60_000
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def entry(number):
    ranges = {"logs/20260101T000000Z-0123456789ab": f"{number}-{number}"}
    counts = {"records": 1000, "rows": 1000, "files": 1, "bytes": 70_000, "set_aside": 0}
    counts |= {"dead_letters": 0, "duplicates": 0}
    snapshots = {"staged_snapshot_id": number, "main_snapshot_id": number}
    times = {"started_at": NOW, "finished_at": NOW}
    return LedgerEntry(
        f"b{number}", "otel.logs", "published", ranges, audits=[], **counts, **snapshots, **times
    )


def make_older(table, manifests, manifest_bytes=MANIFEST_BYTES):
    """Let the current snapshot of a table list further manifests, as years of writes would."""
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io)
    for number in range(manifests):
        older = copy(listed[-1])
        older._data = list(listed[-1]._data)
        older._data[0] = f"{listed[-1].manifest_path}.{number}"
        older._data[1] = manifest_bytes
        listed.append(older)
    with write_manifest_list(
        2,
        table.io.new_output(snapshot.manifest_list),
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number,
        "deflate",
    ) as writer:
        writer.add_manifests(listed)
    # PyIceberg has read the list before.
    clear_manifest_cache()
