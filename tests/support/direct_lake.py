"""An embedded lake that is written to directly, and whose catalog can be away."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sqlite3
from collections import Counter
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pyarrow as pa
import pyiceberg.catalog.sql  # noqa: F401 - for the server of forks, which imports for all

import neve
from neve import failpoints
from neve.direct import Writer
from neve.direct.deadline import Deadline
from neve.direct.recover import recover
from neve.direct.recovery import RecoveryStore
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.telemetry.schemas import SCHEMAS
from tests.support.lakes import sqlite_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyiceberg.table import Table

    from neve.config import Settings
    from neve.direct import TableResult
    from neve.direct.recover import RecoveryReport

DAY = datetime(2026, 11, 16, 12, tzinfo=timezone.utc)
NEXT_DAY = datetime(2026, 11, 17, 12, tzinfo=timezone.utc)
_PROCESS_SECONDS = 60


def logs(name: str, times: Sequence[datetime] = (DAY,)) -> pa.Table:
    """Return a row of `logs` for each time."""
    rows = [{"timestamp": time, "received_at": time, "body": name} for time in times]
    return pa.Table.from_pylist(rows, SCHEMAS["logs"])


class DirectLake:
    """Accepts what is not confirmed."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "catalog.db"
        # Locked is away, as soon as nobody waits for the lock.
        address = {"uri": f"sqlite:///{self.file}?timeout=0.01"}
        settings = sqlite_settings(directory, properties=address)
        direct = settings.direct.model_copy(
            update={
                "when_unavailable": "accept",
                "recovery": str(directory / "new" / "recovery"),
            }
        )
        self.settings: Settings = settings.model_copy(update={"direct": direct})
        self.records = directory / "new" / "recovery"
        self.acknowledged = directory / "acknowledged"
        self.is_away = False

    @contextmanager
    def away(self) -> Iterator[None]:
        """Have the catalog answer nobody."""
        connection = sqlite3.connect(self.file, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        self.is_away = True
        try:
            yield
        finally:
            self.is_away = False
            connection.close()

    def send(self, writer: Writer, name: str, times: Sequence[datetime] = (DAY,)) -> TableResult:
        """Write rows; if they are acknowledged, remember that."""
        # A table that is known, and a catalog that is away: it is given up after a moment.
        deadline = Deadline.after(0.3) if self.is_away else None
        result = writer.write_and_commit("logs", None, logs(name, times), deadline=deadline)
        if result.is_kept:
            with self.acknowledged.open("a") as file:
                file.writelines(f"{name}\n" for _ in times)
        return result

    def leave_record(self, name: str, times: Sequence[datetime] = (DAY,)) -> Path:
        """Have a request be accepted whose commit never happened; return its record."""
        with Writer.open(self.settings) as writer:
            self.send(writer, "before")
            with self.away():
                result = self.send(writer, name, times)
        assert (result.committed, result.is_kept) == (False, True)
        return self.records / str(result.recovery_record).rpartition("/")[2]

    def impatient(self) -> Settings:
        """Return settings with which a commit is given up after a moment."""
        direct = self.settings.direct.model_copy(update={"deadline_seconds": 0.3})
        return self.settings.model_copy(update={"direct": direct})

    def recover(self, *, dry_run: bool = False) -> list[RecoveryReport]:
        with neve.open(self.settings) as lake:
            return lake.recover(dry_run=dry_run)

    def table(self) -> Table:
        with neve.open(self.settings) as lake:
            return lake.catalog().load_table("otel.logs")

    def rows(self) -> Counter[str]:
        return Counter(self.table().scan().to_arrow()["body"].to_pylist())

    def acknowledged_rows(self) -> Counter[str]:
        return Counter(self.acknowledged.read_text().splitlines())

    def store(self) -> RecoveryStore:
        profile = profile_named(self.settings, DEFAULT_CATALOG)
        return RecoveryStore(profile, self.settings.direct.recovery)


def run_until_killed(work: Callable[[Path], None], directory: Path, failpoint: str) -> int:
    """Do work in a process that dies at a failpoint; return its exit status."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_killed, args=(work, directory, failpoint))
    process.start()
    process.join(_PROCESS_SECONDS)
    assert process.exitcode is not None, "it does not end"
    return process.exitcode


def _killed(work: Callable[[Path], None], directory: Path, failpoint: str) -> None:
    os.environ[failpoints.ENVIRONMENT_VARIABLE] = failpoint
    importlib.reload(failpoints)  # it looks at the environment once, as every process does
    work(directory)


def send_two(directory: Path) -> None:
    lake = DirectLake(directory)
    with Writer.open(lake.settings) as writer:
        lake.send(writer, "first")
        lake.send(writer, "second")


def send_second_while_away(directory: Path) -> None:
    lake = DirectLake(directory)
    with Writer.open(lake.settings) as writer:
        lake.send(writer, "first")
        with lake.away():
            lake.send(writer, "second")


def recover_all(directory: Path) -> None:
    recover(DirectLake(directory).settings)
