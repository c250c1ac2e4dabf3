"""Manifests and manifest lists with other paths, every other byte as it was. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neve.errors import CorruptionError
from neve.lake.avro_files import AvroRecords, SeenRecords, Values, read_header
from neve.lake.manifests import DELETED, Content
from neve.move.files import WrittenFile
from neve.move.inventory import MANIFEST_LENGTH, MANIFEST_PATH
from neve.move.paths import PathMap, normal_path
from neve.move.position_deletes import PATH_FIELD, RewrittenDeletes

_STATUS, _CONTENT = {0: "status"}, {134: "content"}
_FILE_PATH = {100: "file_path"}
_OF_DELETES = {
    104: "file_size_in_bytes",
    108: "column_sizes",
    125: "lower_bounds",
    128: "upper_bounds",
    132: "split_offsets",
    143: "referenced_data_file",
}


@dataclass(frozen=True)
class TargetDeletes:
    """A file of deletes at the target.

    Args:
        rewritten: of position deletes, what the manifest says of them; None of deletion vectors.
    """

    file: WrittenFile
    rewritten: RewrittenDeletes | None = None


def rewrite_manifest(
    content: bytes, path: str, paths: PathMap, deletes: Mapping[str, TargetDeletes]
) -> bytes:
    """Return a manifest that names the files at the target.

    Args:
        path: for messages.
        deletes: the rewritten files of deletes, by their normal path. One that only DELETED
            entries name is not among them: it may not exist any more.

    Raises:
        CorruptionError: it is damaged, or names deletes that were not rewritten.
        UnsupportedError: it names a live file that has no place at the target.
    """
    read = _STATUS | _CONTENT
    if read_header(content, path).metadata.get("content") != b"deletes":
        manifest = AvroRecords(content, path, read=read, edit=_FILE_PATH)
        return manifest.edit(lambda entry: {"file_path": _target(entry, paths)})
    manifest = AvroRecords(content, path, read=read, edit=_FILE_PATH | _OF_DELETES)
    return manifest.edit(lambda entry: _deletes_entry(entry, path, paths, deletes))


def rewrite_manifest_list(
    content: bytes,
    path: str,
    manifests: Mapping[str, WrittenFile],
    seen: SeenRecords[bytes] | None = None,
) -> bytes:
    """Return a manifest list that names rewritten manifests, with their lengths.

    Args:
        manifests: by the normal path of the manifest that each takes the place of.
        seen: lines of other lists of the same table.
    """

    def change(line: Values) -> Values:
        manifest = manifests[normal_path(line["manifest_path"])]
        return {"manifest_path": manifest.path, "manifest_length": manifest.size}

    lines = AvroRecords(content, path, read={}, edit=MANIFEST_PATH | MANIFEST_LENGTH)
    return lines.edit(change, seen)


def _target(entry: Values, paths: PathMap) -> str:
    if entry["status"] == DELETED:
        # The file may be anywhere, and nobody reads it.
        return paths.target(entry["file_path"]) or entry["file_path"]
    return paths.required_target(entry["file_path"])


def _deletes_entry(
    entry: Values, manifest: str, paths: PathMap, deletes: Mapping[str, TargetDeletes]
) -> Values:
    if entry["content"] == Content.EQUALITY_DELETES:
        return {"file_path": _target(entry, paths)}
    target = deletes.get(normal_path(entry["file_path"]))
    if target is None and entry["status"] != DELETED:
        raise CorruptionError(f"{manifest} names {entry['file_path']}, which was not rewritten")
    changes: Values = {}
    data_file = entry.get("referenced_data_file")
    if data_file:
        changes["referenced_data_file"] = paths.target(data_file) or data_file
    if target is None:
        changes["file_path"] = _target(entry, paths)
    else:
        changes["file_path"] = target.file.path
        changes["file_size_in_bytes"] = target.file.size
    if target is None or target.rewritten is None:
        return changes | _mapped_bounds(entry, paths)
    return changes | _measured(entry, target.rewritten)


def _measured(entry: Values, rewritten: RewrittenDeletes) -> Values:
    """Return what a manifest says of a position-delete file, of the rewritten one."""
    changes = _bounds(entry, rewritten.lower, rewritten.upper)
    if entry.get("column_sizes") is not None:
        changes["column_sizes"] = rewritten.column_sizes and [
            {"key": key, "value": value} for key, value in rewritten.column_sizes.items()
        ]
    if entry.get("split_offsets") is not None:
        changes["split_offsets"] = rewritten.split_offsets
    return changes


def _mapped_bounds(entry: Values, paths: PathMap) -> Values:
    """Map the one data file that bounds name; bounds of several are left out."""
    lower, upper = (
        next((each["value"] for each in entry.get(name) or () if each["key"] == PATH_FIELD), None)
        for name in ("lower_bounds", "upper_bounds")
    )
    if lower is None and upper is None:
        return {}
    data_file = paths.target(lower.decode()) if lower is not None and lower == upper else None
    return _bounds(entry, data_file, data_file)


def _bounds(entry: Values, lower: str | None, upper: str | None) -> Values:
    changes = {}
    for name, bound in (("lower_bounds", lower), ("upper_bounds", upper)):
        if entry.get(name) is not None:
            changes[name] = [
                _with_bound(each, bound)
                for each in entry[name]
                if each["key"] != PATH_FIELD or bound is not None
            ]
    return changes


def _with_bound(each: dict[str, Any], bound: str | None) -> dict[str, Any]:
    if each["key"] != PATH_FIELD or bound is None:
        return each
    return {"key": PATH_FIELD, "value": bound.encode()}
