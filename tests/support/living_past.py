"""A table with a past: versions of hours ago, and many of today that are due to expire."""

from __future__ import annotations

import copy
import secrets
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from neve.lake.metadata_json import MetadataJson
from tests.support.table_documents import write_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neve.lake import Lake

    Json = dict[str, Any]

HOUR_MS = 3_600_000
# `neve run` expires nothing less than twenty snapshots of a table, and keeps the newest ones.
EXPIRING = 24
# Of a summary: by these a snapshot is told to be that of a certain write.
_WRITES = ("neve.batch-id", "neve.append-id")


def give_past(lake: Lake, table: str) -> dict[str, int]:
    """Put the commits of a table hours apart; return the tags that upkeep owes, with snapshots.

    Commits without a change follow on the last one, which then was made an hour ago. The table is
    registered anew, the one way to former times that every catalog allows: nobody may write to it.
    """
    identifier = lake.ref(table).identifier
    base = lake.reader().read_document(identifier)
    document: Json = copy.deepcopy(dict(base.document))
    io = lake.catalog().load_table(table).io
    now_ms = int(datetime.now(timezone.utc).timestamp() * 1000)
    real = len(document["snapshots"])
    for made in _unchanged(document, EXPIRING):
        with (
            io.new_input(document["snapshots"][-1]["manifest-list"]).open() as source,
            io.new_output(made["manifest-list"]).create() as target,
        ):
            target.write(source.read())
        document["snapshots"].append(made)
    for number, snapshot in enumerate(document["snapshots"]):
        hours = real - number if number < real else (EXPIRING - (number - real)) / (EXPIRING + 1)
        snapshot["timestamp-ms"] = now_ms - int(hours * HOUR_MS)
    _rewrite_log(document)
    location = write_metadata(io.properties, MetadataJson("", document)).metadata_location
    lake.catalog().drop_table(identifier)
    lake.catalog().register_table(identifier, location)
    return _owed_tags(document["snapshot-log"], now_ms)


def _unchanged(document: Json, count: int) -> list[Json]:
    """Return snapshots with the rows of the last one, each the parent of the next."""
    last = document["snapshots"][-1]
    summary = {key: value for key, value in last["summary"].items() if key not in _WRITES}
    made: list[Json] = []
    for number in range(1, count + 1):
        snapshot_id = secrets.randbits(62)
        made.append(
            {
                **last,
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": made[-1]["snapshot-id"] if made else last["snapshot-id"],
                "sequence-number": last["sequence-number"] + number,
                "manifest-list": f"{document['location']}/metadata/snap-{snapshot_id}-past.avro",
                "summary": summary,
            }
        )
    return made


def _rewrite_log(document: Json) -> None:
    """Let `main` be at the last snapshot, by way of all others."""
    last = document["snapshots"][-1]
    document["snapshot-log"] = [
        {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
        for each in document["snapshots"]
    ]
    document["refs"]["main"]["snapshot-id"] = last["snapshot-id"]
    document["current-snapshot-id"] = last["snapshot-id"]
    document["last-sequence-number"] = last["sequence-number"]


def _owed_tags(log: list[Mapping[str, int]], now_ms: int) -> dict[str, int]:
    """Return the tag of each full hour since the first version, and the version it must name."""
    tags = {}
    for hour_ms in range(now_ms // HOUR_MS * HOUR_MS, log[0]["timestamp-ms"], -HOUR_MS):
        version = [each for each in log if each["timestamp-ms"] <= hour_ms][-1]
        at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=hour_ms)
        tags[f"{at:%Y-%m-%dT%H}"] = version["snapshot-id"]
    return tags
