"""A table's metadata document with other paths, everything else as it was. Pure."""

from __future__ import annotations

import gzip
import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neve.move.files import WrittenFile
from neve.move.paths import PathMap, normal_path

# Where writers put new files.
PATH_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True)
class RewrittenMetadata:
    """A metadata document for the target, and what was left out of it, a line each."""

    document: dict[str, Any]
    notes: tuple[str, ...] = ()


def rewrite_metadata(
    document: Mapping[str, Any],
    location: str,
    paths: PathMap,
    rewritten: Mapping[str, WrittenFile],
) -> RewrittenMetadata:
    """Return a metadata document that names the files at the target.

    Args:
        location: of the table at the target.
        rewritten: manifest lists and manifests, by the normal path of what each replaces.

    Raises:
        UnsupportedError: a statistics file has no place at the target.
    """
    properties, notes = _properties(document.get("properties") or {}, paths)
    changes: dict[str, Any] = {
        "location": location,
        "properties": properties,
        "snapshots": [_snapshot(each, rewritten) for each in document.get("snapshots") or ()],
        # The older metadata files stay where they are: they name the files of the source.
        "metadata-log": [],
        **{
            key: [
                {**each, "statistics-path": paths.required_target(each["statistics-path"])}
                for each in document.get(key) or ()
            ]
            for key in ("statistics", "partition-statistics")
        },
    }
    kept = {key: value for key, value in changes.items() if key in document}
    return RewrittenMetadata({**document, **kept}, tuple(notes))


def encode_metadata(document: Mapping[str, Any], *, compressed: bool) -> tuple[str, bytes]:
    """Return the name and the content of a metadata file; equal documents have equal names."""
    content = json.dumps(document, ensure_ascii=False).encode()
    identity = uuid.UUID(bytes=hashlib.sha256(content).digest()[:16], version=4)
    if compressed:
        return f"00000-{identity}.gz.metadata.json", gzip.compress(content, mtime=0)
    return f"00000-{identity}.metadata.json", content


def _snapshot(
    snapshot: Mapping[str, Any], rewritten: Mapping[str, WrittenFile]
) -> Mapping[str, Any]:
    changes: dict[str, Any] = {}
    if snapshot.get("manifest-list"):
        changes["manifest-list"] = rewritten[normal_path(snapshot["manifest-list"])].path
    if snapshot.get("manifests"):
        manifests = snapshot["manifests"]
        changes["manifests"] = [rewritten[normal_path(path)].path for path in manifests]
    return {**snapshot, **changes}


def _properties(properties: Mapping[str, str], paths: PathMap) -> tuple[dict[str, str], list[str]]:
    mapped, notes = dict(properties), []
    for key in PATH_PROPERTIES:
        if key not in properties:
            continue
        directory = paths.directory(properties[key])
        if directory is None:
            del mapped[key]
            notes.append(f"the property {key} is left out: {properties[key]} is not moved")
        else:
            mapped[key] = directory
    return mapped, notes
