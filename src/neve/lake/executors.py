"""Get our code and what it imports to the executors of a cluster.

Executors need a Python of the driver's version and nothing else: one archive carries Neve and the
packages that run inside tasks. It is built once for each set of versions and kept in the cache.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import neve
from neve.config import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What tasks import; the rest of the driver's environment stays where it is.
TASK_DISTRIBUTIONS = ("numpy", "pandas", "pyarrow", "python-dateutil", "pytz", "six", "tzdata")
_UNPACKED_AS = "neve-python"


def executor_conf(report: Callable[[str], None]) -> dict[str, str]:
    """Return the settings that ship the archive and make executors import from it."""
    archive = build_archive(report)
    return {
        "spark.archives": f"{archive}#{_UNPACKED_AS}",
        "spark.executorEnv.PYTHONPATH": f"./{_UNPACKED_AS}",
    }


def build_archive(report: Callable[[str], None]) -> Path:
    """Return the archive of task code, building it if this exact set has none yet. Atomic."""
    members = dict(_members())
    directory = cache_directory() / "executors"
    archive = directory / f"{_fingerprint(members)}.tar.gz"
    if archive.exists():
        return archive
    report("packing Python code for the executors (once)")
    directory.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=directory, suffix=".tmp")
    with (
        os.fdopen(handle, "wb") as file,
        tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar,
    ):
        for name, path in sorted(members.items()):
            tar.add(path, arcname=name, recursive=False)
    Path(scratch).replace(archive)
    return archive


def _members() -> Iterator[tuple[str, Path]]:
    package = Path(neve.__file__).parent
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(Path("neve", path.relative_to(package))), path
    for name in TASK_DISTRIBUTIONS:
        for file in distribution(name).files or ():
            path = Path(str(file.locate()))
            outside = file.parts[0] == ".."  # console scripts and the like
            tests = "tests" in file.parts
            if path.is_file() and not outside and not tests and "__pycache__" not in file.parts:
                yield str(file), path


def _fingerprint(members: dict[str, Path]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name, path in sorted(members.items()):
        state = path.stat()
        digest.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:20]
