"""Data points to rows of the five metric tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from neve.telemetry.attributes import attribute_columns
from neve.telemetry.columns import EnumWords, hex_column, long_column, struct_lists
from neve.telemetry.context import Level, timestamps
from neve.telemetry.faults import Faults
from neve.telemetry.inherited import Inherited
from neve.telemetry.rows import TableRows
from neve.telemetry.schemas import DOUBLES, EXEMPLAR, QUANTILE
from neve.telemetry.wire import only_one_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.telemetry.arrays import Column, Integers, Lists, Messages
    from neve.telemetry.context import Context
    from neve.telemetry.equal_keys import Tally

KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")

_TEMPORALITIES = EnumWords(AggregationTemporality.DESCRIPTOR, "AGGREGATION_TEMPORALITY_")


def metric_rows(context: Context) -> list[TableRows]:
    """Return one row for each data point, in the table of its metric's kind."""
    metric = _metric_columns(context)
    return [_point_rows(context, kind, metric) for kind in KINDS]


def metrics_without_kind(context: Context) -> Integers:
    """Return the positions of the metrics that have none of the kinds this version knows.

    Raises:
        UnreadableError: a metric has more than one.
    """
    return np.flatnonzero(only_one_of(context.records.members, KINDS) == 0)


def _metric_columns(context: Context) -> dict[str, Column]:
    metric = context.records.members
    return {
        "metric_name": metric.field("name"),
        "metric_description": metric.field("description"),
        "metric_unit": metric.field("unit"),
        **attribute_columns("metric_metadata", metric.field("metadata"), context.tally),
    }


def _point_rows(context: Context, kind: str, metric_columns: dict[str, Column]) -> TableRows:
    data = context.records.members.field(kind)
    points = Level("data_points", data.field("data_points"))
    point = points.members
    faults = Faults(len(point))
    start = faults.time("start_time_unix_nano", point.field("start_time_unix_nano"))
    time = faults.time("time_unix_nano", point.field("time_unix_nano"))
    inherited = [
        *context.inherited(points.owners),
        Inherited({**metric_columns, **_kind_columns(data)}, points.owners),
    ]
    own = {
        "timestamp": timestamps(inherited, time),
        **attribute_columns("attributes", point.field("attributes"), context.tally),
        "start_time_unix_nano": start,
        "time_unix_nano": time,
        "flags": long_column(point.field("flags")),
        **_POINT_COLUMNS[kind](point, faults),
    }
    if kind != "summary":
        own["exemplars"] = _exemplars(point.field("exemplars"), faults, context.tally)

    def place(row: int) -> tuple[int, str]:
        request, path = context.place(int(points.owners[row]))
        return request, f"{path}.{kind}.{points.path_step(row)}"

    return TableRows.without_faults(f"metrics_{kind}", own, inherited, faults, place)


def _kind_columns(data: Messages) -> dict[str, Column]:
    """Return what a metric of this kind says beside its points."""
    columns: dict[str, Column] = {}
    if data.type.get_field_index("aggregation_temporality") >= 0:
        numbers = data.field("aggregation_temporality")
        columns["aggregation_temporality"] = _TEMPORALITIES.column(numbers)
    if data.type.get_field_index("is_monotonic") >= 0:
        columns["is_monotonic"] = data.field("is_monotonic")
    return columns


def _number_columns(point: Messages, _: Faults) -> dict[str, Column]:
    only_one_of(point, ("as_double", "as_int"))
    integers = point.field("as_int")
    # Beyond 2^53 a double is the nearest one; the exact integer stands beside it.
    converted = integers.cast(pa.float64(), safe=False)
    return {"value": pc.coalesce(point.field("as_double"), converted), "value_int": integers}


def _distribution_columns(point: Messages, faults: Faults) -> dict[str, Column]:
    return {
        "count": faults.long("count", point.field("count")),
        **{name: point.field(name) for name in ("sum", "min", "max")},
    }


def _histogram_columns(point: Messages, faults: Faults) -> dict[str, Column]:
    return {
        **_distribution_columns(point, faults),
        "bucket_counts": faults.longs("bucket_counts", point.field("bucket_counts")),
        "explicit_bounds": point.field("explicit_bounds").cast(DOUBLES),
    }


def _exponential_columns(point: Messages, faults: Faults) -> dict[str, Column]:
    columns: dict[str, Column] = {
        **_distribution_columns(point, faults),
        "scale": point.field("scale"),
        "zero_count": faults.long("zero_count", point.field("zero_count")),
        "zero_threshold": point.field("zero_threshold"),
    }
    for side in ("positive", "negative"):
        buckets = point.field(side)
        columns[f"{side}_offset"] = buckets.field("offset")
        columns[f"{side}_bucket_counts"] = faults.longs(
            f"{side}.bucket_counts", buckets.field("bucket_counts")
        )
    return columns


def _summary_columns(point: Messages, faults: Faults) -> dict[str, Column]:
    return {
        "count": faults.long("count", point.field("count")),
        "sum": point.field("sum"),
        "quantiles": point.field("quantile_values").cast(pa.list_(QUANTILE)),
    }


def _exemplars(lists: Lists, point_faults: Faults, tally: Tally) -> Lists:
    exemplar = lists.values
    faults = point_faults.of_members(lists)
    columns = {
        "time_unix_nano": faults.time("exemplars.time_unix_nano", exemplar.field("time_unix_nano")),
        **_number_columns(exemplar, faults),
        "trace_id": hex_column(exemplar.field("trace_id")),
        "span_id": hex_column(exemplar.field("span_id")),
        **attribute_columns("filtered_attributes", exemplar.field("filtered_attributes"), tally),
    }
    return struct_lists(lists, columns, EXEMPLAR)


_POINT_COLUMNS: dict[str, Callable[[Messages, Faults], dict[str, Column]]] = {
    "gauge": _number_columns,
    "sum": _number_columns,
    "histogram": _histogram_columns,
    "exponential_histogram": _exponential_columns,
    "summary": _summary_columns,
}
