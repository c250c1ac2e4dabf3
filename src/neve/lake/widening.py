"""Which types of columns Iceberg lets grow, and into what."""

from __future__ import annotations

from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
)

_WIDENINGS = frozenset({(IntegerType, LongType), (FloatType, DoubleType)})


def widens(narrow: IcebergType, wide: IcebergType) -> bool:
    """Tell whether a column of one primitive type may become another, wider one."""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision < wide.precision
    return (type(narrow), type(wide)) in _WIDENINGS
