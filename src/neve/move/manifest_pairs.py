"""A moved table's manifests beside its source's: line by line, entry by entry. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from neve.lake.manifests import DELETED, Content, open_avro
from neve.move.compare_deletes import DeletesPair
from neve.move.metadata_pairs import Defect, TargetPath
from neve.move.paths import normal_path

_PATH, _LENGTH = 500, 501  # field ids of manifest lists
_ENTRY = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
# What tells a file from another one; also of deletes that were rewritten.
_FILE = (
    "content",
    "file_format",
    "partition",
    "record_count",
    "equality_ids",
    "sort_order_id",
    "content_offset",
    "content_size_in_bytes",
    "first_row_id",
)
# Of what is copied as it is: paths apart.
_PATHS = frozenset(("file_path", "referenced_data_file"))


@dataclass(frozen=True)
class ManifestPair:
    """A manifest, and what took its place.

    Args:
        length: as the target's manifest list records it; None: it stands in the metadata itself.
    """

    source: str
    target: str
    length: int | None = None


@dataclass
class ComparedManifest:
    """What a pair of manifests has shown.

    Args:
        copies: live files that were copied as they are: the path at the source, and at the target.
        deletes: live files of deletes that were rewritten.
        sizes: the recorded lengths of all live files, by the path at the target.
        records: of each live entry at the target, whether it is data, and how many records it has.
    """

    copies: list[tuple[str, str]] = field(default_factory=list)
    deletes: list[DeletesPair] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    records: list[tuple[bool, int]] = field(default_factory=list)
    defects: list[Defect] = field(default_factory=list)


def compare_lists(
    source: tuple[str, bytes], target: tuple[str, bytes]
) -> tuple[list[ManifestPair], list[Defect]]:
    """Pair the manifests that two manifest lists name.

    Args:
        source: the path and the content of a manifest list.
    """
    path, pairs, defects = target[0], [], []
    for theirs, ours in zip_longest(_lines(*source), _lines(*target)):
        if theirs is None or ours is None:
            defects.append(Defect(path, "it names more or fewer manifests than the source"))
            break
        if theirs[1] != ours[1]:
            defects.append(Defect(path, f"its line of {ours[0].target} is not the source's"))
        pairs.append(ManifestPair(theirs[0].target, ours[0].target, ours[0].length))
    return pairs, defects


def _lines(path: str, content: bytes) -> Iterator[tuple[ManifestPair, dict[str, Any]]]:
    """Yield each manifest, and all else that its line says."""
    avro = open_avro(content, path)
    names = {each.get("field-id"): each["name"] for each in avro.schema["fields"]}
    path_name, length_name = (
        names.get(_PATH, "manifest_path"),
        names.get(_LENGTH, "manifest_length"),
    )
    for line in avro.records():
        manifest = ManifestPair("", line.pop(path_name), line.pop(length_name))
        yield manifest, line


def compare_manifests(
    pair: ManifestPair,
    source: bytes,
    target: bytes,
    target_path: TargetPath,
    *,
    every_field: bool = False,
) -> ComparedManifest:
    """Compare two manifests entry by entry, in their order.

    Args:
        target_path: where a file that is copied as it is goes.
        every_field: compare statistics, too, of files that were copied as they are.
    """
    compared = ComparedManifest()
    if pair.length is not None and len(target) != pair.length:
        reason = f"it has {len(target)} bytes, and the manifest list says {pair.length}"
        compared.defects.append(Defect(pair.target, reason))
    theirs, ours = open_avro(source, pair.source), open_avro(target, pair.target)
    if theirs.metadata != ours.metadata or theirs.schema != ours.schema:
        compared.defects.append(Defect(pair.target, "its Avro header is not the source's"))
    fields = None if every_field else frozenset((*_FILE, *_PATHS, "file_size_in_bytes"))
    for number, (before, after) in enumerate(
        zip_longest(_entries(theirs, fields), _entries(ours, fields))
    ):
        if before is None or after is None:
            reason = "it has more or fewer entries than the source's"
            compared.defects.append(Defect(pair.target, reason))
            break
        wrong = _compare_entry(before, after, target_path, compared, every_field=every_field)
        if wrong:
            compared.defects.append(Defect(pair.target, f"entry {number}: {wrong}"))
        if after["status"] != DELETED:
            file = after["data_file"]
            compared.records.append((not file.get("content"), file["record_count"]))
    return compared


def _entries(avro: Any, fields: frozenset[str] | None) -> Iterator[dict[str, Any]]:
    return iter(avro.records(None if fields is None else _reduced(avro.schema, fields)))


def _reduced(schema: dict[str, Any], wanted: frozenset[str]) -> dict[str, Any]:
    """Return the schema of entries without most of what a file's entry has: its statistics."""
    fields = []
    for each in schema["fields"]:
        if each["name"] == "data_file":
            inner = [inside for inside in each["type"]["fields"] if inside["name"] in wanted]
            fields.append({**each, "type": {**each["type"], "fields": inner}})
        else:
            fields.append(each)
    return {**schema, "fields": fields}


def _compare_entry(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    target_path: TargetPath,
    compared: ComparedManifest,
    *,
    every_field: bool,
) -> str | None:
    """Say what is wrong with an entry; note its file."""
    if any(before.get(name) != after.get(name) for name in _ENTRY):
        return "its status or its sequence number is not the source's"
    old, new = before["data_file"], after["data_file"]
    is_rewritten = (old.get("content") or 0) == Content.POSITION_DELETES
    names = old.keys() - _PATHS if every_field and not is_rewritten else frozenset(_FILE)
    if different := sorted(name for name in names if old.get(name) != new.get(name)):
        return f"{', '.join(different)} of {new['file_path']} is not the source's"
    if not is_rewritten and old["file_size_in_bytes"] != new["file_size_in_bytes"]:
        return f"the length of {new['file_path']} is not the source's"
    referenced = old.get("referenced_data_file")
    if referenced and not _is_target(referenced, new.get("referenced_data_file"), target_path):
        return f"{new['file_path']} is of data file {new.get('referenced_data_file')}"
    if before["status"] == DELETED:
        return None
    compared.sizes[new["file_path"]] = new["file_size_in_bytes"]
    if is_rewritten:
        file_format = old["file_format"].upper()
        compared.deletes.append(DeletesPair(old["file_path"], new["file_path"], file_format))
    else:
        if not _is_target(old["file_path"], new["file_path"], target_path):
            return f"{new['file_path']} is not where {old['file_path']} goes"
        compared.copies.append((old["file_path"], new["file_path"]))
    return None


def _is_target(source: str, target: str | None, target_path: TargetPath) -> bool:
    expected = target_path(source)
    return None not in (expected, target) and normal_path(expected or "") == normal_path(
        target or ""
    )
