"""Answers, word for word as the specification has them."""

import json

import pytest
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status

from neve.errors import (
    Code,
    MalformedError,
    NeveError,
    StorageError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
)
from neve.otlp import answer
from neve.signals import Signal


@pytest.mark.parametrize("signal", Signal)
def test_success_leaves_partial_success_unset(signal):
    assert answer.encode(answer.success(signal), json=False) == b""
    assert answer.encode(answer.success(signal), json=True) == b"{}"


@pytest.mark.parametrize(
    ("signal", "field"),
    [
        (Signal.LOGS, "rejectedLogRecords"),
        (Signal.TRACES, "rejectedSpans"),
        (Signal.METRICS, "rejectedDataPoints"),
    ],
)
def test_partial_success_counts_and_says_why(signal, field):
    partial = answer.success(signal, rejected=3, reason="too late")
    document = json.loads(answer.encode(partial, json=True))
    assert document == {"partialSuccess": {field: "3", "errorMessage": "too late"}}
    assert signal.response.FromString(answer.encode(partial, json=False)) == partial


@pytest.mark.parametrize(
    ("error", "http", "grpc"),
    [
        (MalformedError("x"), 400, code_pb2.INVALID_ARGUMENT),
        (TooLargeError("x"), 413, code_pb2.RESOURCE_EXHAUSTED),
        (UnsupportedError("x"), 415, code_pb2.UNIMPLEMENTED),
        (NeveError("x", code=Code.REFUSED), 401, code_pb2.UNAUTHENTICATED),
        (StorageError("x"), 503, code_pb2.UNAVAILABLE),
    ],
)
def test_only_what_can_never_succeed_is_not_retryable(error, http, grpc):
    assert (answer.http_status(error), answer.grpc_status(error)) == (http, grpc)


def test_overload_carries_retry_info():
    overload = answer.failure(UnavailableError("busy"), 1.5)
    read = Status.FromString(answer.encode(overload, json=False))
    retry = RetryInfo()
    assert read.details[0].Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() == 1500
    assert json.loads(answer.encode(overload, json=True)) == {
        "code": 14,
        "message": "busy",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.500s"}],
    }


def test_a_final_failure_carries_none():
    assert not answer.failure(MalformedError("no"), None).details


def test_a_malformed_request_is_told_which_field():
    failure = answer.failure(MalformedError("x.y is broken", field="x.y"), None)
    details = BadRequest()
    assert failure.details[0].Unpack(details)
    [violation] = details.field_violations
    assert (violation.field, violation.description) == ("x.y", "x.y is broken")


def test_a_warning_rejects_nothing():
    warning = answer.success(Signal.LOGS, reason="a field is unknown")
    document = json.loads(answer.encode(warning, json=True))
    assert document == {"partialSuccess": {"errorMessage": "a field is unknown"}}


def test_content_types():
    assert answer.content_type(json=True) == "application/json"
    assert answer.content_type(json=False) == "application/x-protobuf"


def test_signals_know_their_names():
    assert [s.http_path for s in Signal] == ["/v1/logs", "/v1/traces", "/v1/metrics"]
    assert Signal.TRACES.grpc_method == (
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    )
    for signal in Signal:
        file = signal.request.DESCRIPTOR.file
        (service,) = file.services_by_name.values()
        assert service.full_name == signal.grpc_service
        (method,) = service.methods
        assert method.name == "Export"
        assert method.input_type is signal.request.DESCRIPTOR
        assert method.output_type is signal.response.DESCRIPTOR
