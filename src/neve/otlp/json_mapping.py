"""OTLP/JSON to protobuf messages.

Protobuf's own `json_format` is not used: it reads OTLP's hex ids as base64, drops characters that
are not base64 at all, and keeps one of two equal keys. Here whatever is not understood is refused,
except unknown keys, which the specification wants ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from google.protobuf.descriptor import FieldDescriptor

from neve.errors import MalformedError
from neve.limits import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.message import Message

# The fields OTLP writes in hex where protobuf's JSON has base64.
HEX_FIELDS = frozenset({"trace_id", "span_id", "parent_span_id"})

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SPECIAL_DOUBLES = frozenset({"NaN", "Infinity", "-Infinity"})


def from_json(body: bytes, message_type: type[Message]) -> Message:
    """Translate one OTLP/JSON request.

    Raises:
        MalformedError: the body is not JSON, or not of this message's shape.
    """
    message = message_type()
    try:
        document = json.loads(
            body.decode(),
            # A float would round nanoseconds written as 1.7E18.
            parse_float=Decimal,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object,
        )
        _fill(message, document, depth=0)
    except MalformedError:
        raise
    # ArithmeticError: an exponent no Decimal holds. ValueError: not UTF-8, not JSON, a number of
    # thousands of digits, a lone surrogate. RecursionError: brackets nested by the thousand.
    except (ArithmeticError, RecursionError, ValueError) as error:
        raise MalformedError(f"the body is not OTLP/JSON: {error}") from error
    return message


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise MalformedError("the body is not OTLP/JSON: a key occurs twice in one object")
    return members


def _refuse_constant(text: str) -> NoReturn:
    raise MalformedError(f'the body is not OTLP/JSON: write {text} as "{text}"')


@dataclass(frozen=True)
class _Field:
    name: str
    repeated: bool
    oneof: str | None
    convert: Callable[[Any], Any] | None
    """From JSON to the field's scalar type; None for messages."""


@cache
def _fields(descriptor: Descriptor) -> dict[str, _Field]:
    """The fields of a message by both of their names; the Collector accepts both, too."""
    fields = {}
    for field in descriptor.fields:
        oneof = field.containing_oneof
        known = _Field(
            field.name, field.is_repeated, oneof.name if oneof else None, _converter(field)
        )
        fields[field.name] = fields[field.json_name] = known
    return fields


def _fill(message: Message, document: Any, depth: int) -> None:
    descriptor = message.DESCRIPTOR
    if not isinstance(document, dict):
        raise _unfit(descriptor.name, "an object", document)
    if depth > MAX_DEPTH:
        raise MalformedError(f"the request nests deeper than {MAX_DEPTH} messages")
    fields = _fields(descriptor)
    seen = set()
    for key, value in document.items():
        field = fields.get(key)
        if field is None or value is None:
            continue
        # Two members of one oneof, or one field under both names: one of them would be lost.
        if (taken := field.oneof or field.name) in seen:
            raise MalformedError(f"{descriptor.name}.{key}: {taken} is given twice")
        seen.add(taken)
        try:
            _set(message, field, value, depth)
        except (TypeError, ValueError) as error:
            raise MalformedError(f"{descriptor.name}.{key}: {error}") from error


def _set(message: Message, field: _Field, value: Any, depth: int) -> None:
    if field.repeated:
        if not isinstance(value, list):
            raise _unfit(field.name, "an array", value)
        items = getattr(message, field.name)
        if field.convert:
            items.extend([field.convert(item) for item in value])
        else:
            for item in value:
                _fill(items.add(), item, depth + 1)
    elif field.convert:
        setattr(message, field.name, field.convert(value))
    else:
        member = getattr(message, field.name)
        # An empty object is present, too: {"arrayValue": {}} is an empty array, not nothing.
        member.SetInParent()
        _fill(member, value, depth + 1)


def _unfit(name: str, wanted: str, value: Any) -> MalformedError:
    return MalformedError(f"{name} must be {wanted}, not a JSON {type(value).__name__}")


def _converter(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.message_type:
        return None
    if field.enum_type:
        return _enum_converter(field.enum_type)
    if field.name in HEX_FIELDS:
        return _hex
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _base64
    convert: Callable[[Any], Any] = _SCALARS.get(field.cpp_type, _integer)
    return convert


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("must be a string")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be true or false")
    return value


def _number(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if type(value) is int:
        return Decimal(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    raise TypeError("must be a number, or a string that holds one")


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    number = _number(value)
    # The size first: writing out an exponent of millions takes for ever.
    if abs(number) >= 1 << 64 or number != int(number):
        raise ValueError("must be an integer of at most 64 bits")
    return int(number)


def _double(value: Any) -> float:
    if isinstance(value, str) and value in _SPECIAL_DOUBLES:
        return float(value)
    double = float(_number(value))
    if double in (float("inf"), float("-inf")):
        raise ValueError("is beyond a double")
    return double


def _hex(value: Any) -> bytes:
    # bytes.fromhex and int skip white space; unhexlify takes nothing but digits.
    try:
        return binascii.unhexlify(_string(value))
    except binascii.Error as error:
        raise ValueError("must be hexadecimal") from error


def _base64(value: Any) -> bytes:
    text = _string(value).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("must be base64") from error


def _enum_converter(enum: EnumDescriptor) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        # Numbers only, says OTLP; names are taken because older senders write them.
        if isinstance(value, str) and value in enum.values_by_name:
            return enum.values_by_name[value].number
        return _integer(value)

    return convert


_SCALARS: Mapping[int, Callable[[Any], Any]] = {
    FieldDescriptor.CPPTYPE_STRING: _string,
    FieldDescriptor.CPPTYPE_BOOL: _boolean,
    FieldDescriptor.CPPTYPE_DOUBLE: _double,
}
