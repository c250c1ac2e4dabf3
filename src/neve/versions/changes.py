"""The rows that changed between two versions of a table, as a DataFrame."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neve.errors import UnsupportedError
from neve.lake.chosen_files import TableReader
from neve.lake.plain_types import NeedsSparkError
from neve.versions.arguments import Mode, parse_mode
from neve.versions.change_columns import find_keys, require_free_names
from neve.versions.driver_rows import read_on_driver
from neve.versions.file_changes import Step
from neve.versions.plan import ChangePlan, Planner
from neve.versions.resolve import VersionRange, resolve_range
from neve.versions.spark_rows import SparkRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.lake.table_ref import TableRef
    from neve.versions.resolve import Version

logger = logging.getLogger(__name__)

_REPLACE = "replace"


def read_changes(
    lake: Lake,
    ref: TableRef,
    since: Version | None = None,
    until: Version | None = None,
    mode: Mode = "changes",
    keys: Sequence[str] | None = None,
    *,
    names_commits: bool = True,
    table: TableReader | None = None,
) -> DataFrame:
    """Return the rows that changed after `since`, up to and including `until`.

    The columns are the table's, then `_change_type`, `_commit_snapshot_id`, `_commit_timestamp`.

    Args:
        since: the version before the first change; without it, from the beginning.
        until: the version of the last change; without it, the current one.
        mode: `changes` are all changes, commit by commit; `net` is what differs between the two
            ends; `appends` are added rows only, and an error if there are other changes.
        keys: columns that identify a row, so that updates are told from deletes and inserts.
            Without them, the identifier fields of the table, or the keys of a mirror.
        names_commits: without it, mode `net` reads the two ends alone, and rows name no commit.
        table: the table as it was read before; without it, it is read now.

    Raises:
        NotFoundError: there is no such version or table.
        UsageError: a version, a mode or a key makes no sense.
        UnsupportedError: `appends`, and the range holds other changes.
    """
    parse_mode(ref.name, mode)
    table = table or TableReader(lake, ref)
    versions = resolve_range(
        ref.name, table.metadata, since, until, only_ends=mode == "net", read=table.read
    )
    if mode == "net" and not names_commits:
        versions = versions.ends
    require_free_names(ref.name, table.metadata, versions.schema_id)
    key_columns = find_keys(ref.name, table.metadata, versions.schema_id, keys)
    plan = plan_changes(table, versions, mode)
    if mode == "appends":
        _require_appends(ref.name, versions, plan)
    try:
        rows, schema = read_on_driver(table, versions, plan, key_columns)
    except NeedsSparkError as reason:
        logger.info("%s: Spark reads the changes, since %s", ref.name, reason)
        return SparkRows(lake, table, versions).frame(plan, key_columns)
    logger.info(
        "%s: %d changes were read on the driver, without a Spark job", ref.name, rows.num_rows
    )
    return table.frame(rows, schema)


def plan_changes(table: TableReader, versions: VersionRange, mode: Mode) -> ChangePlan:
    """Say which files must be read."""
    planner = Planner(table, is_net=mode == "net")
    snapshots = table.metadata.snapshots
    before = None if versions.start_id is None else snapshots[versions.start_id]["manifest-list"]
    table.manifests.prefetch([commit.manifest_list for commit in versions.commits])
    for number, (commit, step) in enumerate(zip(versions.commits, versions.steps, strict=True)):
        if step is not None and step.operation == _REPLACE:
            planner.skip()
        else:
            planner.add(Step(number, before, commit.manifest_list))
        before = commit.manifest_list
    return planner.plan


def _require_appends(name: str, versions: VersionRange, plan: ChangePlan) -> None:
    if steps := plan.steps_that_delete:
        commit = versions.commits[min(steps)]
        raise UnsupportedError(
            f"{name}: snapshot {commit.snapshot_id} ({commit.operation}) deletes rows, so that the "
            "range holds more than appends",
            hint="choose another range, or mode changes or net",
        )
