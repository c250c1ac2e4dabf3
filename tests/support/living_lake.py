"""A lake with everything at work at once: a service, senders, changes, readers and a follower.

Each works on a thread of its own until it is asked to stop. What one of them sees and must not see
fails the test. The service is a process of its own, which can be killed at any moment. Where the
lake is, and where its service runs Spark, is told by a `Place`.

Upkeep has all its work to do meanwhile: the tables have a past, records come for hours that are
over, and files that nobody needs lie among files that look as old and are needed.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from neve.config import Settings
from neve.lake.compaction import REWRITE_ID
from neve.signals import Signal
from tests.support.command import NEVE
from tests.support.leftovers import (
    age,
    committed_files,
    local_path,
    plant,
    tables_of,
    unreferenced_files,
)
from tests.support.living_past import give_past
from tests.support.merging import Mirrored, event
from tests.support.otlp_bodies import message
from tests.support.process import Process, free_port
from tests.support.scraping import Scraped
from tests.support.servers import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    import neve.api

Rows = Counter[str]

# Records of a request, and rows of the mirror that every wave of changes updates.
RECORDS, KEYS = 3, 200
# Requests that are written before the service comes, each an hour after the other.
FORMER_REQUESTS = 2
MOST_READS = 5
# Of a table at rest: fewer than twenty are not worth a commit, some have a tag or a reader.
MOST_KEPT = 30
START_SECONDS = 90
DAY_SECONDS = 86_400
LOGS = "otel.logs"
# Upkeep at every turn: versions go as soon as readers may be done with them. One version an hour
# and a day stays, as by default. Files that nobody needs go from the tables of others, too.
EAGER_UPKEEP = {
    "interval": "1s",
    "reader_grace": "8s",
    "retain": "8s",
    "retain_min": 2,
    "orphan_interval": "2s",
    "orphan_age": "1d",
    "min_small_files": 2,
    "deleted_rows_share": 0.01,
    "tables": {"*": {"remove_orphans": True}},
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
        self.left = 0
        # Versions of `main` that somebody came upon, by table and id.
        self.versions: dict[str, dict[int, Snapshot]] = {table: {} for table in self.kept}
        # Tags that upkeep owes, by table, and the rows of the version that each must name.
        self.owed: dict[str, dict[str, Rows]] = {}
        # Files that nobody needs: old enough to go, and as young as those of a running commit.
        self.old: set[Path] = set()
        self.young: set[Path] = set()
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

    @property
    def kept(self) -> tuple[str, str]:
        """The tables whose records and rows are known."""
        return LOGS, self.mirrored.mirror

    def make_past(self) -> None:
        """Write what was written hours ago, by this process alone."""
        with self.lake.writer() as writer:
            for _ in range(FORMER_REQUESTS):
                name = self._next_name()
                assert writer.write_request(Signal.LOGS, self._request(name)).is_kept
                self.acknowledged.append(name)
        self.change()
        assert self.mirrored.merge().error is None
        for table in self.kept:
            tags = give_past(self.lake, table)
            self.owed[table] = {tag: self._rows(table, version) for tag, version in tags.items()}
        # A follower begins with the first version, before that expires.
        self.follow()

    @contextmanager
    def serving(self) -> Iterator[None]:
        self._age()
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
        """Kill the service, and start it on a lake that looks two days older.

        What it left behind looks as old only if no version names it when the next service runs: a
        commit that was on its way may have come to the catalog by then.
        """
        self.service.kill()
        left = self._left_by_service()
        self._age()
        self.start()
        left &= self._left_by_service()
        age(left)
        self.old |= left
        self.left += len(left)

    def _age(self) -> None:
        """Let what versions name look old, and leave old and young files that none names."""
        tables = self._tables_of_service()
        for table in tables:
            age(committed_files(table, self.place.path))
            old = plant(table, self.place.path)
            age(old)
            self.old |= old
            self.young |= plant(table, self.place.path)

    def _left_by_service(self) -> set[Path]:
        catalog, path_of = self.lake.catalog(), self.place.path
        for _ in range(MOST_READS):
            # What expires meanwhile cannot be read.
            with suppress(FileNotFoundError):
                left = unreferenced_files(catalog, path_of, self._tables_of_service())
                return left - self.old - self.young
        raise AssertionError("versions expire faster than they can be read")

    def _tables_of_service(self) -> list[Table]:
        """Load the tables that nobody else writes files of: not the changelog, not the copy."""
        others = {self.mirrored.changelog, self.copy}
        return [
            table
            for table in tables_of(self.lake.catalog())
            if ".".join(table.name()) not in others
        ]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("log-*")))

    # What others do meanwhile.

    def send(self) -> None:
        """Send one request until it is acknowledged, or give it up when nobody listens."""
        name = self._next_name()
        body = self._request(name)
        headers = {"content-type": "application/x-protobuf"}
        address = ("127.0.0.1", self.otlp_port)
        with (
            suppress(OSError, http.client.HTTPException),
            closing(http.client.HTTPConnection(*address, timeout=10)) as connection,
        ):
            connection.request("POST", Signal.LOGS.http_path, body, headers)
            if connection.getresponse().status == 200:
                self.acknowledged.append(name)

    def _next_name(self) -> str:
        return f"request {len(self.acknowledged)}"

    def _request(self, name: str) -> bytes:
        """Return a request with a record of now, and one of each of the days before."""
        request = message(Signal.LOGS, name, RECORDS)
        today = time.time() // DAY_SECONDS * DAY_SECONDS
        hour = len(self.acknowledged) % 12
        for days, record in enumerate(request.resource_logs[0].scope_logs[0].log_records):
            if days:
                at = today - days * DAY_SECONDS + hour * 3600
                record.time_unix_nano = int(at) * 10**9
        return request.SerializeToString(deterministic=True)

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
        return Counter(row["body"] for row in self._scan(LOGS, ("body",)))

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

    # What upkeep has done meanwhile.

    def debts(self) -> list[str]:
        """Return what upkeep should have done, and has not."""
        debts = []
        for table in self.kept:
            present = {each.snapshot_id for each in self._load(table).metadata.snapshots}
            versions = self.versions[table]
            kept = len(versions.keys() & present)
            if kept == len(versions):
                debts.append(f"no version of {table} has expired")
            if kept > MOST_KEPT:
                debts.append(f"{kept} versions of {table} are kept")
            if not any(each.summary.get(REWRITE_ID) for each in versions.values()):
                debts.append(f"no file of {table} was rewritten")
            if self.kept_rows(table) != self.owed[table]:
                debts.append(f"{table} has other tags than {', '.join(self.owed[table])}")
        left = sum(path.exists() for path in self.old)
        return [*debts, f"{left} of {len(self.old)} old files are there"] if left else debts

    def kept_rows(self, table: str) -> dict[str, Rows]:
        """Return the rows of the versions that upkeep owes, as far as there are tags."""
        refs = self._load(table).metadata.refs
        tags = self.owed[table].keys() & refs.keys()
        return {tag: self._rows(table, refs[tag].snapshot_id) for tag in tags}

    def _rows(self, table: str, version: int) -> Rows:
        scanned = self._load(table).scan(snapshot_id=version).to_arrow()
        return Counter(map(repr, scanned.to_pylist()))

    def _load(self, name: str) -> Table:
        """Load a table, and note the versions of its `main`."""
        table = self.lake.catalog().load_table(name)
        if name in self.versions:
            by_id = {each.snapshot_id: each for each in table.metadata.snapshots}
            for entry in table.metadata.snapshot_log:
                if entry.snapshot_id in by_id:
                    self.versions[name][entry.snapshot_id] = by_id[entry.snapshot_id]
        return table

    def _scan(self, table: str, columns: tuple[str, ...] = ("*",)) -> list[dict[str, Any]]:
        try:
            scanned = self._load(table).scan(selected_fields=columns)
        except NoSuchTableError:
            return []
        return scanned.to_arrow().to_pylist()
