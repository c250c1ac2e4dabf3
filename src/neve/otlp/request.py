"""Take a request at the door: is it OTLP, and how many records does it carry?

The door checks that a request decodes, and counts; it looks into no record. A record that decodes
but cannot be stored (a time after the year 2261, say) is accepted with its request and set aside
as a dead letter when the request becomes rows (`neve.telemetry`). So it is reported once, whole
and with its reason, where an operator can look at it again, and the hot path pays nothing for it.
`partial_success` is left to callers that make rows before they answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from neve.errors import MalformedError, TooLargeError
from neve.limits import MAX_RECORDS
from neve.otlp.json_mapping import from_json
from neve.signals import Signal

if TYPE_CHECKING:
    from google.protobuf.message import Message


@dataclass(frozen=True)
class ParsedRequest:
    """A request that decodes."""

    payload: bytes
    """Protobuf: the sender's own bytes, or the translation of its JSON."""
    records: int
    """How many log records, spans or data points it carries."""


def parse(signal: Signal, body: bytes, *, json: bool) -> ParsedRequest:
    """Check an uncompressed request and count its records.

    Raises:
        MalformedError: the body is not an OTLP request; sending it again will not help.
        TooLargeError: it has more than `MAX_RECORDS` records.
    """
    message = from_json(body, signal.request) if json else _from_protobuf(body, signal.request)
    records = count_records(signal, message)
    return ParsedRequest(message.SerializeToString() if json else body, records)


def _from_protobuf(body: bytes, message_type: type[Message]) -> Message:
    try:
        return message_type.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"the body is not a protobuf {message_type.__name__}") from error


def count_records(signal: Signal, request: Message) -> int:
    """Count log records, spans or data points: what `partial_success` counts.

    Raises:
        TooLargeError: there are more than `MAX_RECORDS` of them, or of what holds them.
    """
    resource_field, scope_field, record_field = signal.levels
    scopes = _members(_members([request], resource_field), scope_field)
    if signal is not Signal.METRICS:
        return _limited(sum(len(getattr(scope, record_field)) for scope in scopes))
    return _limited(
        sum(
            len(getattr(metric, kind).data_points)
            for metric in _members(scopes, record_field)
            if (kind := metric.WhichOneof("data"))
        )
    )


def _members(messages: list[Any], field: str) -> list[Any]:
    """All that the messages have under a repeated field, counted before it is gone through."""
    _limited(sum(len(getattr(message, field)) for message in messages))
    return [member for message in messages for member in getattr(message, field)]


def _limited(count: int) -> int:
    if count > MAX_RECORDS:
        raise TooLargeError(
            f"the request has {count} records, scopes or resources, more than {MAX_RECORDS}",
            hint="Send smaller batches.",
        )
    return count
