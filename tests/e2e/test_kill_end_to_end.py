"""From a real Collector to the tables, receiver and consolidation both killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter

import pytest

import neve
from neve import failpoints
from neve.config import load
from neve.signals import Signal
from tests.e2e.test_consolidate_kill import AUDITS, CATALOGS, POINTS, RELEASING
from tests.support.buffered import buffered_rows
from tests.support.collector import running_collector
from tests.support.command import NEVE, neve_serve
from tests.support.consolidation import NAME_COLUMN
from tests.support.lakes import SPARK
from tests.support.otlp_bodies import protobuf, send
from tests.support.readers import READERS
from tests.support.servers import REGION, SHORT_LIVED_JAVA
from tests.support.wait import until

# These take an audit: tests/e2e/test_consolidate_kill.py.
ELSEWHERE = {*AUDITS, *RELEASING}
RETRY = {"initial_interval": "50ms", "max_interval": "200ms", "max_elapsed_time": "0s"}
REQUESTS = 10


@pytest.fixture(params=CATALOGS)
def configuration(request, tmp_path):
    """What neve.yaml says: the embedded catalog, or PostgreSQL or REST with S3."""
    document = {
        "spark": SPARK,
        "buffer": {"location": str(tmp_path / "buffer"), "seal_seconds": 0.05},
        "telemetry": {"namespace": f"end_to_end_{os.urandom(6).hex()}"},
    }
    if request.param == "sqlite":
        uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "warehouse")
        return {**document, "catalog": {"uri": uri, "warehouse": warehouse}}
    store = request.getfixturevalue("s3")
    storage = {
        "endpoint": store.endpoint,
        "region": REGION,
        "access_key_id": store.access_key,
        "secret_access_key": store.secret_key,
        "path_style": True,
    }
    if request.param == "rest":
        catalog = {"type": "rest", "uri": request.getfixturevalue("rest_catalog").uri}
    else:
        uri = request.getfixturevalue("postgres").uri()
        warehouse = f"s3://{store.bucket}/end_to_end"
        catalog = {"type": "postgres", "uri": uri, "warehouse": warehouse}
    return {**document, "catalog": catalog, "storage": storage}


def send_through_collector(directory, configuration) -> Counter:
    """Send through a Collector while the receiver is killed; return the names of all records."""
    sent = Counter()
    with neve_serve(directory, configuration, NEVE_FAILPOINT="receive.durable@6") as first:
        target = {"endpoint": f"http://{first.http}", "retry_on_failure": RETRY}
        pipeline = {"receivers": ["otlp"], "exporters": ["otlp_http"]}
        config = {
            "exporters": {"otlp_http": target},
            "service": {"pipelines": {kind.value: pipeline for kind in Signal}},
        }
        with running_collector(directory, config) as port:
            for kind in Signal:
                for number in range(REQUESTS):
                    name = f"{kind.value} {number}"
                    send(f"127.0.0.1:{port}", kind, protobuf(kind, name, 2))
                    sent.update(f"{name} {record}" for record in range(2))
            assert first.process.wait() == -signal.SIGKILL
            with neve_serve(directory, configuration, at=first) as second:
                until(lambda: buffered_names(second.buffer) >= sent, seconds=60)
                assert second.process.stop() == 0
    return sent


def buffered_names(location) -> Counter:
    rows = buffered_rows(location)
    return Counter(row[name] for table, name in NAME_COLUMN.items() for row in rows[table])


def consolidate(config, failpoint="") -> int:
    """Run the installed command on Spark; return its exit status."""
    done = subprocess.run(
        [NEVE, "--config", config, "consolidate", "--once"],
        env={**os.environ, **SHORT_LIVED_JAVA, failpoints.ENVIRONMENT_VARIABLE: failpoint},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1, 3, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.soak
@pytest.mark.parametrize("point", [name for name in POINTS if name not in ELSEWHERE])
def test_what_a_collector_delivered_is_in_the_tables_once(
    tmp_path, embedded_lake, configuration, point
):
    sent = send_through_collector(tmp_path, configuration)
    config = tmp_path / "neve.yaml"
    # That point is in a task, which dies: its tables fail.
    died = 3 if point == "consolidate.written" else -signal.SIGKILL
    assert consolidate(config, point) == died
    assert consolidate(config) == 0
    namespace = configuration["telemetry"]["namespace"]
    with neve.open(load(config).settings) as lake:
        for engine, read in READERS.items():
            found = Counter(
                row[column]
                for table, column in NAME_COLUMN.items()
                for row in read(lake, f"{namespace}.{table}", by=column)
            )
            assert found == sent, engine
