"""What a table should look like: sizes of files, and from when on something is rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.limits import MIB

if TYPE_CHECKING:
    from neve.config import Settings

_MAX_GROUP_BYTES = 1024 * MIB


@dataclass(frozen=True)
class CompactionPolicy:
    """When files of a table are rewritten, and into what.

    Args:
        enabled: None: it depends on the kind of the table.
        min_files: fewer small files are left as they are.
        delete_ratio: a file is rewritten when this share of its rows is deleted.
        settle_seconds: an hour is closed so long after its end; what comes later is late.
        max_group_bytes: of files that are rewritten together: what is lost when the commit is.
        max_delete_files: so many position delete files too many are left alone.
        zorder: columns that closed days are ordered by, along a Z curve, instead of the sort order.
        statistics: columns of which distinct values are counted; none: no statistics are computed.
    """

    enabled: bool | None = None
    target_file_bytes: int = 128 * MIB
    small_bytes: int = 32 * MIB
    min_files: int = 5
    delete_ratio: float = 0.2
    settle_seconds: float = 600.0
    max_group_bytes: int = _MAX_GROUP_BYTES
    max_manifests: int = 100
    max_delete_files: int = 20
    zorder: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()

    def files_for(self, size: int) -> int:
        """Return how many files of the target size hold so many bytes."""
        return max(1, -(-size // self.target_file_bytes))


def compaction_policy(settings: Settings, table: str) -> CompactionPolicy:
    """Return what the configuration says of a table."""
    upkeep = settings.upkeep
    chosen = upkeep.policy_of(table)
    target = chosen.target_file_bytes or upkeep.target_file_bytes
    return CompactionPolicy(
        chosen.compact,
        target,
        min(upkeep.small_file_bytes, target),
        upkeep.min_small_files,
        upkeep.deleted_rows_share,
        zorder=chosen.zorder,
        statistics=chosen.statistics,
    )
