"""Build hook of hatchling: compile each C file beside the Python module that calls it.

Plain shared libraries that ctypes loads: they need a C compiler, and no headers of Python.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES = {
    "src/neve/otlp/wire_scan.c": "src/neve/otlp/libwire_scan.so",
    "src/neve/telemetry/pairs.c": "src/neve/telemetry/libpairs.so",
}
FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")


class BuildNative(BuildHookInterface):  # type: ignore[misc]  # hatchling ships no types
    """Compiles the libraries for an editable install and for a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version  # the same for an editable install and a wheel
        for source, library in LIBRARIES.items():
            _compile(Path(self.root), source, library)
            build_data["artifacts"].append(library)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _compile(root: Path, source: str, library: str) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    # Under a name of its own first: a running receiver may have the old one loaded.
    scratch = root / f"{library}.{os.getpid()}"
    command = [*compiler, *FLAGS, str(root / source), "-o", str(scratch)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise SystemExit(
            f"neve: the C compiler {compiler[0]} is missing: apt-get install gcc libc6-dev"
        ) from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"neve: {source} cannot be compiled:\n{error.stderr}") from error
    scratch.replace(root / library)
