"""How many rows a statement changed, as Spark counted them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INSERTS = ("AppendData", "OverwriteByExpression", "OverwritePartitionsDynamic")
# A changed row is written as a deleted and an inserted one; rows of other kinds are written once.
_WRITES_A_ROW = {"DELETE": 1, "UPDATE": 2}
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def changed_rows(frame: DataFrame) -> int | None:
    """Return what INSERT, UPDATE, DELETE or MERGE changed; None if it is not known.

    Copy-on-write writes unchanged rows, too, and Spark counts them together.
    """
    result: Any = frame._jdf.queryExecution().commandExecuted()
    if result.nodeName() != "CommandResult":
        return None
    command = result.commandPhysicalPlan()
    name = command.nodeName()
    if name in _INSERTS:
        return _written(command)
    if name not in ("ReplaceData", "WriteDelta"):
        return None
    operation = result.commandLogicalPlan().operation().command().toString()
    if operation == "MERGE":
        return _merged(command)
    written = _written(command) if name == "WriteDelta" else None
    return None if written is None else written // _WRITES_A_ROW[operation]


def _written(command: Any) -> int | None:
    progress = command.commitProgress()
    return int(progress.get().numOutputRows()) if progress.isDefined() else None


def _merged(plan: Any) -> int | None:
    """Add up what the plan's node that merges has counted."""
    name = plan.getClass().getSimpleName()
    if name == "MergeRowsExec":
        metrics = plan.metrics()
        return sum(int(metrics.apply(metric).value()) for metric in _MERGED)
    if name == "AdaptiveSparkPlanExec":
        children = [plan.executedPlan()]
    elif name.endswith("QueryStageExec"):
        children = [plan.plan()]
    else:
        nodes = plan.children()
        children = [nodes.apply(number) for number in range(nodes.size())]
    merged = (_merged(child) for child in children)
    return next((rows for rows in merged if rows is not None), None)
