"""The same tasks, on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from neve.consolidate.task import RESULT, Job, run_task


def run_job(spark: SparkSession, job: Job) -> list[Mapping[str, Any]]:
    """Run every task of a job; what comes back is one row a file, which the driver can hold."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from run_task(job, number)

    count = len(job.tasks)
    tasks = spark.range(0, count, 1, count)
    rows: pa.Table = tasks.mapInArrow(work, from_arrow_schema(RESULT)).toArrow()
    return list(rows.to_pylist())
