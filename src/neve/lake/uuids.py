"""UUIDs: Spark hands them over as text, Iceberg's files hold their 16 bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = 32
_NONE = "0" * _DIGITS


def with_uuids(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values with bytes for text wherever `wanted` has a UUID, at any depth.

    Raises:
        ValueError: a text that is no UUID.
    """
    if not has_uuids(wanted):
        return values
    if wanted == pa.uuid():
        return _parse(values) if _is_text(values.type) else values
    if pa.types.is_struct(wanted):
        return _with_fields(values, wanted)
    # A slice's offsets and nulls would not fit its children's: a copy has none before its first.
    whole = values.take(pa.array(range(len(values)), pa.int64()))
    if pa.types.is_map(wanted):
        keys = with_uuids(whole.keys, wanted.key_type)
        items = with_uuids(whole.items, wanted.item_type)
        return pa.MapArray.from_arrays(whole.offsets, keys, items, mask=whole.is_null())
    items = with_uuids(whole.values, wanted.value_type)
    make = pa.LargeListArray if pa.types.is_large_list(whole.type) else pa.ListArray
    return make.from_arrays(whole.offsets, items, mask=whole.is_null())


def has_uuids(kind: pa.DataType) -> bool:
    """Tell whether a type is a UUID, or holds one."""
    nested = pa.types.is_nested(kind)
    return kind == pa.uuid() or (
        nested and any(has_uuids(kind.field(number).type) for number in range(kind.num_fields))
    )


def _with_fields(values: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    names = [field.name for field in values.type]
    kinds = {field.name: field.type for field in wanted}
    # Flattened: a field of a struct that is NULL is NULL too, and no empty text.
    fields = [
        with_uuids(found, kinds.get(name, found.type))
        for name, found in zip(names, values.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(fields, names, mask=values.is_null())


def _parse(text: pa.Array) -> pa.Array:
    # As many digits as there are, checked by the cast: one buffer, read at once.
    digits = pc.replace_substring(pc.fill_null(text, _NONE), "-", "").cast(pa.binary(_DIGITS))
    data = bytes.fromhex("".join(one.decode() for one in digits.to_pylist()))
    found = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_DIGITS // 2), len(text), [None, pa.py_buffer(data)]
    )
    return pc.if_else(text.is_valid(), found, None).cast(pa.uuid())


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string())
