"""Prove that engines read a moved table before it is registered: PyIceberg always, Spark if asked.

The table is tried in a catalog that nobody else sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.errors import CorruptionError, NeveError
from neve.lake.row_digests import row_digest, session_with
from neve.lake.scratch_catalog import read_some, scratch_table
from neve.move.metadata_pairs import Defect

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.profile import CatalogProfile


@dataclass(frozen=True)
class StoredVersion:
    """A version of a table, and the profile whose storage its files are in."""

    metadata: MetadataJson
    profile: CatalogProfile


@dataclass(frozen=True)
class ReadingCheck:
    """What reading has shown; a note says what could not be tried."""

    defects: tuple[Defect, ...] = ()
    notes: tuple[str, ...] = ()

    def require_readable(self, table: str) -> None:
        """Refuse a copy that an engine does not read as it reads the source."""
        if self.defects:
            raise CorruptionError(
                f"the copy of {table} cannot be used: {self.defects[0]}",
                hint="nothing was registered; run the move again",
            )


def check_pyiceberg(source: StoredVersion, target: StoredVersion) -> ReadingCheck:
    """Open the target in PyIceberg, plan a scan, read the first rows.

    What PyIceberg cannot read of the source either is no defect of the copy.
    """
    failure = _failure(target, is_written=True)
    if failure is None:
        return ReadingCheck()
    if _failure(source, is_written=False) is not None:
        return ReadingCheck(notes=(f"PyIceberg reads neither the source nor the copy: {failure}",))
    return ReadingCheck((Defect(target.metadata.metadata_location, f"PyIceberg: {failure}"),))


def _failure(version: StoredVersion, *, is_written: bool) -> str | None:
    with scratch_table(version.profile, version.metadata, is_written=is_written) as table:
        try:
            read_some(table.load())
        except NeveError as error:
            if error.retryable:
                raise
            return error.message
        # Whatever it is, a reader of the table would meet it, too.
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
    return None


def check_rows(
    lake: Lake,
    source: StoredVersion,
    target: StoredVersion,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> ReadingCheck:
    """Compare all rows of each snapshot on Spark, in any order; row ids of version 3, too.

    Raises:
        NeveError: Spark cannot read one of them.
    """
    metadata = target.metadata
    defects = []
    with (
        scratch_table(source.profile, source.metadata, is_written=False) as before,
        scratch_table(target.profile, metadata) as after,
        session_with(lake, before, after) as session,
    ):
        for number, (snapshot_id, snapshot) in enumerate(metadata.snapshots.items(), 1):
            has_lineage = snapshot.get("first-row-id") is not None
            expected, actual = (
                row_digest(session, table, snapshot_id, with_lineage=has_lineage)
                for table in (before, after)
            )
            if expected != actual:
                reason = (
                    f"the rows of snapshot {snapshot_id} are not the source's "
                    f"({actual.rows} rows, at the source {expected.rows})"
                )
                defects.append(Defect(metadata.metadata_location, reason))
            progress(number, len(metadata.snapshots))
    return ReadingCheck(tuple(defects))
