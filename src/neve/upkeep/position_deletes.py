"""How many position delete files Iceberg's procedure saves. Pure.

It rewrites those of a partition together: into one, or into one for each data file, as the table's
`write.delete.granularity` says. Deletes of data files that are gone go.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neve.lake.manifests import FileEntry
    from neve.lake.metadata_json import MetadataJson

# What Spark takes where the table has no such property is "file".
_GRANULARITY = "write.delete.granularity"
# A partition with fewer delete files is left alone.
FEWEST_FILES = 2


class PositionDeletes:
    """The position delete files of a table; deletion vectors are none."""

    def __init__(self, metadata: MetadataJson) -> None:
        self._is_by_partition = metadata.properties.get(_GRANULARITY) == "partition"
        self._files: dict[Any, int] = defaultdict(int)
        self._partition_of: dict[str, Any] = {}
        self._live: dict[Any, int] = defaultdict(int)

    def add(self, file: FileEntry) -> None:
        if file.is_vector:
            return
        partition = (file.spec_id, file.partition)
        self._files[partition] += 1
        if file.data_file is not None and not self._is_by_partition:
            self._partition_of[file.data_file] = partition

    def see(self, data_file: str) -> None:
        """Take note of a data file of the table, after all delete files."""
        partition = self._partition_of.pop(data_file, None)
        if partition is not None:
            self._live[partition] += 1

    def surplus(self) -> int:
        """Return how many files there are beyond those that a rewrite leaves, at least."""
        return sum(
            files - (1 if self._is_by_partition else self._live[partition])
            for partition, files in self._files.items()
            if files >= FEWEST_FILES
        )
