"""The next metadata file of a table in a database's catalog: its name, and the log of earlier ones.

Iceberg's libraries do this for commits of their own; Neve writes metadata as JSON where they would
drop what their models do not know.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyiceberg.table.locations import load_location_provider

from neve.lake.metadata_json import MetadataJson

_PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
_DELETE_PREVIOUS = "write.metadata.delete-after-commit.enabled"


def next_metadata_location(base: MetadataJson) -> str:
    """Return a name that no other metadata file has, with the next version's number."""
    provider = load_location_provider(base.location, dict(base.properties))
    return provider.new_table_metadata_file_location(_version(base.metadata_location) + 1)


def with_base_in_log(
    base: MetadataJson, document: Mapping[str, Any]
) -> tuple[dict[str, Any], set[str]]:
    """Return new metadata whose log names its base, and the files that nobody needs any more."""
    log = [
        *(base.document.get("metadata-log") or ()),
        {"timestamp-ms": base.last_updated_ms, "metadata-file": base.metadata_location},
    ]
    properties = document.get("properties") or {}
    kept = max(1, int(properties.get(_PREVIOUS_VERSIONS, 100)))
    dropped = log[:-kept] if properties.get(_DELETE_PREVIOUS) == "true" else []
    logged = {
        **document,
        "metadata-log": log[-kept:],
        "last-updated-ms": max(
            int(time.time() * 1000), base.last_updated_ms, int(document["last-updated-ms"])
        ),
    }
    return logged, {entry["metadata-file"] for entry in dropped}


def _version(metadata_location: str) -> int:
    """Return the number that a metadata file's name begins with."""
    number = metadata_location.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else -1
