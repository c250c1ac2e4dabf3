"""How the rows of a batch reach the mirror: by Iceberg's own MERGE INTO, on a branch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from neve.lake.identifier import quote_identifier
from neve.lake.java_tables import JavaTable, sorted_faults
from neve.lake.profile import DEFAULT_CATALOG
from neve.merge import names
from neve.merge import transforms as tr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake
    from neve.merge.batch import BatchWork

_SOURCE = "neve_changes"
_DELETES = "_neve_deletes"
_KEEPS = "_neve_keeps_"


class MergeInto:
    """Applies a batch with one statement; Spark finds the rows by joining keys."""

    def __init__(self, lake: Lake, mirror: JavaTable, branch: str) -> None:
        self.lake = lake
        self.mirror = mirror
        self.branch = branch

    def apply(self, work: BatchWork, summary: Mapping[str, str]) -> None:
        """Commit one snapshot to the branch, with the summary on it.

        The session's settings carry the summary to what Spark commits.
        """
        changes = work.effective
        if changes is None:
            raise AssertionError("look_up comes first")
        target = quote_identifier(
            (DEFAULT_CATALOG, *self.mirror.identifier, f"branch_{self.branch}")
        )
        counts = work.counts
        changed = counts.upserted or counts.deleted or counts.truncated
        if not changed and not work.found.rebuild:
            self.mirror.append_nothing(self.branch, summary)
            return
        with sorted_faults(self.lake, self.mirror.name, "the merge"):
            if work.found.mirror_is_empty:
                rows = _rows(changes, work).writeTo(target)
                if work.found.rebuild:
                    rows.overwrite(F.lit(True))
                else:
                    rows.append()
                return
            _source(changes, work).createOrReplaceTempView(_SOURCE)
            work.session.sql(merge_statement(target, work.shape, work.barrier))


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


def merge_statement(target: str, shape: tr.Shape, barrier: tuple[str, ...] | None) -> str:
    """Write the MERGE. The changes are decided already: each key is in them once, and wins."""
    q = tr.quoted
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


def _value(name: str, shape: tr.Shape) -> str:
    sent = f"s.{tr.quoted(name)}"
    if name not in shape.marked:
        return sent
    return f"CASE WHEN s.{tr.quoted(_KEEPS + name)} THEN t.{tr.quoted(name)} ELSE {sent} END"


def _is_older(barrier: tuple[str, ...], shape: tr.Shape) -> str:
    fields = {field.name: field.dataType for field in shape.columns}
    own, other = [], []
    for name, text in zip(shape.sequence, barrier, strict=True):
        # As hexadecimal digits, so that no text can end the literal.
        literal = f"decode(unhex('{text.encode().hex()}'), 'UTF-8')"
        if tr.is_binary(fields[name]):
            literal = f"unhex({literal})"
        own += [f"'{_label(name, shape)}'", f"t.{tr.quoted(name)}"]
        other += [f"'{_label(name, shape)}'", f"CAST({literal} AS {fields[name].simpleString()})"]
    return f"named_struct({', '.join(own)}) < named_struct({', '.join(other)})"


def _label(name: str, shape: tr.Shape) -> str:
    return f"part{shape.sequence.index(name)}"
