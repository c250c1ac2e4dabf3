"""Data files and deletion vectors as the JSON that Iceberg's Java library reads them from.

One document crosses to Java in one call; building the same there would take a dozen calls a file.
The form is that of the REST specification's ContentFile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.lake.live_files import LiveFile
from neve.lake.vectors import DeletionVector

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without a zone counts from here
_NANOS = 1000


def data_files_json(metadata: TableMetadata, files: Sequence[DataFile]) -> str:
    """Return data files with their statistics."""
    return json.dumps([_data_file(metadata, file) for file in files])


def vectors_json(
    metadata: TableMetadata, vectors: Sequence[DeletionVector], files: Mapping[str, LiveFile]
) -> str:
    """Return deletion vectors, each in the partition of the data file it is for."""
    return json.dumps([_vector(metadata, one, files[one.data_file]) for one in vectors])


def live_files_json(metadata: TableMetadata, files: Sequence[LiveFile]) -> str:
    """Return data files that a table has, by what it takes to remove them."""
    return json.dumps([_live_file(metadata, one) for one in files])


def _live_file(metadata: TableMetadata, file: LiveFile) -> dict[str, Any]:
    return {
        "spec-id": file.spec_id,
        "content": "data",
        "file-path": file.path,
        "file-format": file.format.lower(),
        "partition": partition_json(metadata, file.spec_id, file.partition),
        "file-size-in-bytes": file.size,
        "record-count": file.record_count,
    }


def _data_file(metadata: TableMetadata, file: DataFile) -> dict[str, Any]:
    found: dict[str, Any] = {
        "spec-id": file.spec_id,
        "content": "data",
        "file-path": file.file_path,
        "file-format": file.file_format.value.lower(),
        "partition": partition_json(metadata, file.spec_id, file.partition),
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
        "column-sizes": _by_field(file.column_sizes),
        "value-counts": _by_field(file.value_counts),
        "null-value-counts": _by_field(file.null_value_counts),
        "nan-value-counts": _by_field(file.nan_value_counts),
        "lower-bounds": _bounds(file.lower_bounds),
        "upper-bounds": _bounds(file.upper_bounds),
    }
    if file.split_offsets:
        found["split-offsets"] = list(file.split_offsets)
    if file.sort_order_id is not None:
        found["sort-order-id"] = file.sort_order_id
    return found


def _vector(metadata: TableMetadata, vector: DeletionVector, file: LiveFile) -> dict[str, Any]:
    return {
        "spec-id": file.spec_id,
        "content": "position-deletes",
        "file-path": vector.path,
        "file-format": "puffin",
        "partition": partition_json(metadata, file.spec_id, file.partition),
        "file-size-in-bytes": vector.file_size,
        "record-count": vector.cardinality,
        "referenced-data-file": vector.data_file,
        "content-offset": vector.offset,
        "content-size-in-bytes": vector.length,
    }


def partition_json(metadata: TableMetadata, spec_id: int, partition: Record) -> list[Any]:
    """Return partition values in JSON's single-value form, in the order of the spec."""
    spec = metadata.specs()[spec_id]
    types = _partition_types(spec, metadata.schemas)
    return [_single_value(partition[number], kind) for number, kind in enumerate(types)]


def _partition_types(spec: PartitionSpec, schemas: Sequence[Schema]) -> list[IcebergType]:
    """Return the types of a spec's values; the newest schema that has a source column says it."""
    types = []
    for field in spec.fields:
        newest = next(schema for schema in reversed(schemas) if field.source_id in schema.field_ids)
        source = newest.find_type(field.source_id)
        types.append(field.transform.result_type(source))
    return types


def _single_value(value: Any, kind: IcebergType) -> Any:
    """Write a value as appendix D of Iceberg's specification does."""
    if value is None:
        return None
    if isinstance(kind, DateType):
        day = value if isinstance(value, date) else date(1970, 1, 1) + timedelta(days=value)
        return day.isoformat()
    if isinstance(kind, (TimestampType, TimestamptzType)):
        return _timestamp(value, is_zoned=isinstance(kind, TimestamptzType))
    if isinstance(kind, (TimestampNanoType, TimestamptzNanoType)):
        text = _timestamp(value // _NANOS, is_zoned=False) + f"{value % _NANOS:03d}"
        return text + ("+00:00" if isinstance(kind, TimestamptzNanoType) else "")
    if isinstance(kind, TimeType):
        moment = (
            value if isinstance(value, time) else (_EPOCH + timedelta(microseconds=value)).time()
        )
        return moment.isoformat(timespec="microseconds")
    if isinstance(kind, (BinaryType, FixedType)):
        return bytes(value).hex().upper()
    if isinstance(kind, UUIDType):
        return str(value if isinstance(value, UUID) else UUID(bytes=bytes(value)))
    if isinstance(kind, DecimalType):
        return str(Decimal(value))
    return value


def _timestamp(value: Any, *, is_zoned: bool) -> str:
    moment = value if isinstance(value, datetime) else _EPOCH + timedelta(microseconds=value)
    if moment.tzinfo:
        moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + ("+00:00" if is_zoned else "")


def _by_field(values: Mapping[int, int] | None) -> dict[str, list[Any]]:
    found = values or {}
    return {"keys": list(found), "values": list(found.values())}


def _bounds(values: Mapping[int, bytes] | None) -> dict[str, list[Any]]:
    found = values or {}
    return {"keys": list(found), "values": [one.hex().upper() for one in found.values()]}
