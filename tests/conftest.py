"""Servers and Spark for all tests, each started once, when the first test asks for it."""

from __future__ import annotations

import pytest

import neve
from tests.support.lakes import sqlite_settings
from tests.support.servers import (
    SHORT_LIVED_JAVA,
    running_postgres,
    running_rest_catalog,
    running_s3,
)
from tools.side_by_side import SPARK, SPARK_ELSEWHERE, TIMED

# For a few rows, compiling the code of a query takes a quarter of the processor's time. Tests that
# start the installed command have Spark's defaults.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# Where `make test` looks for tests with a mark.
FOUND_IN = {
    "spark": SPARK.directories | SPARK_ELSEWHERE.directories,
    "timed": TIMED.directories,
}


def pytest_collection_modifyitems(items):
    """Mark what uses Spark in this process, and what starts servers: `tools/side_by_side.py`."""
    for item in items:
        if not {"e2e", "integration"}.isdisjoint(item.path.parts):
            item.add_marker("servers")
        # The demo has a bound on its time.
        if "demo" in item.fixturenames:
            item.add_marker("timed")
        if "embedded_lake" in item.fixturenames:
            item.add_marker("spark")
        for mark, directories in FOUND_IN.items():
            if item.get_closest_marker(mark) and directories.isdisjoint(item.path.parts):
                raise pytest.UsageError(f"{item.nodeid}: `make test` would not find what is {mark}")


@pytest.fixture(scope="session")
def server_directory(tmp_path_factory):
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def s3(server_directory):
    with running_s3(server_directory) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(server_directory):
    with running_postgres(server_directory) as database:
        yield database


@pytest.fixture(scope="session")
def rest_catalog(server_directory, s3):
    with running_rest_catalog(server_directory, s3) as server:
        yield server


@pytest.fixture(scope="session")
def embedded_lake(tmp_path_factory):
    """The embedded lake; it keeps Spark running between the tests that open others."""
    settings = sqlite_settings(tmp_path_factory.mktemp("embedded"))
    spark = settings.spark.model_copy(update={"conf": {**settings.spark.conf, **INTERPRETED}})
    with neve.open(settings.model_copy(update={"spark": spark})) as lake:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in SHORT_LIVED_JAVA.items():
                environment.setenv(name, value)
            context = lake.spark.sparkContext
        # Hadoop writes a file of checksums for each file on this disk, and starts `chmod` for both.
        local = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal
        local(context._jsc.hadoopConfiguration()).setWriteChecksum(False)
        yield lake
