"""Audits of a staged batch: each a Column that counts, all of them in one aggregate pass. Pure.

An audit of single rows has a predicate that good rows satisfy; the others look at the batch as a
whole. A check that is not here is a function of the user's (`check: function`), which gets the
staged rows as a DataFrame. All audits of a batch share one clock, and where rows are set aside,
each predicate is evaluated once for each row: the files and the counts come of that one pass.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from neve.config import AuditSettings
from neve.errors import ConfigError, NeveError
from neve.lake.frames import with_fixed_clock
from neve.lake.identifier import quote_identifier
from neve.publish.audit_result import AuditResult

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Columns beside a batch's own: whether the row passes an audit, and the batch's clock.
_PASSES = "__neve_passes_"
_NOW = "__neve_now"


class Audit(Protocol):
    """What a user's own check is: staged rows in, whether they may be published out."""

    def __call__(self, rows: DataFrame) -> bool: ...


def is_good(audit: AuditSettings) -> Column | None:
    """Return the predicate that good rows satisfy; None for a check of the whole batch."""
    if audit.check == "not_null":
        return reduce(lambda a, b: a & b, [F.col(name).isNotNull() for name in audit.all_columns])
    if audit.check == "accepted_values":
        return F.coalesce(F.col(audit.all_columns[0]).isin(*audit.values), F.lit(True))  # noqa: FBT003
    if audit.check == "between":
        value = F.col(audit.all_columns[0])
        bounds = []
        if audit.min is not None:
            bounds.append(value >= F.lit(audit.min))
        if audit.max is not None:
            bounds.append(value <= F.lit(audit.max))
        return F.coalesce(reduce(lambda a, b: a & b, bounds), F.lit(True))  # noqa: FBT003
    if audit.check == "expression":
        return F.coalesce(F.expr(str(audit.expression)), F.lit(False))  # noqa: FBT003
    return None


def with_checks(rows: DataFrame, audits: Sequence[AuditSettings]) -> DataFrame:
    """Add to staged rows whether each passes the audits of single rows, by one clock."""
    checks = [
        column.alias(f"{_PASSES}{number}")
        for number, audit in enumerate(audits)
        if (column := is_good(audit)) is not None
    ]
    return with_fixed_clock(rows.select("*", *checks, F.current_timestamp().alias(_NOW)))


def with_failed_audits(
    checked: DataFrame, audits: Sequence[AuditSettings], column: str
) -> DataFrame:
    """Return staged rows with the names of the `set_aside` audits that each fails, in a column."""
    names = [
        F.when(~F.col(f"{_PASSES}{number}"), F.lit(audit.name))
        for number, audit in enumerate(audits)
        if audit.on_failure == "set_aside"
    ]
    own = [F.col(quote_identifier([name])) for name in checked.columns if not _is_added(name)]
    return checked.select(*own, F.array_compact(F.array(*names)).alias(column))


def is_set_aside(audits: Sequence[AuditSettings]) -> Column:
    """Return whether a checked row fails an audit with `set_aside`."""
    passes = (
        F.col(f"{_PASSES}{number}")
        for number, audit in enumerate(audits)
        if audit.on_failure == "set_aside"
    )
    return ~reduce(lambda one, other: one & other, passes)


def _is_added(column: str) -> bool:
    return column.startswith(_PASSES) or column == _NOW


def _count_failing(number: int, audit: AuditSettings) -> Column:
    """Return how many checked rows fail; for a check of the whole batch whether it does."""
    if is_good(audit) is not None:
        return F.count_if(~F.col(f"{_PASSES}{number}"))
    if audit.check == "unique":
        return F.count(F.lit(1)) - F.count_distinct(F.struct(*audit.all_columns))
    if audit.check == "row_count":
        rows = F.count(F.lit(1))
        too_few = rows < F.lit(audit.min if audit.min is not None else 0)
        too_many = rows > F.lit(audit.max) if audit.max is not None else F.lit(False)  # noqa: FBT003
        return F.when(too_few | too_many, 1).otherwise(0)
    newest = F.max(F.col(audit.all_columns[0]))
    age = F.unix_micros(F.max(_NOW)) - F.unix_micros(newest)
    is_old = age > F.lit(int((audit.max_age_seconds or 0) * 1_000_000))
    return F.when(F.coalesce(is_old, F.lit(True)), 1).otherwise(0)  # noqa: FBT003


def run_audits(
    rows: DataFrame, checked: DataFrame, audits: Sequence[AuditSettings], total: int
) -> list[AuditResult]:
    """Run all audits over staged rows: one pass for ours, one call for each of the user's.

    Args:
        checked: the same rows, as `with_checks` returns them.
        total: how many rows there are, as the snapshot's summary knows it.
    """
    ours = {n: audit for n, audit in enumerate(audits) if audit.check != "function"}
    counts: Mapping[str, Any] = {}
    if ours:
        columns = [_count_failing(n, audit).alias(f"__{n}") for n, audit in ours.items()]
        counts = checked.agg(*columns).first().asDict()  # type: ignore[union-attr]
    return [
        _result(audit, counts[f"__{n}"] or 0 if n in ours else _ask(audit, rows), total)
        for n, audit in enumerate(audits)
    ]


def analyse_audit(rows: DataFrame, audit: AuditSettings) -> None:
    """Let Spark analyse an audit against rows of the table's shape; reads no data.

    Raises what Spark raises about the expression or the columns, and ConfigError for a function
    that cannot be imported.
    """
    if audit.check == "function":
        _load(audit)
    else:
        _ = with_checks(rows, [audit]).agg(_count_failing(0, audit)).schema


def _ask(audit: AuditSettings, rows: DataFrame) -> int:
    try:
        return 0 if _load(audit)(rows) else 1
    except NeveError:
        raise
    except Exception as error:
        # Its message may quote rows, which have no place in a log.
        raise ConfigError(
            f"audit {audit.name}: the function {audit.function} raised {type(error).__name__}",
            hint="an audit's function takes the staged rows and returns a bool",
        ) from error


def _result(audit: AuditSettings, failing: int, total: int) -> AuditResult:
    allowed = 0
    if audit.check == "expression":
        allowed = int(total * (1 - audit.min_ratio) + 1e-9)
    return AuditResult(
        audit.name, audit.check, failing <= allowed, int(failing), int(total), audit.on_failure
    )


def _load(audit: AuditSettings) -> Callable[[DataFrame], bool]:
    module, _, name = str(audit.function).partition(":")
    try:
        found: Audit = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"audit {audit.name}: the function {audit.function} cannot be imported",
            hint="write package.module:function, and install it where Neve runs",
        ) from error
    return found
