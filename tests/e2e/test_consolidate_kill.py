"""Acknowledged means kept, once: consolidation really killed at every step, and run again."""

from __future__ import annotations

import signal
import uuid

import pyarrow as pa
import pytest
import yaml

import neve
from neve import failpoints
from neve.config import load
from neve.publish.staged_batches import release
from neve.publish.staged_list import list_staged
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import postgres_settings, rest_settings, sqlite_settings
from tests.support.readers import read_with_duckdb, read_with_pyiceberg
from tests.support.worker import run_release, run_worker

# Retiring is the buffer's step, and only consolidation takes it.
ROOMS = ("consolidate.", "publish.", "buffer.retire_")
POINTS = [name for name in failpoints.POINTS if name.startswith(ROOMS)]
# A person's `neve staged publish`, after an audit held everything.
RELEASING = {"publish.release_ready", "publish.released"}
# The audit that it takes to reach a point.
AUDITS = {
    "publish.held": "hold",
    "publish.rejected_staged": "set_aside",
    "publish.clean_staged": "set_aside",
    "publish.rejected_ready": "set_aside",
    "publish.rejected_published": "set_aside",
}
CATALOGS = ("sqlite", "postgres", "rest")
# Of the others, for the ordinary run; REST is tried there with faults, which is harder.
ESSENCE = {("postgres", "publish.ready")}
# What each table is told apart by, and what the requests sent below give it.
EXPECTED = {
    "logs": ("body", ["a 0", "a 1", "b 0", "b 1"]),
    "metrics_gauge": ("metric_name", ["m 0", "m 1"]),
}


class Killing:
    """A lake with acknowledged requests in its buffer, and workers that die on it."""

    def __init__(self, directory, settings):
        self.namespace = f"kill_{uuid.uuid4().hex[:12]}"
        self.config = directory / "neve.yaml"
        document = settings.model_dump(mode="json", exclude_none=True, include={"catalog", "spark"})
        document["buffer"] = {"location": str(directory / "buffer")}
        document["telemetry"] = {"namespace": self.namespace}
        if settings.storage.secret_access_key:
            storage = settings.storage.model_dump(exclude_none=True)
            storage["secret_access_key"] = settings.storage.secret_access_key.get_secret_value()
            document["storage"] = storage
        self.config.write_text(yaml.safe_dump(document))
        self.lake = neve.open(load(self.config).settings)
        self.bench = Bench(self.lake, directory, namespace=self.namespace)

    def move_main(self):
        """Let another writer commit to the table that has a batch staged, without a row."""
        for staged in list_staged(self.lake):
            table = self.lake.catalog().load_table(staged.table)
            table.append(pa.Table.from_batches([], table.schema().as_arrow()))

    def check(self):
        present = {".".join(name) for name in self.lake.catalog().list_tables(self.namespace)}
        for table, (column, expected) in EXPECTED.items():
            name = f"{self.namespace}.{table}"
            for read in (read_with_pyiceberg, read_with_duckdb):
                rows = read(self.lake, name, by=column)
                if f"{name}_rejected" in present:
                    rows += read(self.lake, f"{name}_rejected", by=column)
                names = sorted(row[column] for row in rows)
                assert names == expected, (table, read.__name__)
        assert self.bench.waiting_segments() == 0
        assert list_staged(self.lake) == []


def matrix():
    """Yield each catalog with each point: all on the embedded one, the rest for soak."""
    for catalog in CATALOGS:
        for point in POINTS:
            is_short = catalog == "sqlite" or (catalog, point) in ESSENCE
            yield pytest.param(catalog, point, marks=() if is_short else pytest.mark.soak)


@pytest.fixture
def killing(request, catalog, tmp_path):
    if catalog == "sqlite":
        settings = sqlite_settings(tmp_path)
    elif catalog == "postgres":
        database, store = (request.getfixturevalue(name) for name in ("postgres", "s3"))
        settings = postgres_settings(database, store)
    else:
        server, store = (request.getfixturevalue(name) for name in ("rest_catalog", "s3"))
        settings = rest_settings(server.uri, store)
    killing = Killing(tmp_path, settings)
    with killing.lake:
        killing.bench.send(Signal.METRICS, "m")
        killing.bench.send(Signal.LOGS, "a")
        yield killing


@pytest.mark.parametrize(("catalog", "point"), list(matrix()))
def test_a_worker_killed_at_any_step_leaves_each_record_once(killing, point):
    if point in RELEASING:
        assert run_worker(killing.config, "", "hold") == 0
        killing.move_main()
        status = run_release(killing.config, point)
    else:
        status = run_worker(killing.config, point, AUDITS.get(point))
    assert status == -signal.SIGKILL
    killing.bench.send(Signal.LOGS, "b")
    killing.bench.run()
    for held in (batch for batch in list_staged(killing.lake) if batch.state == "held"):
        release(killing.lake, held.table, held.batch_id)
    killing.check()
