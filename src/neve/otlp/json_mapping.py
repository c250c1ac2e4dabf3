"""OTLP/JSON to protobuf messages.

Protobuf's own `json_format` is not used: it reads OTLP's hex ids as base64, drops characters that
are not base64 at all, and keeps one of two equal keys. Here whatever is not understood is refused,
except unknown keys, which the specification wants ignored: those with content are counted. A field
has one name, in lowerCamelCase; any other spelling is an unknown key.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict

from neve.errors import MalformedError
from neve.limits import KIB, MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.message import Message

# A long text is decoded and encoded in steps, so that other threads run in between.
STEP = 256 * KIB

# The fields OTLP writes in hex where protobuf's JSON has base64.
HEX_FIELDS = frozenset({"trace_id", "span_id", "parent_span_id"})
_HEX_KEYS = frozenset({"traceId", "spanId", "parentSpanId"})
# Known by name, and meaningful in profiles only: no table has a column for them.
NOT_STORED = frozenset({"key_strindex", "string_value_strindex"})

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
# All surrogates but those that stand for a byte that is not UTF-8 (PEP 383).
_HALF_OF_A_PAIR = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_SPECIAL_DOUBLES = frozenset({"NaN", "Infinity", "-Infinity"})


@dataclass
class Translation:
    """A translated request, and what was found on the way."""

    message: Message
    invalid_texts: int = 0
    """Texts that are not Unicode: bytes that are not UTF-8, or half of a surrogate pair."""
    unknown_keys: int = 0
    """Keys with content that this version does not know."""
    first_unknown: str = ""

    def note_unknown(self, name: str) -> None:
        self.unknown_keys += 1
        self.first_unknown = self.first_unknown or name


def from_json(body: bytes, message_type: type[Message]) -> Translation:
    """Translate one OTLP/JSON request.

    Raises:
        MalformedError: the body is not JSON, or not of this message's shape; it names the field.
    """
    translation = Translation(message_type())
    try:
        document = json.loads(
            _decode(body),
            # A float would round nanoseconds written as 1.7E18.
            parse_float=Decimal,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object,
        )
        _fill(translation, translation.message, document, depth=0)
    except MalformedError:
        raise
    # ArithmeticError: an exponent no Decimal holds. ValueError: not JSON, a number of thousands of
    # digits. RecursionError: brackets nested by the thousand.
    except (ArithmeticError, RecursionError, ValueError) as error:
        raise MalformedError(f"the body is not OTLP/JSON: {error}") from error
    return translation


def _decode(body: bytes) -> str:
    """Decode UTF-8; other bytes become lone surrogates, from which `_repair` gets them back."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        # This takes a hundred times as long.
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        parts = [decoder.decode(body[start : start + STEP]) for start in range(0, len(body), STEP)]
        return "".join([*parts, decoder.decode(b"", final=True)])


def to_json(message: Message) -> Any:
    """Return a message as OTLP/JSON has it: ids in hex, enumerations as numbers."""
    return _with_hex_ids(MessageToDict(message, use_integers_for_enums=True))


def _with_hex_ids(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_hex_ids(member) for member in node]
    if not isinstance(node, dict):
        return node
    return {
        key: base64.b64decode(value).hex() if key in _HEX_KEYS else _with_hex_ids(value)
        for key, value in node.items()
    }


class _Object(dict[str, Any]):
    """A JSON object in which keys occur twice; the last value of each is kept."""

    repeated: frozenset[str]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    times = Counter(name for name, _ in pairs)
    document = _Object(members)
    document.repeated = frozenset(name for name, count in times.items() if count > 1)
    return document


def _refuse_constant(text: str) -> NoReturn:
    raise MalformedError(f'the body is not OTLP/JSON: write {text} as "{text}"')


@dataclass(frozen=True)
class _Field:
    name: str
    repeated: bool
    oneof: str | None
    is_text: bool
    is_stored: bool
    convert: Callable[[Any], Any] | None
    """From JSON to the field's scalar type; None for messages."""


@cache
def _fields(descriptor: Descriptor) -> dict[str, _Field]:
    """Return the fields of a message by their names in JSON."""
    return {
        field.json_name: _Field(
            field.name,
            field.is_repeated,
            field.containing_oneof.name if field.containing_oneof else None,
            field.type == FieldDescriptor.TYPE_STRING,
            field.name not in NOT_STORED,
            _converter(field),
        )
        for field in descriptor.fields
    }


