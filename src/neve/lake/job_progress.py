"""How far a long job of Spark has come, said every few seconds."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from neve.lake import jvm

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

EVERY_SECONDS = 5.0


@contextmanager
def telling_progress(
    context: SparkContext, tell: Callable[[str], None], every_seconds: float = EVERY_SECONDS
) -> Iterator[None]:
    """Say of the jobs that this thread runs in the block how many of their tasks are done.

    Nothing is said of a block that ends before.
    """
    group, ended = f"neve-{uuid.uuid4().hex}", threading.Event()
    context.setJobGroup(group, group)

    def watch() -> None:
        while not ended.wait(every_seconds):
            try:
                done, known = _tasks(context, group)
                if known:
                    tell(f"{done:,} of {known:,} tasks")
            except Exception as error:  # noqa: BLE001 - a JVM that dies fails the job, which tells
                logger.debug("no more is said of how far a job is: %s", error)
                return

    watcher = threading.Thread(target=watch, daemon=True, name="neve-progress")
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        if jvm.is_running(context):
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    """Return how many tasks of a group's jobs are done, of how many that are known by now."""
    tracker = context.statusTracker()
    done = known = 0
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        stages = (tracker.getStageInfo(stage) for stage in job.stageIds) if job else ()
        for stage in stages:
            if stage is not None:
                done += stage.numCompletedTasks
                known += stage.numTasks
    return done, known
