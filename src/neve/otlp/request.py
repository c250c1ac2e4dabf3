"""Check a request: is it OTLP, is it within the limits, and how many records does it carry?

The check counts what a request holds on the wire and looks into no record. A record that decodes
but cannot be stored (a time after the year 2261, say) is accepted with its request and set aside
as a dead letter when the request becomes rows (`neve.telemetry`). So it is reported once, whole
and with its reason, where an operator can look at it again, and the hot path pays nothing for it.
"""

from __future__ import annotations

from typing import NamedTuple

from neve import limits
from neve.otlp.json_mapping import from_json
from neve.otlp.wire_scan import check_json_size, repair_texts, scan
from neve.signals import Signal


class CheckedRequest(NamedTuple):
    """A request that decodes, as it is to be stored."""

    payload: bytes | bytearray
    """Protobuf: the sender's own bytes, or those of its JSON, with every text in UTF-8."""
    records: int
    """How many log records, spans or data points it carries."""
    invalid_texts: int = 0
    """How many texts were not UTF-8."""
    unknown_fields: int = 0
    """How many fields have content that this version does not know; no table has them."""
    first_unknown: str = ""

    @property
    def warning(self) -> str:
        """What the sender is told beside success; empty when there is nothing to tell."""
        if not self.unknown_fields:
            return ""
        return (
            f"fields that are unknown to this version of Neve are in none of its tables: "
            f"{self.unknown_fields}, the first is {self.first_unknown}"
        )


def check(
    signal: Signal,
    body: bytes,
    *,
    json: bool,
    most_repaired_bytes: int = limits.LARGEST_REQUEST_BYTES,
) -> CheckedRequest:
    """Check an uncompressed request and count its records.

    Args:
        most_repaired_bytes: of the request with its texts in UTF-8, if they were not.

    Raises:
        MalformedError: the body is not an OTLP request; sending it again will not help.
        TooLargeError: it holds more than `neve.limits` allows.
    """
    if json:
        return _check_json(signal, body)
    scanned = scan(signal, body)
    payload: bytes | bytearray = body
    if scanned.invalid_texts:
        payload = repair_texts(signal, body, most_repaired_bytes)
    return CheckedRequest(
        payload,
        scanned.records,
        scanned.invalid_texts,
        scanned.unknown_fields,
        scanned.first_unknown,
    )


def _check_json(signal: Signal, body: bytes) -> CheckedRequest:
    check_json_size(body)
    translated = from_json(body, signal.request)
    payload = translated.message.SerializeToString()
    return CheckedRequest(
        payload,
        scan(signal, payload).records,
        translated.invalid_texts,
        translated.unknown_keys,
        translated.first_unknown,
    )
