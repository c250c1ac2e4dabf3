"""A real standalone cluster: a master and two workers as processes of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from neve.buffer.buffer import open_buffer, open_reader
from neve.buffer.spec import buffer_spec
from neve.config import load
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.signals import Signal
from tests.e2e import cluster_job
from tests.support.consolidation import NAME_COLUMN
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered
from tests.support.servers import REGION, SHORT_LIVED_JAVA, running_spark_cluster

REQUESTS = [f"request {n}" for n in range(3)]
# Those that get rows of such requests.
TABLES = ("logs", "traces", "metrics_gauge")


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A directory of the driver, in whose place one of the workers has a disk of its own."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, private):
    directory = tmp_path_factory.mktemp("cluster")
    with running_spark_cluster(directory, private=private) as address:
        yield address


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """A Python of our version with nothing installed, as a cluster's machines may have it."""
    directory = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    absent = subprocess.run([python, "-c", "import pyarrow"], capture_output=True, check=False)
    assert absent.returncode != 0
    return str(python)


@pytest.fixture(scope="module")
def config(tmp_path_factory, cluster, bare_python, rest_catalog, s3):
    directory = tmp_path_factory.mktemp("driver")
    shared = tmp_path_factory.mktemp("shared")
    conf = {
        "spark.pyspark.python": bare_python,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "640m",
        "spark.sql.shuffle.partitions": 2,
    }
    path = directory / "neve.yaml"
    document = {
        "catalog": {"type": "rest", "uri": rest_catalog.uri},
        "storage": {
            "endpoint": s3.endpoint,
            "region": REGION,
            "access_key_id": s3.access_key,
            "secret_access_key": s3.secret_key,
            "path_style": True,
        },
        "spark": {"master": cluster, "conf": conf, "shared_paths": [str(shared)]},
        "buffer": {"location": f"s3://{s3.bucket}/{directory.name}"},
        "telemetry": {"namespace": "cluster_otel"},
    }
    path.write_text(yaml.safe_dump(document))
    return path


def run_job(*command):
    """Run a program that drives the cluster; return the document it prints."""
    # Executors must get everything from the configuration, so the driver's environment has none.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    job = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment | SHORT_LIVED_JAVA,
        cwd=Path(command[-1]).parent,
    )
    assert job.returncode == 0, job.stderr
    return json.loads(job.stdout)


@pytest.fixture(scope="module")
def seen(config, private):
    """What one job saw and did: a job's start takes longer than its work."""
    settings = load(config).settings
    with open_buffer(buffer_spec(settings), [signal.value for signal in Signal]) as buffer:
        for signal in Signal:
            for name in REQUESTS:
                request = buffered(protobuf(signal, name, 2))
                buffer.append(signal.value, request).durable.result(10)
    return run_job(sys.executable, cluster_job.__file__, private, config)


def test_a_path_that_one_executor_does_not_share_is_refused_by_host_and_path(seen, config, private):
    # The job would not have started, had the path that all share been refused.
    (shared,) = load(config).settings.spark.shared_paths
    assert list(Path(shared).iterdir()) == []
    assert seen["probe"].startswith(
        f"spark.shared_paths: {private} is not shared with host {socket.gethostname()}: "
    )
    assert list(private.iterdir()) == []


def test_code_and_dependencies_reach_the_executors(seen, config, bare_python, cluster):
    assert seen["master"] == cluster
    seen = seen["tasks"]
    assert (seen["rows"], seen["ids"]) == (cluster_job.ROWS, sum(range(cluster_job.ROWS)))
    assert seen["name"] == "storage 0"
    assert seen["executables"] == [bare_python]
    assert seen["neve_from"] == ["neve-code/neve/errors.py"]
    assert seen["executors"] == 2

    profile = profile_named(load(config).settings, DEFAULT_CATALOG)
    with load_catalog("check", **profile.pyiceberg_properties()) as catalog:
        assert catalog.load_table("cluster.rows").scan().count() == cluster_job.ROWS


def test_consolidation_reads_a_buffer_in_the_object_store(seen, config):
    assert seen["consolidated"] == {f"cluster_otel.{table}": 6 for table in TABLES}

    settings = load(config).settings
    expected = Counter(f"{name} {n}" for name in REQUESTS for n in range(2))
    profile = profile_named(settings, DEFAULT_CATALOG)
    with load_catalog("check", **profile.pyiceberg_properties()) as catalog:
        for table in TABLES:
            rows = catalog.load_table(f"cluster_otel.{table}").scan().to_arrow()
            assert Counter(rows[NAME_COLUMN[table]].to_pylist()) == expected
    assert sum(stream.segments for stream in open_reader(buffer_spec(settings)).streams()) == 0


def test_a_mirror_is_merged_on_the_executors(seen, config):
    expected = cluster_job.expected_mirror()
    assert [tuple(row) for row in seen["merges"]["rows"]] == expected
    first, second, third = seen["merges"]["reports"]
    assert (first["rows_upserted"], first["rows_deleted"]) == (1_000, 0)
    assert (second["rows_upserted"], second["rows_deleted"], second["set_aside"]) == (400, 100, 1)
    assert (third["rows_upserted"], third["late_dropped"]) == (0, 500)

    profile = profile_named(load(config).settings, DEFAULT_CATALOG)
    with load_catalog("check", **profile.pyiceberg_properties()) as catalog:
        rows = catalog.load_table("cluster_merge.rows").scan().to_arrow()
        assert (
            sorted(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)) == expected
        )
        assert catalog.load_table("cluster_merge.rows_tombstones").scan().count() == 100
        assert catalog.load_table("cluster_merge.rows_rejected").scan().count() == 1
