"""Build hook of hatchling: compile src/neve/otlp/wire_scan.c beside its Python module.

A plain shared library that ctypes loads: it needs a C compiler, and no headers of Python.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "src/neve/otlp/wire_scan.c"
LIBRARY = "src/neve/otlp/libwire_scan.so"
FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")


class BuildNative(BuildHookInterface):  # type: ignore[misc]  # hatchling ships no types
    """Compiles the library for an editable install and for a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version  # the same for an editable install and a wheel
        root = Path(self.root)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        # Under a name of its own first: a running receiver may have the old one loaded.
        scratch = root / f"{LIBRARY}.{os.getpid()}"
        command = [*compiler, *FLAGS, str(root / SOURCE), "-o", str(scratch)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise SystemExit(
                f"neve: the C compiler {compiler[0]} is missing: apt-get install gcc libc6-dev"
            ) from error
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"neve: {SOURCE} cannot be compiled:\n{error.stderr}") from error
        scratch.replace(root / LIBRARY)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(LIBRARY)
