"""Loads the libraries that are built from C files (`tools/build_native.py`)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from neve.errors import SetupError

if TYPE_CHECKING:
    from pathlib import Path


def load_library(path: Path) -> ctypes.CDLL:
    """Load a library. Raises SetupError."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise SetupError(
            f"{path.name} cannot be loaded: {error}",
            hint="install Neve again; building it needs a C compiler (apt-get install gcc)",
        ) from error
