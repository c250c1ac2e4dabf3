"""Metrics of a kind that this version does not know: dead letters, since no table can hold them.

A kind is a member of the metric's oneof, and a later version of OTLP may add one. Such a metric
has none of the known members, but has a field with content that protobuf does not know. A metric
that has neither holds no data points, and nothing is lost when no row comes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from neve.telemetry.rows import DeadLetter
from neve.telemetry.wire import UnreadableError, read_metrics_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neve.telemetry.arrays import Column, Integers
    from neve.telemetry.context import Context

# Strings, bytes and messages, as the encoding of protobuf numbers its wire types.
_LENGTH_DELIMITED = 2


def unknown_kinds_on_wire(
    context: Context, requests: Column, metrics_without_kind: Integers
) -> list[DeadLetter]:
    """Find the metrics of unknown kinds among those without a known one.

    Raises:
        UnreadableError: a request cannot be read.
    """
    if not len(metrics_without_kind):
        return []
    wire = read_metrics_wire(requests).take(pa.array(metrics_without_kind))
    has_content = pc.greater(pc.binary_length(wire), 0).to_numpy(zero_copy_only=False)
    letters = []
    for position in np.flatnonzero(has_content).tolist():
        (sent,) = wire.slice(position, 1).to_pylist()
        fields = _unknown_fields(_parse(sent))
        if fields:
            request, path = context.place(int(metrics_without_kind[position]))
            letters.append(DeadLetter(request, path, _reason(fields)))
    return letters


def _parse(sent: bytes) -> Metric:
    try:
        return Metric.FromString(sent)
    except DecodeError as error:
        # ptars reads varints that protobuf's own parser refuses.
        raise UnreadableError from error


def unknown_kinds_in_message(request: int, message: Any) -> Iterator[DeadLetter]:
    """Find the metrics of unknown kinds in a request that protobuf's own parser has read."""
    for i, resource in enumerate(message.resource_metrics):
        for j, scope in enumerate(resource.scope_metrics):
            for k, metric in enumerate(scope.metrics):
                fields = _unknown_fields(metric)
                if metric.WhichOneof("data") is None and fields:
                    path = f"resource_metrics[{i}].scope_metrics[{j}].metrics[{k}]"
                    yield DeadLetter(request, path, _reason(fields))


def _unknown_fields(metric: Metric) -> list[int]:
    """Return the numbers of the fields with content that this version does not know."""
    unknown = UnknownFieldSet(metric)
    fields = [unknown[position] for position in range(len(unknown))]
    return [
        field.field_number
        for field in fields
        if field.wire_type == _LENGTH_DELIMITED and field.data
    ]


def _reason(fields: list[int]) -> str:
    return f"this version does not know the metric's kind (field {fields[0]})"
