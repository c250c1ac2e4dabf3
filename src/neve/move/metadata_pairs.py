"""A moved table's metadata beside its source's: all but the paths must be equal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neve.lake.metadata_json import MetadataJson
from neve.move.paths import below, normal_path

TargetPath = Callable[[str], "str | None"]

# Where writers put new files.
PATH_PROPERTIES = frozenset(
    f"write.{kind}.path" for kind in ("data", "metadata", "object-storage", "folder-storage")
)
_SNAPSHOT_PATHS = frozenset(("manifest-list", "manifests"))
STATISTICS = ("statistics", "partition-statistics")
# Compared apart, or the target's own.
_PATHS = frozenset(("location", "metadata-log", "snapshots", "properties", *STATISTICS))


@dataclass(frozen=True)
class Defect:
    """What is wrong with a file of the target."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def compare_documents(
    source: MetadataJson, target: MetadataJson, target_path: TargetPath
) -> Iterator[Defect]:
    """Yield what of the target's metadata is not the source's.

    Args:
        target_path: where a file that is copied as it is goes.
    """

    def defect(reason: str) -> Defect:
        return Defect(target.metadata_location, reason)

    for key in (source.document.keys() | target.document.keys()) - _PATHS:
        if source.document.get(key) != target.document.get(key):
            yield defect(f"{key} is not the source's")
    for snapshot_id in sorted(source.snapshots.keys() | target.snapshots.keys()):
        theirs, ours = source.snapshots.get(snapshot_id), target.snapshots.get(snapshot_id)
        if theirs is None or ours is None:
            side = "source" if theirs is None else "target"
            yield defect(f"the {side} has no snapshot {snapshot_id}")
        elif _without(theirs, _SNAPSHOT_PATHS) != _without(ours, _SNAPSHOT_PATHS):
            yield defect(f"snapshot {snapshot_id} is not the source's")
    if _without(source.properties, PATH_PROPERTIES) != _without(target.properties, PATH_PROPERTIES):
        yield defect("its properties are not the source's")
    for name in sorted(PATH_PROPERTIES & target.properties.keys()):
        if not is_below(target.location, target.properties[name]):
            yield defect(f"{name} is {target.properties[name]}")
    yield from _compare_statistics(source, target, target_path)


def is_below(location: str, path: str) -> bool:
    """Tell whether a path is a directory, or lies below it."""
    is_itself = normal_path(path).rstrip("/") == normal_path(location).rstrip("/")
    return is_itself or below(location, path) is not None


def statistics_files(metadata: MetadataJson) -> Iterator[tuple[str, int | None]]:
    """Yield the path and the recorded length of each statistics file."""
    for key in STATISTICS:
        for file in metadata.document.get(key) or ():
            yield file["statistics-path"], file.get("file-size-in-bytes")


def _compare_statistics(
    source: MetadataJson, target: MetadataJson, target_path: TargetPath
) -> Iterator[Defect]:
    for key in STATISTICS:
        expected = [
            {**file, "statistics-path": target_path(file["statistics-path"])}
            for file in source.document.get(key) or ()
        ]
        if expected != list(target.document.get(key) or ()):
            yield Defect(target.metadata_location, f"its {key} are not the source's")


def _without(values: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in names}
