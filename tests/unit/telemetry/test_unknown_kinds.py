"""A metric of a kind that this version does not know is a dead letter, and no other is."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric

from neve.signals import Signal
from neve.telemetry import unknown_kinds
from tests.support.decoding import decode_whole
from tests.support.wire import request, wrapped

REASON = "this version does not know the metric's kind (field 13)"
PATH = "resource_metrics[0].scope_metrics[0].metrics"


def gauge(value):
    metric = Metric(name="m")
    metric.gauge.data_points.add(as_int=value)
    return metric.SerializeToString()


# The first number that OTLP has not given away.
NEWER = wrapped(b"newer", 1) + wrapped(b"\x0a\x00", 13)
# A gauge and a sum: the request must be rewritten before it can be read.
AMBIGUOUS = gauge(1) + wrapped(Gauge().SerializeToString(), 7)


def decoded(*requests):
    result = decode_whole(Signal.METRICS, list(requests), [1] * len(requests))
    letters = [(one.request, one.path, one.reason) for one in result.dead_letters]
    return letters, result.tables["metrics_gauge"]["value_int"].to_pylist()


def test_it_is_set_aside_with_its_path_and_the_others_are_stored():
    letters, stored = decoded(request([gauge(1)]), request([gauge(2), NEWER, gauge(3), NEWER]))
    assert letters == [(1, f"{PATH}[1]", REASON), (1, f"{PATH}[3]", REASON)]
    assert stored == [1, 2, 3]


def test_it_is_found_in_a_request_that_must_be_rewritten_first():
    letters, stored = decoded(request([gauge(1)]), request([NEWER, AMBIGUOUS, gauge(3)]))
    assert letters == [(1, f"{PATH}[0]", REASON)]
    assert stored == [1, 3]


def test_positions_count_from_the_first_request_in_every_group(monkeypatch):
    monkeypatch.setattr("neve.limits.DECODE_GROUP_BYTES", 10)
    letters, _ = decoded(request([gauge(1)]), request([NEWER]), request([NEWER, AMBIGUOUS]))
    assert letters == [(1, f"{PATH}[0]", REASON), (2, f"{PATH}[0]", REASON)]


@pytest.mark.parametrize(
    "metric",
    [
        b"",
        wrapped(b"only a name", 1),
        wrapped(b"m", 1) + wrapped(b"", 13),
        wrapped(b"m", 1) + b"\x68\x05",
        gauge(1) + wrapped(b"new", 13),
        wrapped(b"", 5),
    ],
    ids=["empty", "name", "empty kind", "a number", "a known kind", "a gauge without points"],
)
def test_a_metric_without_data_of_a_new_kind_is_no_dead_letter(metric):
    letters, _ = decoded(request([metric]))
    assert letters == []


def test_metrics_of_known_kinds_are_not_looked_at_one_by_one(monkeypatch):
    def fail(requests):
        raise AssertionError

    monkeypatch.setattr(unknown_kinds, "read_metrics_wire", fail)
    assert decoded(request([gauge(1), gauge(2)])) == ([], [1, 2])


def test_one_that_protobuf_cannot_read_harms_no_other_request():
    # A length of ten bytes: ptars reads it, protobuf's own parser does not.
    poison = b"\x0a\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00a"
    letters, stored = decoded(request([gauge(1)]), request([gauge(2), poison]), request([gauge(3)]))
    assert [position for position, _, _ in letters] == [1]
    assert stored == [1, 3]
