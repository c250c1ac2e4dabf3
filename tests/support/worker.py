"""A consolidation worker as a process of its own, without Spark.

Processes are forked from a server that has imported everything: each starts in milliseconds and
can be killed for real.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from typing import TYPE_CHECKING

import pyiceberg.catalog.rest
import pyiceberg.catalog.sql  # noqa: F401 - both for the server, which imports for all

import neve
from neve import failpoints
from neve.consolidate.consolidator import Consolidator
from neve.consolidate.spec import consolidate_spec
from neve.publish.audited_publisher import AuditedOutcome, AuditedPublisher
from neve.publish.staged_batches import list_staged, release
from tests.support.consolidation import run_inline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from neve.lake.staging import StagedSnapshot

DEADLINE_SECONDS = 120


def run_worker(config: Path, failpoint: str, *, hold: bool = False) -> int:
    """Consolidate what waits, in a process that dies at `failpoint`; return its exit status.

    Args:
        hold: hold every batch, as an audit does that nothing passes.
    """
    return _run(_work, str(config), failpoint, hold)


def run_release(config: Path, failpoint: str) -> int:
    """Publish all held batches in a process that dies at `failpoint`; return its exit status."""
    return _run(_release, str(config), failpoint)


def _run(work: Callable[..., None], *arguments: object) -> int:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=work, args=arguments)
    process.start()
    process.join(DEADLINE_SECONDS)
    assert process.exitcode is not None, "it does not end"
    return process.exitcode


def _arm(failpoint: str) -> None:
    os.environ[failpoints.ENVIRONMENT_VARIABLE] = failpoint
    importlib.reload(failpoints)  # it looks at the environment once, as every process does


def _release(config: str, failpoint: str) -> None:
    _arm(failpoint)
    with neve.open(config) as lake:
        for held in list_staged(lake):
            release(lake, held.table, held.batch_id)


def _work(config: str, failpoint: str, hold: bool) -> None:
    _arm(failpoint)
    if hold:
        AuditedPublisher.audit_and_publish = _hold
    with neve.open(config) as lake:
        Consolidator(lake, consolidate_spec(lake.settings), run_inline).run_once()


def _hold(gate: AuditedPublisher, staged: StagedSnapshot) -> AuditedOutcome:
    return AuditedOutcome(gate.publisher.hold(staged))
