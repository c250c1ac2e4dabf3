"""Get our code and what it imports to the executors of a cluster.

Executors need a Python of the driver's version and nothing else: one archive carries the packages
that tasks import, another Neve itself. Each is packed once and kept in the cache; they are two, so
that a change of a line of ours does not pack and ship the heavy one again.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import neve
from neve.config import cache_directory

# What tasks import, with all it needs; the rest of the driver's environment stays where it is.
# PySpark's own worker comes with Spark, and needs pandas for pandas functions only, of which we
# have none.
TASK_DISTRIBUTIONS = (
    "isal",
    "numpy",
    "obstore",
    "opentelemetry-proto",
    "ptars",
    "pyarrow",
    "pydantic-settings",
    "pyiceberg",
    "pyiceberg-core",  # bucket and truncate partitions of mirrors
    "pyroaring",
    "pyyaml",
)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NOT_FOR_TASKS = {"__pycache__", "include", "tests"}

Members = dict[str, Path]


def executor_conf(report: Callable[[str], None]) -> dict[str, str]:
    """Return the settings that ship the archives and make executors import from them."""
    archives = {"neve-code": _pack_code(report), "neve-packages": _pack_packages(report)}
    return {
        "spark.archives": ",".join(f"{archive}#{name}" for name, archive in archives.items()),
        "spark.executorEnv.PYTHONPATH": ":".join(f"./{name}" for name in archives),
    }


def _pack_code(report: Callable[[str], None]) -> Path:
    members = dict(_code_files())
    contents = [part for name in sorted(members) for part in (name, members[name].read_bytes())]
    return _pack("code", contents, members, report)


def _pack_packages(report: Callable[[str], None]) -> Path:
    versions = [f"{name} {distribution(name).version}" for name in _with_requirements()]
    return _pack("packages", [sys.version, sys.platform, *versions], dict(_package_files()), report)


def _pack(
    what: str, identity: Iterable[str | bytes], members: Members, report: Callable[[str], None]
) -> Path:
    """Return the archive of this very content, packing it if there is none yet. Atomic."""
    digest = hashlib.sha256()
    for part in identity:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    directory = cache_directory() / "executors"
    archive = directory / f"{what}-{digest.hexdigest()[:20]}.tar.gz"
    if archive.exists():
        return archive
    report(f"packing Python {what} for the executors (once)")
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


def _code_files() -> Iterator[tuple[str, Path]]:
    package = Path(neve.__file__).parent
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(Path("neve", path.relative_to(package))), path
    # Neve reads its own version from there.
    for file in distribution("neve").files or ():
        if file.name == "METADATA":
            yield str(file), Path(str(file.locate()))


def _package_files() -> Iterator[tuple[str, Path]]:
    for name in _with_requirements():
        for file in distribution(name).files or ():
            path = Path(str(file.locate()))
            outside = file.parts[0] == ".."  # console scripts and the like
            if path.is_file() and not outside and _NOT_FOR_TASKS.isdisjoint(file.parts):
                yield str(file), path


def _with_requirements() -> list[str]:
    """Return the distributions of tasks and all that those need themselves, sorted."""
    found: set[str] = set()
    pending = list(TASK_DISTRIBUTIONS)
    while pending:
        name = pending.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # for another platform or version of Python
        found.add(name)
        needed = (_NAME.match(one) for one in requirements if "extra ==" not in one)
        pending += [one[0] for one in needed if one]
    return sorted(found)
