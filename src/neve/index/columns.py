"""The columns of a table that its index is made of, found in data files by their field ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from neve.errors import UnsupportedError
from neve.index.entries import SequenceType
from neve.index.hashing import KeyHasher, PkHash, is_bijective
from neve.index.root import KeyColumn
from neve.index.sequences import encode_sequences, sequence_type_of

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class IndexedColumn:
    """A column as the table has it now; files may have it narrower, and under other names."""

    name: str
    field_id: int
    type: pa.DataType

    @property
    def is_uuid(self) -> bool:
        return bool(self.type == pa.uuid())


@dataclass(frozen=True)
class IndexedColumns:
    """Keys and sequence of a table."""

    keys: tuple[IndexedColumn, ...]
    sequence: tuple[IndexedColumn, ...]
    seed: int = 0

    @classmethod
    def of(cls, schema: Schema, keys: Sequence[str], sequence: Sequence[str]) -> IndexedColumns:
        """Find columns by name.

        Raises:
            UnsupportedError: a column is missing, or of a type that cannot be indexed.
        """
        columns = cls(
            tuple(_column(schema, name) for name in keys),
            tuple(_column(schema, name) for name in sequence),
        )
        sequence_type_of([column.type for column in columns.sequence])
        return columns

    @property
    def has_second_hash(self) -> bool:
        """Whether keys have a second hash."""
        return not is_bijective([column.type for column in self.keys])

    @property
    def sequence_type(self) -> SequenceType:
        return sequence_type_of([column.type for column in self.sequence])

    @property
    def key_columns(self) -> tuple[KeyColumn, ...]:
        return tuple(
            KeyColumn(column.name, column.field_id, column.is_uuid) for column in self.keys
        )

    @property
    def sequence_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.sequence)

    def names_in(self, schema: pa.Schema, path: str) -> dict[int, str]:
        """Return the name each column has in a Parquet file.

        Raises:
            UnsupportedError: the file lacks one, or says of none which is which.
        """
        by_id = names_by_id(schema)
        wanted = {column.field_id: column.name for column in (*self.keys, *self.sequence)}
        for field_id, name in wanted.items():
            if field_id not in by_id:
                raise UnsupportedError(f"{path} has no column {name} to make an index of")
        return {field_id: by_id[field_id] for field_id in wanted}

    def hash_keys(self, rows: Any, names: dict[int, str]) -> PkHash:
        hasher = KeyHasher(self.seed, tuple(column.is_uuid for column in self.keys))
        return hasher([_cast(rows, column, names) for column in self.keys])

    def encode(self, rows: Any, names: dict[int, str]) -> Any:
        return encode_sequences([_cast(rows, column, names) for column in self.sequence])


def names_by_id(schema: pa.Schema) -> dict[int, str]:
    """Return the names of a Parquet file's columns by the ids that Iceberg gave them."""
    return {
        int(field.metadata[_FIELD_ID]): field.name
        for field in schema
        if field.metadata and _FIELD_ID in field.metadata
    }


def _column(schema: Schema, name: str) -> IndexedColumn:
    fields: dict[str, NestedField] = {field.name: field for field in schema.fields}
    field = fields.get(name)
    if field is None:
        raise UnsupportedError(f"the table has no column {name} to make an index of")
    kind = schema_to_pyarrow(field.field_type, include_field_ids=False)
    return IndexedColumn(name, field.field_id, kind)


def _cast(rows: Any, column: IndexedColumn, names: dict[int, str]) -> Any:
    values = rows.column(names[column.field_id])
    if values.type == column.type or (column.is_uuid and values.type == pa.binary(16)):
        return values
    try:
        return values.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedError(
            f"column {column.name} is {values.type} in a file and {column.type} in the table"
        ) from error
