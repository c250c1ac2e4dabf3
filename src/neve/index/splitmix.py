"""splitmix64: a bijection on 64 bits, of one number or of an array of them."""

from __future__ import annotations

from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = npt.NDArray[np.uint64]

ALL_BITS = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_STEPS = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)


@overload
def splitmix64(value: int) -> int: ...


@overload
def splitmix64(value: npt.NDArray[Any]) -> Hashes: ...


def splitmix64(value: int | npt.NDArray[Any]) -> int | Hashes:
    """Mix 64 bits so that every bit of the result depends on all of them."""
    if isinstance(value, np.ndarray):
        mixed: Hashes = value.astype(np.int64, copy=False).view(np.uint64) + np.uint64(_GOLDEN)
        for shift, multiplier in _STEPS:
            mixed ^= mixed >> np.uint64(shift)
            mixed *= np.uint64(multiplier)
        mixed ^= mixed >> np.uint64(31)
        return mixed
    scalar = (int(value) + _GOLDEN) & ALL_BITS
    for shift, multiplier in _STEPS:
        scalar = ((scalar ^ (scalar >> shift)) * multiplier) & ALL_BITS
    return scalar ^ (scalar >> 31)
