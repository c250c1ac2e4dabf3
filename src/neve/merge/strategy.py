"""How a batch reaches the mirror, and which way is the cheapest.

Every way gives the same rows. `MergeInto` is Iceberg's own statement: right for most of a table,
and what the others are tested against.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F

from neve import failpoints
from neve.errors import NeveError, UnknownOutcomeError
from neve.lake.identifier import quote_identifier
from neve.lake.java_commits import committing_in_java
from neve.lake.java_tables import JavaTable
from neve.merge import names
from neve.merge import transforms as tr
from neve.merge.checkpoint import BATCH_ID
from neve.merge.shape import Shape, is_binary, quoted

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.merge.batch import BatchWork
    from neve.merge.plan import Look
    from neve.merge.side import SideTable
    from neve.merge.spec import MergeSpec

BRANCH_PREFIX = "neve-merge-"
STALE_BRANCH_SECONDS = 3600
# Below this a scan of the keys takes less time than looking after an index.
INDEXED_ROWS = 200_000
# Above this share of the rows a statement that rewrites what it meets is the cheapest.
MOST_TOUCHED = 0.3

_SOURCE = "neve_changes"
_DELETES = "_neve_deletes"
_KEEPS = "_neve_keeps_"


class Strategy(str, Enum):
    """How rows are found and replaced."""

    AUTO = "auto"
    # Found by the index, replaced by deletion vectors.
    INDEX = "index"
    # Found by reading all keys, replaced by deletion vectors.
    SCAN = "scan"
    # Both by MERGE INTO.
    MERGE = "merge"


@dataclass(frozen=True)
class Choice:
    """A strategy, and why it was taken."""

    strategy: Strategy
    why: str


ON_TRUNCATE = Choice(Strategy.MERGE, "a TRUNCATE touches most of the table")
ON_DOUBLED = Choice(Strategy.SCAN, "keys have two rows, of which MERGE INTO would keep both")


def choose(found: Look, spec: MergeSpec, events: int | None, forced: Strategy) -> Choice:
    """Choose by cost.

    Args:
        events: how many the batch has, if that is known before it is read.
    """
    rows = found.mirror_rows
    if found.mirror_is_empty:
        return Choice(Strategy.MERGE, "the mirror is empty" if not found.rebuild else "a rebuild")
    unindexed = _why_unindexed(spec)
    if forced is Strategy.INDEX and unindexed:
        return Choice(Strategy.SCAN, unindexed)
    if forced is not Strategy.AUTO:
        return Choice(forced, "it was asked for")
    if events is not None and events > MOST_TOUCHED * rows:
        return Choice(Strategy.MERGE, f"{events} events for {rows} rows touch most of the table")
    if unindexed:
        return Choice(Strategy.SCAN, unindexed)
    if rows < INDEXED_ROWS:
        return Choice(Strategy.SCAN, f"{rows} rows are read faster than an index is kept")
    return Choice(Strategy.INDEX, f"{rows} rows, of which few change")


def _why_unindexed(spec: MergeSpec) -> str | None:
    if spec.unchanged_marker is not None:
        return "partial events need the mirror's values"
    if spec.tombstone_retention_seconds is not None:
        return "the index does not know when a delete is to be forgotten"
    return None


class Writer(Protocol):
    """Brings a batch that is decided into the mirror."""

    def write(self, work: BatchWork, batch_id: str, now: datetime) -> list[DataFile]:
        """Write what can be written before the commit; return the files of tombstones."""

    def commit(self, work: BatchWork, summary: Mapping[str, str]) -> None:
        """Commit one snapshot with the summary on it, if `main` is where the batch was decided.

        Raises:
            ConflictError: `main` has moved; nothing was applied.
            UnknownOutcomeError: the answer was lost.
        """


class MergeInto:
    """Applies a batch with one statement on a branch, and moves `main` there."""

    def __init__(self, lake: Lake, mirror: JavaTable, tombstones: SideTable) -> None:
        self.lake = lake
        self.mirror = mirror
        self.tombstones = tombstones

    def write(self, work: BatchWork, batch_id: str, now: datetime) -> list[DataFile]:
        if not work.has_tombstones:
            return []
        return self.tombstones.write(work.tombstones(batch_id, now))

    def commit(self, work: BatchWork, summary: Mapping[str, str]) -> None:
        self._remove_stale_branches(work.found)
        branch = f"{BRANCH_PREFIX}{int(time.time())}-{summary[BATCH_ID][:12]}"
        self.mirror.create_branch(branch, work.main_id)
        try:
            self._apply(work, summary, branch)
            failpoints.reach("merge.applied")
            self.mirror.publish_branch(branch, work.main_id, {})
        except UnknownOutcomeError:
            raise
        except NeveError:
            self.mirror.remove_branches([branch])
            raise

    def _apply(self, work: BatchWork, summary: Mapping[str, str], branch: str) -> None:
        for key, value in summary.items():
            # What Spark commits in this session, which is the batch's own, carries it.
            work.session.conf.set(f"spark.sql.iceberg.snapshot-property.{key}", value)
        ref = self.mirror.ref
        target = quote_identifier((ref.catalog, *ref.identifier, f"branch_{branch}"))
        counts, found = work.counts, work.found
        if not (counts.upserted or counts.deleted or counts.truncated or found.rebuild):
            self.mirror.append_nothing(branch, summary)
            return
        changes = work.changes()
        with committing_in_java(self.mirror.name, "the merge"):
            if not found.mirror_is_empty:
                _source(changes, work).createOrReplaceTempView(_SOURCE)
                work.session.sql(merge_statement(target, work.shape, work.barrier))
            elif found.rebuild:
                _rows(changes, work).writeTo(target).overwrite(F.lit(True))
            else:
                _rows(changes, work).writeTo(target).append()

    def _remove_stale_branches(self, found: Look) -> None:
        """Forget what killed workers left; those at work may still need theirs."""
        before = time.time() - STALE_BRANCH_SECONDS
        refs = found.mirror.refs if found.mirror else {}
        stale = [
            name
            for name in refs
            if name.startswith(BRANCH_PREFIX) and int(name.split("-")[2]) < before
        ]
        if stale:
            self.mirror.remove_branches(stale)


def _rows(changes: DataFrame, work: BatchWork) -> DataFrame:
    upserts = changes.where(F.col(names.RANK) != tr.DELETE_RANK)
    return upserts.select(
        *(tr.sent_value(name, work.shape).alias(name) for name in work.shape.columns.names)
    )


def _source(changes: DataFrame, work: BatchWork) -> DataFrame:
    shape = work.shape
    return changes.select(
        *(tr.sent_value(name, shape).alias(name) for name in shape.columns.names),
        *(tr.keeps_value(name).alias(_KEEPS + name) for name in shape.marked),
        (F.col(names.RANK) == tr.DELETE_RANK).alias(_DELETES),
    )


def merge_statement(target: str, shape: Shape, barrier: tuple[str, ...] | None) -> str:
    """Write the MERGE. The changes are decided already: each key is in them once, and wins."""
    q = quoted
    on = " AND ".join(f"t.{q(key)} = s.{q(key)}" for key in shape.keys)
    sets = ", ".join(f"t.{q(name)} = {_value(name, shape)}" for name in shape.columns.names)
    columns = ", ".join(q(name) for name in shape.columns.names)
    values = ", ".join(f"s.{q(name)}" for name in shape.columns.names)
    clauses = [
        f"MERGE INTO {target} AS t USING {_SOURCE} AS s ON {on}",
        f"WHEN MATCHED AND s.{_DELETES} THEN DELETE",
        f"WHEN MATCHED THEN UPDATE SET {sets}",
        f"WHEN NOT MATCHED AND NOT s.{_DELETES} THEN INSERT ({columns}) VALUES ({values})",  # noqa: S608 - every name is quoted
    ]
    if barrier is not None:
        clauses.append(f"WHEN NOT MATCHED BY SOURCE AND {_is_older(barrier, shape)} THEN DELETE")
    return " ".join(clauses)


def _value(name: str, shape: Shape) -> str:
    sent = f"s.{quoted(name)}"
    if name not in shape.marked:
        return sent
    return f"CASE WHEN s.{quoted(_KEEPS + name)} THEN t.{quoted(name)} ELSE {sent} END"


def _is_older(barrier: tuple[str, ...], shape: Shape) -> str:
    own, other = [], []
    for number, (name, text) in enumerate(zip(shape.sequence, barrier, strict=True)):
        kind = shape.columns[name].dataType
        # As hexadecimal digits, so that no text can end the literal.
        literal = f"decode(unhex('{text.encode().hex()}'), 'UTF-8')"
        if is_binary(kind):
            literal = f"unhex({literal})"
        own += [f"'part{number}'", f"t.{quoted(name)}"]
        other += [f"'part{number}'", f"CAST({literal} AS {kind.simpleString()})"]
    return f"named_struct({', '.join(own)}) < named_struct({', '.join(other)})"
