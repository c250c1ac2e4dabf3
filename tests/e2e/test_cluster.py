"""A real standalone cluster: a master and two workers as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from neve.config import load
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from tests.e2e import cluster_job
from tests.support.servers import REGION, SHORT_LIVED_JAVA, running_spark_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_spark_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture
def bare_python(tmp_path):
    """A Python of our version with nothing installed, as a cluster's machines may have it."""
    directory = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    absent = subprocess.run([python, "-c", "import pyarrow"], capture_output=True, check=False)
    assert absent.returncode != 0
    return str(python)


@pytest.fixture
def config(tmp_path, cluster, bare_python, rest_catalog, s3):
    conf = {
        "spark.pyspark.python": bare_python,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "640m",
        "spark.sql.shuffle.partitions": 2,
    }
    path = tmp_path / "neve.yaml"
    document = {
        "catalog": {"type": "rest", "uri": rest_catalog.uri},
        "storage": {
            "endpoint": s3.endpoint,
            "region": REGION,
            "access_key_id": s3.access_key,
            "secret_access_key": s3.secret_key,
            "path_style": True,
        },
        "spark": {"master": cluster, "conf": conf},
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_code_and_dependencies_reach_the_executors(config, bare_python):
    # Executors must get everything from the configuration, so the driver's environment has none.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    job = subprocess.run(
        [sys.executable, cluster_job.__file__, config],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment | SHORT_LIVED_JAVA,
        cwd=Path(config).parent,
    )
    assert job.returncode == 0, job.stderr
    seen = json.loads(job.stdout)
    assert (seen["rows"], seen["ids"]) == (cluster_job.ROWS, sum(range(cluster_job.ROWS)))
    assert seen["name"] == "storage 0"
    assert seen["executables"] == [bare_python]
    assert seen["neve_from"] == ["neve-code/neve/errors.py"]
    assert seen["executors"] == 2

    profile = profile_named(load(config).settings, DEFAULT_CATALOG)
    with load_catalog("check", **profile.pyiceberg_properties()) as catalog:
        assert catalog.load_table("cluster.rows").scan().count() == cluster_job.ROWS
