"""Tables that look older than they are: the times of their snapshots are moved into the past."""

from __future__ import annotations

import copy

from neve.lake.json_table import read_database_table, swap_document


def spread(lake, identifier, apart_seconds: float, end: float) -> list[int]:
    """Put the commits of a table apart, the last one at `end`; return the snapshots of `main`."""
    catalog = lake.catalog()
    base, io = read_database_table(catalog, identifier)
    document = copy.deepcopy(dict(base.document))
    snapshots = document["snapshots"]
    times = {
        each["snapshot-id"]: int((end - place * apart_seconds) * 1000)
        for place, each in enumerate(reversed(snapshots))
    }
    for entry in (*snapshots, *document["snapshot-log"]):
        entry["timestamp-ms"] = times[entry["snapshot-id"]]
    swap_document(catalog, io, identifier, base, document)
    return [entry["snapshot-id"] for entry in document["snapshot-log"]]
