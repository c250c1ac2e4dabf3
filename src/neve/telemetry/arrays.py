"""Names for arrays, to be read by people.

What is in an array is known at run time, and checked there against the schemas; all a type checker
would see is casts. So to it these are Any.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Column: TypeAlias = Any
Texts: TypeAlias = Any
Lists: TypeAlias = Any
Messages: TypeAlias = Any
"""Structs: the messages under one field."""

Mask: TypeAlias = Any
Integers: TypeAlias = Any
