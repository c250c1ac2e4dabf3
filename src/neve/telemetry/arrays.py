"""The types of the arrays in this room, for the type checker.

pyarrow ships no types: to mypy everything that comes from it is Any. These protocols name the
methods of its arrays that this room calls, so that their names, arguments and results are checked.
Which fields a message has is known at run time only; the schemas check that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Mask: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
"""Whole numbers of any width: positions, offsets, counts."""

_Self = TypeVar("_Self", bound="Column")


class Column(Protocol):
    """A `pyarrow.Array` of any type."""

    @property
    def type(self) -> pa.DataType: ...
    @property
    def null_count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def offset(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self: _Self, rows: slice) -> _Self: ...
    def buffers(self) -> list[Any]: ...
    def cast(self, target_type: pa.DataType, *, safe: bool = ...) -> Cast: ...
    def drop_null(self: _Self) -> _Self: ...
    def fill_null(self: _Self, fill_value: object) -> _Self: ...
    def filter(self: _Self, mask: Column) -> _Self: ...
    def is_valid(self) -> Column: ...
    def slice(self: _Self, offset: int, length: int | None = ...) -> _Self: ...
    def take(self: _Self, indices: Column) -> _Self: ...
    def to_numpy(self, *, zero_copy_only: bool = ...) -> npt.NDArray[Any]: ...
    def to_pylist(self) -> list[Any]: ...


class Texts(Column, Protocol):
    """A `pyarrow.StringArray` or `BinaryArray`."""

    def dictionary_encode(self) -> Encoded: ...


class Encoded(Column, Protocol):
    """A `pyarrow.DictionaryArray`."""

    @property
    def dictionary(self) -> Column: ...
    @property
    def indices(self) -> Column: ...


class Lists(Column, Protocol):
    """A `pyarrow.ListArray`."""

    @property
    def offsets(self) -> Column: ...
    @property
    def values(self) -> Field: ...
    def value_parent_indices(self) -> Column: ...


class Messages(Column, Protocol):
    """A `pyarrow.StructArray`: the messages under one field."""

    def field(self, name: str | int) -> Field: ...


class Field(Texts, Lists, Messages, Protocol):
    """What is under a field: plain values, lists or messages, as the descriptor says."""


Cast: TypeAlias = Field
"""What a cast gives: an array of the type that was asked for."""
