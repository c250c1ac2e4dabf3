"""Random OTLP requests: every field of every message, edges first, and strange ways to write them.

Driven by the descriptors, so that a field added to OTLP is generated without anyone's doing.
"""

import math

from google.protobuf.descriptor import FieldDescriptor as Field

NANOS = 1_700_000_000_000_000_000
INTEGERS = {
    Field.CPPTYPE_INT32: [0, 1, -1, 5, 2**31 - 1, -(2**31)],
    Field.CPPTYPE_UINT32: [0, 1, 2, 2**32 - 1],
    Field.CPPTYPE_INT64: [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)],
    Field.CPPTYPE_UINT64: [0, 0, 1, 999, 1000, 2**53 + 1, NANOS, NANOS + 1],
}
DOUBLES = [0.0, -0.0, 1.0, 0.1, -2.5, 1e15, 1e16, 1.5e-5, 123456.789e-12, 5e-324, 1e308]
SPECIAL_DOUBLES = [math.nan, math.inf, -math.inf]
SERVICE = ["service.name", "service.namespace", "service.instance.id"]
TEXTS = ["", "a", "b", *SERVICE, "näme", "\U0001f409", '"q"\\\n\x00', "1", "true", "NaN"]
BYTES = [b"", b"\x00", bytes(8), bytes(16), bytes(range(16)), b"\xff" * 8, b"odd"]
# One record in about so many has something no table can hold.
FAULT_RATE = 40
FAULTS = [9_214_646_400 * 10**9 - 1, 9_214_646_400 * 10**9, 2**63 - 1, 2**63, 2**64 - 1]


def fill(message, rng, depth=0):
    """Set most of a message's fields, and at most one member of a oneof."""
    for oneof in message.DESCRIPTOR.oneofs:
        chosen = rng.choice([None, *oneof.fields, *oneof.fields])
        if chosen is not None:
            _set(message, chosen, rng, depth)
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is None and rng.random() < 0.8:
            _set(message, field, rng, depth)
    return message


def _set(message, field, rng, depth):
    deeper = depth + (field.message_type is not None and field.message_type.name == "AnyValue")
    if field.is_repeated:
        values = getattr(message, field.name)
        for _ in range(0 if deeper > 3 else rng.choice([0, 1, 2, 2])):
            if field.message_type:
                fill(values.add(), rng, deeper)
            else:
                values.append(scalar(field, rng))
    elif field.message_type:
        member = getattr(message, field.name)
        member.SetInParent()
        if deeper <= 4:
            fill(member, rng, deeper)
    else:
        setattr(message, field.name, scalar(field, rng))


def scalar(field, rng):
    if field.cpp_type == Field.CPPTYPE_ENUM:
        return rng.choice([0, 1, 2, 3, 5, 6, 99, -1])
    if field.cpp_type == Field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type == Field.CPPTYPE_DOUBLE:
        return rng.choice(DOUBLES + SPECIAL_DOUBLES + [rng.uniform(-1e6, 1e6)])
    if field.type == Field.TYPE_BYTES:
        return rng.choice(BYTES)
    if field.cpp_type == Field.CPPTYPE_STRING:
        return rng.choice(TEXTS)
    if field.cpp_type == Field.CPPTYPE_UINT64 and rng.random() < 1 / FAULT_RATE:
        return rng.choice(FAULTS)
    return rng.choice(INTEGERS[field.cpp_type])


def scrambled(message, rng):
    """The same message as a careless or hostile sender might write it.

    Fields in any order, lists in pieces, values that a later one replaces, messages in two parts,
    the wrong member of a oneof before the right one, fields nobody knows.
    """
    pieces = []
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        own = [_piece(message, field, item, rng) for item in values]
        if not field.is_repeated and rng.random() < 0.2:
            own.insert(0, _decoy(message, field, rng))
        pieces.append(own)
    if rng.random() < 0.1:
        pieces.append([b"\xa2\x9c\x01\x03new"])
    rng.shuffle(pieces)
    return b"".join(piece for own in pieces for piece in own)


def _piece(message, field, item, rng):
    if field.message_type:
        body = scrambled(item, rng)
        return varint(field.number << 3 | 2) + varint(len(body)) + body
    alone = type(message)()
    if field.is_repeated:
        getattr(alone, field.name).append(item)
    else:
        setattr(alone, field.name, item)
    return alone.SerializeToString()


def _decoy(message, field, rng):
    """An earlier value of the same field, or of another member of its oneof."""
    alone = type(message)()
    oneof = field.containing_oneof
    _set(alone, rng.choice(oneof.fields) if oneof else field, rng, 3)
    return alone.SerializeToString()


def varint(number):
    text = bytearray()
    while number > 127:
        text.append(number & 127 | 128)
        number >>= 7
    text.append(number)
    return bytes(text)
