"""The tasks of consolidation, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from neve.consolidate.task import Job, run_task
from neve.lake.spark_tasks import SparkTasks
from neve.lake.workers import use_system_memory

if TYPE_CHECKING:
    from neve.lake import Lake


def run_job(lake: Lake, job: Job) -> list[Mapping[str, Any]]:
    """Run every task of a job; return one row for each file, which the driver can hold.

    Raises:
        NeveError: what a task raised.
    """
    results = SparkTasks(lake).run(partial(_run_task, job), range(len(job.tasks)))
    return [row for rows in results for row in rows]


def _run_task(job: Job, number: int) -> list[Mapping[str, Any]]:
    use_system_memory()
    return [row for batch in run_task(job, number) for row in batch.to_pylist()]
