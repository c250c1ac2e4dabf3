"""Arrays and maps inside attribute values to compact JSON: rare, recursive, decoded one by one."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from neve.telemetry.wire import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The numbers JSON does not have, in the words of protobuf's JSON mapping.
NAN = "NaN"
INFINITY = "Infinity"
NEGATIVE_INFINITY = "-Infinity"


class NestedText:
    """Writes nested values as JSON, and counts the equal keys it had to leave out."""

    def __init__(self) -> None:
        self.duplicate_keys = 0

    def array(self, members: Sequence[bytes]) -> str:
        """The members of an ArrayValue, still in wire format, as a JSON array."""
        try:
            return _compact([self._plain(AnyValue.FromString(member)) for member in members])
        except DecodeError as error:
            raise UnreadableError from error

    def map(self, members: Sequence[bytes]) -> str:
        """The members of a KeyValueList, still in wire format, as a JSON object."""
        try:
            return _compact(self._plain_map([KeyValue.FromString(member) for member in members]))
        except DecodeError as error:
            raise UnreadableError from error

    def _plain(self, value: AnyValue) -> Any:
        kind = value.WhichOneof("value")
        if kind is None or kind == "string_value_strindex":
            return None
        if kind == "array_value":
            return [self._plain(member) for member in value.array_value.values]
        if kind == "kvlist_value":
            return self._plain_map(value.kvlist_value.values)
        if kind == "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        if kind == "double_value" and not math.isfinite(value.double_value):
            return _special(value.double_value)
        return getattr(value, kind)

    def _plain_map(self, members: Iterable[KeyValue]) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for member in members:
            if member.key in plain:
                # Taken out first, so that the last of equal keys also stands last.
                del plain[member.key]
                self.duplicate_keys += 1
            plain[member.key] = self._plain(member.value)
        return plain


def _special(double: float) -> str:
    if math.isnan(double):
        return NAN
    return INFINITY if double > 0 else NEGATIVE_INFINITY


def _compact(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
