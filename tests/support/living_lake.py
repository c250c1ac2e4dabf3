"""A lake with everything at work at once: a service, senders, changes, readers and a follower.

Each works on a thread of its own until it is asked to stop. What one of them sees and must not see
fails the test. The service is a process of its own, which can be killed at any moment.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from neve.signals import Signal
from tests.support.command import NEVE
from tests.support.merging import Mirrored, event
from tests.support.otlp_bodies import protobuf
from tests.support.process import Process, free_port
from tests.support.scraping import Scraped
from tests.support.servers import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from pyiceberg.table import Table

    import neve.api

# Records of a request, and rows of the mirror that every wave of changes updates.
RECORDS, KEYS = 3, 200
START_SECONDS = 90
DAY_SECONDS = 86_400
# Upkeep at every turn: versions go as soon as readers may be done with them.
EAGER_UPKEEP = {
    "interval": "1s",
    "reader_grace": "8s",
    "retain": "8s",
    "retain_min": 2,
    "keep_hourly": 0,
    "keep_daily": 0,
    "min_small_files": 2,
    "deleted_rows_share": 0.01,
}


class Activities:
    """Threads that repeat a step until they are stopped; the first failure stops all of them."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def repeat(self, step: Callable[[], None], pause_seconds: float) -> None:
        """Repeat a step on a thread of its own, with a pause after each."""

        def run() -> None:
            try:
                while not self.stop.is_set():
                    step()
                    self.stop.wait(pause_seconds)
            except BaseException as error:  # noqa: BLE001 - raised again by `end`
                self.failures.append(error)
                self.stop.set()

        thread = threading.Thread(target=run, name=step.__name__)
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        """Stop all threads, and raise what the first of them failed with."""
        self.stop.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]


class LivingLake:
    """A lake, the service that keeps it, and what is known to be acknowledged."""

    def __init__(self, lake: neve.api.OpenLake, directory: Path, **sections: Any) -> None:
        self.lake = lake
        self.directory = directory
        self.mirrored = Mirrored(lake)
        self.otlp_port = free_port()
        self.observed = Scraped(free_port())
        self.acknowledged: list[str] = []
        self.waves = 0
        self.starts = 0
        self.config = self.mirrored.write_config(
            directory / "neve.yaml",
            buffer={"location": str(directory / "buffer"), "seal_seconds": 0.2},
            consolidate={"trigger_seconds": 0.2},
            merge={"interval": 0.2},
            receive={
                "http": f"127.0.0.1:{self.otlp_port}",
                "grpc": f"127.0.0.1:{free_port()}",
            },
            observe={"http": f"127.0.0.1:{self.observed.port}"},
            upkeep=EAGER_UPKEEP,
            **sections,
        )
        self.service: Process | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.service.kill()

    def start(self) -> None:
        self.starts += 1
        self.service = Process(
            "neve run",
            [NEVE, "--config", self.config, "run"],
            self.directory / f"log-{self.starts}",
            environment=SHORT_LIVED_JAVA,
        )
        self.service.wait_until(lambda: self.observed.is_ready, START_SECONDS)

    def kill_and_start(self) -> None:
        self.service.kill()
        self.start()

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("log-*")))

    # What others do meanwhile.

    def send(self) -> None:
        """Send one request until it is acknowledged, or give it up when nobody listens."""
        name = f"request {len(self.acknowledged)}"
        body = protobuf(Signal.LOGS, name, RECORDS)
        headers = {"content-type": "application/x-protobuf"}
        address = ("127.0.0.1", self.otlp_port)
        with (
            suppress(OSError, http.client.HTTPException),
            closing(http.client.HTTPConnection(*address, timeout=10)) as connection,
        ):
            connection.request("POST", Signal.LOGS.http_path, body, headers)
            if connection.getresponse().status == 200:
                self.acknowledged.append(name)

    def change(self) -> None:
        """Append one wave: all rows get the same new amount; a row comes and one goes."""
        wave = self.waves + 1
        rows = [event("u", wave, key, f"row {key}", wave) for key in range(KEYS)]
        rows.append(event("c", wave, KEYS + wave, "visitor", wave))
        rows.append(event("d", wave, KEYS + wave - 1))
        with suppress(CommitFailedException):
            self.mirrored.append(*rows)
            self.waves = wave

    def read_mirror(self) -> None:
        """Every state of the mirror has one wave, whole."""
        rows = self._scan(self.mirrored.mirror)
        assert len({row["amount"] for row in rows}) <= 1, "two waves are in the mirror"
        assert len(rows) in (0, KEYS + 1), f"{len(rows)} rows are in the mirror"

    def read_logs(self) -> None:
        """No state of the logs has a record twice, or a part of a request."""
        counts = self.log_counts()
        assert not [name for name, count in counts.items() if count > 1], "records are there twice"
        requests = Counter(name.rpartition(" ")[0] for name in counts)
        assert set(requests.values()) <= {RECORDS}, "a request is there in part"

    def log_counts(self) -> Counter[str]:
        return Counter(row["body"] for row in self._scan("otel.logs", ("body",)))

    def acknowledged_counts(self) -> Counter[str]:
        return Counter(f"{name} {n}" for name in self.acknowledged for n in range(RECORDS))

    def follow(self) -> None:
        """Keep a copy of the mirror, as of whichever commit it has come to."""
        if not self.lake.catalog().table_exists(self.mirrored.mirror):
            return
        self.lake.follow(self.mirrored.mirror, "copy").to_table(self.copy, keys=["id"])

    @property
    def copy(self) -> str:
        return f"{self.mirrored.namespace}.copy"

    def copied(self) -> dict[int, dict[str, Any]]:
        return {row["id"]: row for row in self._scan(self.copy)}

    def _scan(self, table: str, columns: tuple[str, ...] = ("*",)) -> list[dict[str, Any]]:
        try:
            scanned = self.lake.catalog().load_table(table).scan(selected_fields=columns)
        except NoSuchTableError:
            return []
        return scanned.to_arrow().to_pylist()

    # What is left of the work of all of them.

    def tables(self) -> list[Table]:
        catalog = self.lake.catalog()
        return [
            catalog.load_table(identifier)
            for namespace in catalog.list_namespaces()
            for identifier in catalog.list_tables(namespace)
        ]

    def unreferenced(self) -> set[Path]:
        """Return the files below the tables' locations that no version of a table names."""
        stored: set[Path] = set()
        needed: set[Path] = set()
        for table in self.tables():
            location = _path(table.location())
            stored |= {path for path in location.rglob("*") if path.is_file()}
            needed |= set(map(_path, _files_of(table)))
        return {path for path in stored - needed if path.suffix in (".parquet", ".avro", ".puffin")}

    def age_files(self) -> None:
        """Let all files look two days old."""
        then = time.time() - 2 * DAY_SECONDS
        for table in self.tables():
            for path in _path(table.location()).rglob("*"):
                os.utime(path, (then, then))


def _path(location: str) -> Path:
    return Path(unquote(urlsplit(location).path))


def _files_of(table: Table) -> Iterator[str]:
    yield table.metadata_location
    for statistics in table.metadata.statistics:
        yield statistics.statistics_path
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io):
                yield entry.data_file.file_path
