"""What a move writes into the table that it moves: which version of the source that is.

A table property, so that it is committed in the same swap: without any journal it tells whether a
version has arrived, and whether somebody has written to the target since. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from neve.lake.metadata_json import MOVED, MetadataJson


@dataclass(frozen=True)
class MoveRecord:
    """A table as a move has left it.

    Args:
        version: a digest that stands for the source's metadata file; no path, since a target names
            nothing of its source.
        sequence_number: of the newest snapshot that the table had then.
        properties: the names of the properties that came from the source.
        shape: the ids of the current schema, partition spec and sort order.
    """

    version: str
    refs: Mapping[str, int]
    # Not compared: a target may have newer snapshots than its source, which has expired them.
    sequence_number: int = field(compare=False)
    properties: tuple[str, ...]
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, source: MetadataJson) -> MoveRecord:
        """Describe the version of a source that is moved."""
        return cls(
            hashlib.sha256(source.metadata_location.encode()).hexdigest()[:20],
            source.refs,
            source.document.get("last-sequence-number") or 0,
            tuple(sorted(source.properties.keys() - {MOVED})),
            shape_of(source),
        )

    def encode(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def shape_of(metadata: MetadataJson) -> tuple[int, int, int]:
    document = metadata.document
    return (
        metadata.current_schema_id,
        document.get("default-spec-id", 0),
        document.get("default-sort-order-id", 0),
    )


def read_record(metadata: MetadataJson) -> MoveRecord | None:
    """Return what the last move wrote; None: the table was never moved, or it cannot be read."""
    try:
        values: dict[str, Any] = json.loads(metadata.properties[MOVED])
        return MoveRecord(
            str(values["version"]),
            {name: int(snapshot_id) for name, snapshot_id in values["refs"].items()},
            int(values["sequence_number"]),
            tuple(values["properties"]),
            (*map(int, values["shape"]),),  # type: ignore[arg-type]  # three, as they were written
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def with_record(source: MetadataJson) -> MetadataJson:
    """Return a version of a source with the property that says which one it is."""
    properties = {**source.properties, MOVED: MoveRecord.of(source).encode()}
    return MetadataJson(source.metadata_location, {**source.document, "properties": properties})