def _fill(translation: Translation, message: Message, document: Any, depth: int) -> None:
    descriptor = message.DESCRIPTOR
    if not isinstance(document, dict):
        raise _unfit("an object", document)
    if depth > MAX_DEPTH:
        raise MalformedError(f"the request nests deeper than {MAX_DEPTH} messages")
    fields = _fields(descriptor)
    repeated = document.repeated if isinstance(document, _Object) else ()
    seen = set()
    for key, value in document.items():
        field = fields.get(key)
        # An empty value says nothing that could be lost.
        if value and (field is None or not field.is_stored):
            translation.note_unknown(f"{descriptor.name}.{_printable(key)}")
        if field is None or value is None:
            continue
        # Of two members of a oneof, or of a key given twice, one would be lost.
        taken = field.oneof or field.name
        is_taken = taken in seen or key in repeated
        seen.add(taken)
        try:
            if is_taken:
                _refuse_second(taken)
            _set(translation, message, field, value, depth)
        except MalformedError as error:
            raise _within(key, error) from error
        except (TypeError, ValueError) as error:
            raise _within(key, MalformedError(str(error))) from error


def _refuse_second(name: str) -> NoReturn:
    raise MalformedError(f"gives {name} a second time")


def _within(step: str, error: MalformedError) -> MalformedError:
    """Put the key or the position in front of the path that an error has so far."""
    path = error.field or ""
    joint = "." if path and not path.startswith("[") else ""
    reason = error.message.removeprefix(f"{path} ") if path else error.message
    field = f"{step}{joint}{path}"
    return MalformedError(f"{field} {reason}", field=field)


def _set(translation: Translation, message: Message, field: _Field, value: Any, depth: int) -> None:
    if field.repeated:
        _extend(translation, getattr(message, field.name), field, value, depth)
    elif field.convert:
        if field.is_text and not _is_unicode(value):
            translation.invalid_texts += 1
            _set_invalid_text(message, field, value)
            return
        setattr(message, field.name, field.convert(value))
    else:
        member = getattr(message, field.name)
        # An empty object is present, too: {"arrayValue": {}} is an empty array, not nothing.
        member.SetInParent()
        _fill(translation, member, value, depth + 1)


def _extend(translation: Translation, items: Any, field: _Field, values: Any, depth: int) -> None:
    if not isinstance(values, list):
        raise _unfit("an array", values)
    for position, value in enumerate(values):
        try:
            if field.convert is None:
                _fill(translation, items.add(), value, depth + 1)
            elif field.is_text and not _is_unicode(value):
                translation.invalid_texts += 1
                items.append(_as_text(_repair(value)))
            else:
                items.append(field.convert(value))
        except MalformedError as error:
            raise _within(f"[{position}]", error) from error
        except (TypeError, ValueError) as error:
            raise _within(f"[{position}]", MalformedError(str(error))) from error


def _is_unicode(value: Any) -> bool:
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        for part in _parts(value):
            part.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parts(text: str) -> Iterator[str]:
    return (text[start : start + STEP] for start in range(0, len(text), STEP))


def _set_invalid_text(message: Message, field: _Field, value: str) -> None:
    """Keep the bytes of a text that is not UTF-8, or U+FFFD where the field takes text only."""
    repaired = _repair(value)
    if isinstance(repaired, bytes) and field.name == "string_value":
        message.bytes_value = repaired  # type: ignore[attr-defined]  # an AnyValue
    else:
        setattr(message, field.name, _as_text(repaired))


def _repair(text: str) -> str | bytes:
    """Return the bytes that a text came from, or the text where only pairs were cut in halves.

    Half of a surrogate pair was written as an escape and has no bytes: it becomes U+FFFD.
    """
    without_halves = [_HALF_OF_A_PAIR.sub("\ufffd", part) for part in _parts(text)]
    repaired = "".join(without_halves)
    if _is_unicode(repaired):
        return repaired
    return b"".join(part.encode(errors="surrogateescape") for part in without_halves)


def _as_text(repaired: str | bytes) -> str:
    return repaired if isinstance(repaired, str) else repaired.decode(errors="replace")


def _printable(key: str) -> str:
    """Shorten a sender's own words for a message."""
    return ascii(key)[1:-1][:40]


def _unfit(wanted: str, value: Any) -> MalformedError:
    return MalformedError(f"must be {wanted}, not a JSON {type(value).__name__}")


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
