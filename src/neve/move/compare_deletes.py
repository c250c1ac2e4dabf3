"""Rewritten deletes beside their source's: the same rows of the same files. Pure."""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import dataclass, replace

import pyarrow as pa
from pyroaring import BitMap64

from neve.lake.positions import positions_in
from neve.lake.puffin import BlobMetadata, read_footer
from neve.move.metadata_pairs import TargetPath
from neve.move.paths import normal_path

_DATA_FILE = "referenced-data-file"


@dataclass(frozen=True)
class DeletesPair:
    """A file of position deletes or of deletion vectors, and what took its place."""

    source: str
    target: str
    format: str


def compare_deletes(
    pair: DeletesPair, source: bytes, target: bytes, target_path: TargetPath
) -> str | None:
    """Say how the deletes at the target differ from the source's; None: they do not."""
    if pair.format == "PUFFIN":
        return _compare_vectors(pair, source, target, target_path)
    try:
        return _compare_positions(pair, source, target, target_path)
    except (pa.ArrowException, KeyError) as error:
        return f"it cannot be compared with {pair.source}: {error}"


def _compare_positions(
    pair: DeletesPair, source: bytes, target: bytes, target_path: TargetPath
) -> str | None:
    theirs: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    for path, positions in positions_in(source, pair.source, pair.format).items():
        # Two spellings of a path become one.
        theirs[_mapped(path, target_path)] |= positions
    ours = {
        normal_path(path): positions
        for path, positions in positions_in(target, pair.target, pair.format).items()
    }
    return None if theirs == ours else f"it deletes other rows than {pair.source}"


def _compare_vectors(
    pair: DeletesPair, source: bytes, target: bytes, target_path: TargetPath
) -> str | None:
    footers = [
        read_footer(io.BytesIO(content), len(content), path)
        for content, path in ((source, pair.source), (target, pair.target))
    ]
    theirs, ours = footers
    if source[: len(source) - theirs.size] != target[: len(target) - ours.size]:
        return f"its deletion vectors are not those of {pair.source}"
    expected = [_with_target(blob, target_path) for blob in theirs.blobs]
    actual = [_with_target(blob, lambda path: path) for blob in ours.blobs]
    return None if expected == actual else f"its footer does not say what {pair.source} says"


def _with_target(blob: BlobMetadata, target_path: TargetPath) -> BlobMetadata:
    properties = dict(blob.properties)
    if _DATA_FILE in properties:
        properties[_DATA_FILE] = _mapped(properties[_DATA_FILE], target_path)
    return replace(blob, properties=properties)


def _mapped(path: str, target_path: TargetPath) -> str:
    """Return where a data file goes; one that has no place at the target is not live."""
    return normal_path(target_path(path) or path)
