"""A lake with everything at work at once: a service, senders, changes, readers and a follower.

Each works on a thread of its own until it is asked to stop. What one of them sees and must not see
fails the test. The service is a process of its own, which can be killed at any moment. Where the
lake is, and where its service runs Spark, is told by a `Place`.
"""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from neve.config import Settings
from neve.signals import Signal
from tests.support.command import NEVE
from tests.support.leftovers import local_path
from tests.support.merging import Mirrored, event
from tests.support.otlp_bodies import protobuf
from tests.support.process import Process, free_port
from tests.support.scraping import Scraped
from tests.support.servers import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    import neve.api

# Records of a request, and rows of the mirror that every wave of changes updates.
RECORDS, KEYS = 3, 200
START_SECONDS = 90
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


@dataclass(frozen=True)
class Place:
    """Where a lake is, and what its service is told besides.

    Args:
        buckets: the directory that an object store serves, a directory for each bucket.
        buffer: where the service buffers; None: in the test's directory.
        spark: the service's own section, where it has another Spark than the test.
    """

    settings: Settings
    buckets: Path | None = None
    buffer: str | None = None
    spark: Mapping[str, Any] | None = None

    def path(self, location: str) -> Path:
        """Return where a file of the lake is on this disk."""
        parts = urlsplit(location)
        if parts.scheme.startswith("s3"):
            assert self.buckets is not None, f"{location} is in no store of this place"
            return self.buckets / parts.netloc / unquote(parts.path).lstrip("/")
        return local_path(location)

    def environment(self) -> dict[str, str]:
        """Return what the service needs and its configuration must not have."""
        secret = self.settings.storage.secret_access_key
        variable = "NEVE_STORAGE__SECRET_ACCESS_KEY"
        return {variable: secret.get_secret_value()} if secret else {}


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

    def __init__(self, lake: neve.api.OpenLake, directory: Path, place: Place) -> None:
        self.lake = lake
        self.directory = directory
        self.place = place
        self.mirrored = Mirrored(lake)
        self.otlp_port = free_port()
        self.observed = Scraped(free_port())
        self.acknowledged: list[str] = []
        self.waves = 0
        self.reads = 0
        self.starts = 0
        self.config = self.mirrored.write_config(
            directory / "neve.yaml",
            buffer={"location": place.buffer or str(directory / "buffer"), "seal_seconds": 0.2},
            consolidate={"trigger_seconds": 0.2},
            merge={"interval": 0.2},
            receive={
                "http": f"127.0.0.1:{self.otlp_port}",
                "grpc": f"127.0.0.1:{free_port()}",
            },
            observe={"http": f"127.0.0.1:{self.observed.port}"},
            upkeep=EAGER_UPKEEP,
            **({"spark": dict(place.spark)} if place.spark else {}),
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
            environment={**SHORT_LIVED_JAVA, **self.place.environment()},
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
        self.reads += 1

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
