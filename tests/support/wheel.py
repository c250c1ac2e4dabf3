"""Neve as people install it: a wheel, in an environment with the pinned requirements alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from neve.config import cache_directory

ROOT = Path(__file__).parents[2]
_REQUIREMENTS = ROOT / "requirements"
_DEADLINE_SECONDS = 600


def build_wheel(directory: Path) -> Path:
    """Build the wheel of this clone."""
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)])
    (wheel,) = directory.glob("neve-*.whl")
    return wheel


def install_wheel(wheel: Path, environment: Path) -> Path:
    """Make an environment, install the wheel into it, and return its `neve`."""
    python = environment / "bin" / "python"
    _uv("venv", "--python", sys.executable, str(environment))
    _uv(
        "pip",
        "sync",
        "--python",
        str(python),
        "--require-hashes",
        str(_REQUIREMENTS / "runtime.txt"),
    )
    _uv("pip", "install", "--python", str(python), "--no-deps", str(wheel))
    return environment / "bin" / "neve"


def _uv(*arguments: str) -> None:
    """Run the uv that `tools/environment` installed; its cache has all packages, usually."""
    version = re.match(r"uv==([\d.]+)", (_REQUIREMENTS / "uv.txt").read_text())[1]
    uv = str(cache_directory() / f"uv-{version}" / "bin" / "uv")
    try:
        _run([uv, "--quiet", "--offline", *arguments])
    except subprocess.CalledProcessError:
        _run([uv, "--quiet", *arguments])


def _run(command: list[str]) -> None:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        timeout=_DEADLINE_SECONDS,
    )
