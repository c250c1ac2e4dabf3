"""Applies a batch with Iceberg's own statement, MERGE INTO: right for most of a table.

The other strategies are tested against it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from neve import failpoints
from neve.errors import NeveError, UnknownOutcomeError
from neve.lake.identifier import quote_identifier
from neve.lake.java_commits import committing_in_java
from neve.lake.java_tables import JavaTable
from neve.merge import columns as cols
from neve.merge import transforms as tr
from neve.merge.checkpoint import BATCH_ID
from neve.merge.double_entry import require_written
from neve.merge.mirror import MERGE_MODE, MERGE_ON_READ, source_properties
from neve.merge.shape import Shape, is_binary, quoted

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyspark.sql import Column, DataFrame

    from neve.merge.batch import BatchWork
    from neve.merge.plan import Look
    from neve.merge.side_tables import SideTable

BRANCH_PREFIX = "neve-merge-"
STALE_BRANCH_SECONDS = 3600
_BRANCH = re.compile(rf"{BRANCH_PREFIX}(?P<seconds>\d+)-[0-9a-f]+")

_SOURCE = "neve_changes"
_DELETES = "_neve_deletes"
_KEEPS = "_neve_keeps_"
_NEVER_MATCHES = "_neve_never_matches"


@dataclass(frozen=True)
class MergeInto:
    """Applies a batch with one statement on a branch, and moves `main` there."""

    mirror: JavaTable
    tombstones: SideTable

    def write(self, work: BatchWork, batch_id: str, now: datetime) -> list[DataFile]:
        if not work.counts.tombstones:
            return []
        files = self.tombstones.write(work.tombstones(batch_id, now))
        written = sum(file.record_count for file in files)
        require_written(work.spec.name, "tombstones", work.counts.tombstones, written)
        return files

    def commit(self, work: BatchWork, summary: Mapping[str, str]) -> None:
        self._remove_stale_branches(work.tables)
        branch = f"{BRANCH_PREFIX}{int(time.time())}-{summary[BATCH_ID][:12]}"
        self.mirror.create_branch(branch, work.main_id)
        try:
            self._apply(work, summary, branch)
            self._require_written(work, branch)
            failpoints.reach("merge.applied")
            replaced = source_properties(work.spec, work.tables) if work.tables.rebuild else {}
            self.mirror.publish_branch(branch, work.main_id, replaced)
        except UnknownOutcomeError:
            raise
        except NeveError:
            self.mirror.remove_branches([branch])
            raise

    def _apply(self, work: BatchWork, summary: Mapping[str, str], branch: str) -> None:
        carried = {f"spark.sql.iceberg.snapshot-property.{key}": summary[key] for key in summary}
        for key, value in carried.items():
            # What Spark commits in this session carries it. Nobody else uses the session now.
            work.session.conf.set(key, value)
        try:
            self._write_rows(work, summary, branch)
        finally:
            for key in carried:
                work.session.conf.unset(key)
            work.session.catalog.dropTempView(_SOURCE)

    def _write_rows(self, work: BatchWork, summary: Mapping[str, str], branch: str) -> None:
        ref = self.mirror.ref
        target = quote_identifier((ref.catalog, *ref.identifier, f"branch_{branch}"))
        counts, tables = work.counts, work.tables
        if not (counts.upserted or counts.deleted or counts.has_truncate or tables.rebuild):
            self.mirror.append_nothing(branch, summary)
            return
        changes = work.changes()
        with committing_in_java(self.mirror.name, "the merge"):
            if not tables.mirror_is_empty:
                _source(work).createOrReplaceTempView(_SOURCE)
                work.session.sql(merge_statement(target, work.shape, work.barrier))
            elif tables.rebuild:
                _rows(changes, work).writeTo(target).overwrite(F.lit(True))
            else:
                _rows(changes, work).writeTo(target).append()

    def _require_written(self, work: BatchWork, branch: str) -> None:
        """Refuse a commit that has added other rows than were counted. Raises UnbalancedError."""
        mirror = work.tables.mirror
        writes_all = mirror is not None and mirror.properties.get(MERGE_MODE) != MERGE_ON_READ
        if writes_all and not work.tables.mirror_is_empty:
            # Somebody has set it: then whole files are written anew, with rows that do not change.
            return
        written = self.mirror.added_records(branch)
        require_written(work.spec.name, "rows", work.counts.upserted, written)

    def _remove_stale_branches(self, tables: Look) -> None:
        """Forget what killed workers left; those at work may still need theirs.

        A branch can be published while `main` is where it began, however long its merge takes.
        """
        if tables.mirror is None or tables.state is None:
            return
        before, main_id = time.time() - STALE_BRANCH_SECONDS, tables.state.main_id
        stale = []
        for name, ref in tables.mirror.refs.items():
            begun = _BRANCH.fullmatch(name)
            head = tables.mirror.snapshot_by_id(ref.snapshot_id)
            if begun is None or head is None or int(begun["seconds"]) >= before:
                continue
            if main_id not in (head.snapshot_id, head.parent_snapshot_id):
                stale.append(name)
        if stale:
            self.mirror.remove_branches(stale)


def _rows(changes: DataFrame, work: BatchWork) -> DataFrame:
    upserts = changes.where(F.col(cols.RANK) != tr.DELETE_RANK)
    return upserts.select(
        *(tr.sent_value(name, work.shape).alias(name) for name in work.shape.columns.names)
    )


def _source(work: BatchWork) -> DataFrame:
    changes, shape = work.changes(), work.shape
    is_delete = F.col(cols.RANK) == tr.DELETE_RANK

    def source(rows: DataFrame, deletes: Column, *, never_matches: bool = False) -> DataFrame:
        value = tr.final_value if never_matches else tr.sent_value
        return rows.select(
            *(value(name, shape).alias(name) for name in shape.columns.names),
            *(tr.keeps_value(name).alias(_KEEPS + name) for name in shape.marked),
            deletes.alias(_DELETES),
            F.lit(never_matches).alias(_NEVER_MATCHES),
        )

    if not work.counts.duplicate_keys:
        return source(changes, is_delete)
    # The statement would write a new row in the place of each row of a key. So one row of the
    # source deletes them all, and another one, which matches none of them, is inserted.
    keys = list(shape.keys)
    duplicates = work.duplicates().select(*map(quoted, keys)).distinct()
    several = changes.join(duplicates, on=keys, how="left_semi")
    return (
        source(changes.join(duplicates, on=keys, how="left_anti"), is_delete)
        .unionByName(source(several, F.lit(True)))
        .unionByName(source(several.where(~is_delete), F.lit(False), never_matches=True))
    )


def merge_statement(target: str, shape: Shape, barrier: tuple[str, ...] | None) -> str:
    """Write the MERGE. The changes are decided already: each key is in them once, and wins."""
    q = quoted
    on = " AND ".join(f"t.{q(key)} = s.{q(key)}" for key in shape.keys)
    sets = ", ".join(f"t.{q(name)} = {_value(name, shape)}" for name in shape.columns.names)
    columns = ", ".join(q(name) for name in shape.columns.names)
    values = ", ".join(f"s.{q(name)}" for name in shape.columns.names)
    clauses = [
        f"MERGE INTO {target} AS t USING {_SOURCE} AS s ON {on} AND NOT s.{_NEVER_MATCHES}",
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
