"""A consolidation worker as a process of its own, without Spark.

Processes are forked from a server that has imported everything: each starts in milliseconds and
can be killed for real.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.catalog.rest
import pyiceberg.catalog.sql  # noqa: F401 - both for the server, which imports for all

import neve
from neve import failpoints
from neve.config import AuditSettings
from neve.consolidate.consolidator import Consolidator
from neve.consolidate.spec import consolidate_spec
from neve.lake.data_files import write_data_files
from neve.lake.frames import SplitRows
from neve.publish.audited_publisher import AuditedOutcome, AuditedPublisher
from neve.publish.audits import AuditResult
from neve.publish.staged_batches import release
from neve.publish.staged_list import list_staged
from tests.support.consolidation import NAME_COLUMN, run_inline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from neve.lake import Lake
    from neve.lake.staged_snapshot import StagedSnapshot

DEADLINE_SECONDS = 120


def run_worker(config: Path, failpoint: str, audit: str | None = None) -> int:
    """Consolidate what waits, in a process that dies at `failpoint`; return its exit status.

    Args:
        audit: `hold` holds every batch, as an audit does that nothing passes; `set_aside` sets
            some rows of each batch aside.
    """
    return _run(_work, str(config), failpoint, audit)


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


def _work(config: str, failpoint: str, audit: str | None) -> None:
    _arm(failpoint)
    if audit == "hold":
        AuditedPublisher.audit_and_publish = _hold
    with neve.open(config) as lake:
        if audit == "set_aside":
            set_some_rows_aside(lake)
        Consolidator(lake, consolidate_spec(lake.settings), run_inline).run_once()


def set_some_rows_aside(lake: Lake) -> None:
    """Let every telemetry table have an audit that some rows fail, without Spark."""
    namespace = lake.settings.telemetry.namespace
    entry = AuditSettings(name="some", check="expression", expression="x", on_failure="set_aside")
    audits = {f"{namespace}.{table}": [entry] for table in NAME_COLUMN}
    lake.settings = lake.settings.model_copy(update={"audits": audits})
    AuditedPublisher._checked = lambda _, staged: staged
    AuditedPublisher._run_audits = _fail_some
    AuditedPublisher._split = _split


def _names(gate: AuditedPublisher, staged: StagedSnapshot) -> tuple[pa.Table, pa.ChunkedArray]:
    rows = gate.publisher.table.added_rows(staged.snapshot_id, 1000)
    column = NAME_COLUMN[gate.publisher.table.name.rpartition(".")[2]]
    return rows, pc.ends_with(rows[column], " 1")


def _fail_some(
    gate: AuditedPublisher, staged: StagedSnapshot, _: object
) -> tuple[AuditResult, ...]:
    rows, is_bad = _names(gate, staged)
    failing = pc.sum(is_bad).as_py()
    return (AuditResult("some", "expression", not failing, failing, len(rows), "set_aside"),)


def _split(gate: AuditedPublisher, staged: StagedSnapshot, batch_id: str) -> SplitRows:
    rows, is_bad = _names(gate, staged)
    rejected, table = gate.rejected.open().table, gate.publisher.table
    bad = rows.filter(is_bad)
    bad = bad.append_column("batch_id", pa.array([batch_id] * len(bad)))
    return SplitRows(
        write_data_files(table.metadata, table.io, rows.filter(pc.invert(is_bad))),
        write_data_files(rejected.metadata, rejected.io, bad),
        Counter(some=len(bad)),
    )


def _hold(gate: AuditedPublisher, staged: StagedSnapshot) -> AuditedOutcome:
    return AuditedOutcome(gate.publisher.hold(staged), staged)
