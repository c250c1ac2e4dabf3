"""Local paths on a cluster: which the executors share with the driver, and the proof that they do.

Executors that do not share the warehouse's directory would write data files to their own disks, and
commits would name files that nobody else can read.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from neve.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from neve.config import SparkSettings

# Enough, and slow enough, that each executor gets some of them.
_TASKS_FOR_EACH_CORE = 4
_LEAST_TASKS = 16
_TASK_SECONDS = 0.2
_DRIVER_FILE = "driver"
_RESULT = "host STRING, file STRING, problem STRING"


def require_shared(settings: SparkSettings, name: str, path: str | Path | None) -> None:
    """Refuse a local path on a cluster, unless `spark.shared_paths` names a mount that has it.

    Raises:
        ConfigError: executors would use another directory of the same name.
    """
    if path is None or settings.master.startswith("local"):
        return
    wanted = Path(os.path.normpath(path))
    if any(wanted.is_relative_to(shared) for shared in settings.shared_paths):
        return
    raise ConfigError(
        f"{name} {path} is a local path, which the executors of {settings.master} cannot reach",
        hint="put it into an object store (s3://bucket/prefix), or name the mount that the driver "
        "and all executors share in spark.shared_paths",
    )


def probe_shared_paths(spark: SparkSession, paths: Iterable[str]) -> None:
    """Prove that the executors see the driver's files at these paths, and the driver theirs.

    Each executor that is there gets tasks; one that joins later is not asked.

    Raises:
        ConfigError: it names the host and the path.
    """
    for path in paths:
        token = secrets.token_hex(16)
        directory = Path(path, f".neve-probe-{token}")
        try:
            directory.mkdir()
            Path(directory, _DRIVER_FILE).write_text(token)
        except OSError as error:
            raise _not_shared(path, socket.gethostname(), error.strerror or str(error)) from error
        try:
            _probe(spark, path, directory, token)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class ProbeResult:
    """What one task found."""

    host: str
    file: str
    problem: str | None


def probe_from_task(directory: str, token: str) -> ProbeResult:
    """Read the driver's file and write one for the driver; run in a task."""
    host, name = socket.gethostname(), uuid.uuid4().hex
    time.sleep(_TASK_SECONDS)
    try:
        if Path(directory, _DRIVER_FILE).read_text() != token:
            return ProbeResult(host, name, "it has another file in place of the driver's")
        Path(directory, name).write_text(token)
    except OSError as error:
        return ProbeResult(host, name, error.strerror or str(error))
    return ProbeResult(host, name, None)


def _probe(spark: SparkSession, path: str, directory: Path, token: str) -> None:
    location = str(directory)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for _ in range(len(batch)):
                result = probe_from_task(location, token)
                columns = {"host": [result.host], "file": [result.file]}
                problem = pa.array([result.problem], pa.string())
                yield pa.RecordBatch.from_pydict({**columns, "problem": problem})

    count = max(_LEAST_TASKS, _TASKS_FOR_EACH_CORE * spark.sparkContext.defaultParallelism)
    tasks = spark.range(0, count, 1, count)
    rows: pa.Table = tasks.mapInArrow(work, _RESULT).toArrow()
    for row in rows.to_pylist():
        check_result(path, directory, token, ProbeResult(**row))


def check_result(path: str, directory: Path, token: str, result: ProbeResult) -> None:
    """Compare what a task reports with what the driver sees. Raises ConfigError."""
    if result.problem is not None:
        raise _not_shared(path, result.host, result.problem)
    try:
        seen = Path(directory, result.file).read_text()
    except OSError as error:
        reason = "the driver does not see what it wrote there"
        raise _not_shared(path, result.host, reason) from error
    if seen != token:
        raise _not_shared(path, result.host, "the driver reads something else than it wrote")


def _not_shared(path: str, host: str, reason: str) -> ConfigError:
    return ConfigError(
        f"spark.shared_paths: {path} is not shared with host {host}: {reason}",
        hint="mount the same file system there on every machine of the cluster, or use an object "
        "store",
    )
