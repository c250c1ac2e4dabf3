"""The files of a table, as a move sees them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
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
class Tally:
    """The live entries of manifests, each manifest once, and the records of their files."""

    data_files: int = 0
    rows: int = 0
    delete_files: int = 0
    deletes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.data_files + other.data_files,
            self.rows + other.rows,
            self.delete_files + other.delete_files,
            self.deletes + other.deletes,
        )

    def __str__(self) -> str:
        return (
            f"{self.rows} rows in {self.data_files} data files and "
            f"{self.deletes} deletes in {self.delete_files} files of deletes"
        )


def tally_of(records: Sequence[tuple[bool, int]]) -> Tally:
    """Count live entries: whether each is of data, and how many records it has."""
    rows = [count for is_data, count in records if is_data]
    deletes = [count for is_data, count in records if not is_data]
    return Tally(len(rows), sum(rows), len(deletes), sum(deletes))


@dataclass(frozen=True)
class WrittenFile:
    """A file at the target: where it is, how long it is."""

    path: str
    size: int
