"""The files of a table, as a move sees them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FileKind(str, Enum):
    """What a file of a table is, and so what a move does with it."""

    DATA = "data"
    EQUALITY_DELETES = "equality deletes"
    POSITION_DELETES = "position deletes"
    DELETION_VECTORS = "deletion vectors"
    STATISTICS = "statistics"
    PARTITION_STATISTICS = "partition statistics"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"

    @property
    def names_paths(self) -> bool:
        """Whether such a file has paths inside, so that it is rewritten and not copied."""
        return self in _REWRITTEN


_REWRITTEN = frozenset(
    {
        FileKind.POSITION_DELETES,
        FileKind.DELETION_VECTORS,
        FileKind.MANIFEST,
        FileKind.MANIFEST_LIST,
    }
)


@dataclass(frozen=True)
class TableFile:
    """A file that the retained snapshots of a table reach.

    Args:
        path: as the metadata spells it.
        size: as the metadata records it; None where it records none (manifest lists).
        format: of data and delete files: PARQUET, AVRO, ORC or PUFFIN.
    """

    path: str
    kind: FileKind
    size: int | None = None
    format: str | None = None


@dataclass(frozen=True)
class WrittenFile:
    """A file at the target: where it is, how long it is."""

    path: str
    size: int
