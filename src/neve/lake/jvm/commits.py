"""What Iceberg has no SQL for: one commit of rows and deletion vectors; statistics files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from neve.lake.jvm.content_file_loop import ContentFileLoop
from neve.lake.jvm.tables import active
from neve.lake.paths import local_path


@dataclass(frozen=True)
class StatisticsFile:
    """A Puffin file that belongs to a snapshot."""

    snapshot_id: int
    path: str
    size: int
    footer_size: int


class RowDelta:
    """Rows and deletion vectors as a snapshot that exists in memory only, until it is sent.

    Everything raises what Java raises.
    """

    def __init__(self, session: SparkSession, table: str) -> None:
        self._iceberg: Any = session._jvm.org.apache.iceberg  # type: ignore[union-attr]
        self._gateway: Any = session.sparkContext._gateway
        loaded = _load(session, table)
        self._operations = loaded.operations()
        self._specs = loaded.specs()
        self._is_local = local_path(loaded.location()) is not None
        self._transaction = loaded.newTransaction()
        # What the transaction begins with: making it has read the catalog.
        self._base = self._operations.current()

    @property
    def base_snapshot_id(self) -> int | None:
        """The snapshot `main` is at."""
        return _snapshot_id(self._base.currentSnapshot())

    def prepare(
        self, data_files: str, vectors: str, replaced: str, emptied: str, summary: Mapping[str, str]
    ) -> tuple[int, int, int]:
        """Write manifests; return the snapshot's id, and how many vectors and data files go."""
        delta = self._transaction.newRowDelta()
        if self._is_local:
            # Iceberg waits for its threads in steps of ten milliseconds, which is longer than
            # reading or writing a manifest on a disk takes.
            guava = self._iceberg.relocated.com.google.common
            delta.scanManifestsWith(guava.util.concurrent.MoreExecutors.newDirectExecutorService())
        files = ContentFileLoop(self._gateway, delta, self._specs)
        files.add_rows(data_files)
        files.add_deletes(vectors)
        files.remove_deletes(replaced)
        files.remove_rows(emptied)
        for key, value in summary.items():
            delta.set(key, value)
        if self.base_snapshot_id is not None:
            # Else vectors are compared with those of the whole history.
            delta.validateFromSnapshot(self.base_snapshot_id)
        delta.commit()
        snapshot = self._transaction.table().currentSnapshot()
        vectors_gone, files_gone = (
            int(snapshot.summary().get(name) or 0) for name in ("removed-dvs", "deleted-data-files")
        )
        return snapshot.snapshotId(), vectors_gone, files_gone

    def send(self, properties: Mapping[str, str], statistics: StatisticsFile | None) -> None:
        """Swap the table's metadata, in one attempt: what changed meanwhile is a failed commit.

        Not by the transaction itself, which would try again on a base that nobody looked at.
        """
        if properties:
            update = self._transaction.updateProperties()
            for key, value in properties.items():
                update.set(key, value)
            update.commit()
        if statistics:
            registered = _java_statistics(self._iceberg, self._gateway, statistics)
            self._transaction.updateStatistics().setStatistics(registered).commit()
        changed = self._transaction.table().operations().current()
        self._operations.commit(self._base, changed)

    def is_applied(self, snapshot_id: int) -> bool:
        """Tell whether the table has a snapshot now."""
        return self._operations.refresh().snapshot(snapshot_id) is not None


def set_statistics(
    session: SparkSession, table: str, statistics: StatisticsFile, properties: Mapping[str, str]
) -> None:
    """Register a statistics file and set table properties, in one swap and one attempt."""
    iceberg: Any = session._jvm.org.apache.iceberg  # type: ignore[union-attr]
    gateway: Any = session.sparkContext._gateway
    operations = _load(session, table).operations()
    base = operations.refresh()
    update = iceberg.TableMetadata.buildFrom(base)
    update.setStatistics(_java_statistics(iceberg, gateway, statistics))
    values = gateway.jvm.java.util.HashMap()
    for key, value in properties.items():
        values.put(key, value)
    update.setProperties(values)
    operations.commit(base, update.build())


def _load(session: SparkSession, table: str) -> Any:
    iceberg: Any = session._jvm.org.apache.iceberg  # type: ignore[union-attr]
    with active(session):
        return iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)


def _java_statistics(iceberg: Any, gateway: Any, statistics: StatisticsFile) -> Any:
    # No blob is listed: PyIceberg 0.12 refuses whole tables for a type of blob it does not know.
    return iceberg.GenericStatisticsFile(
        statistics.snapshot_id,
        statistics.path,
        statistics.size,
        statistics.footer_size,
        gateway.jvm.java.util.ArrayList(),
    )


def _snapshot_id(snapshot: Any) -> int | None:
    return None if snapshot is None else int(snapshot.snapshotId())
