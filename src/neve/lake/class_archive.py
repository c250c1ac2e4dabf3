"""The archive from which Spark's JVM takes its classes, parsed and verified, when it starts.

An archive belongs to one Java and one set of jars: the JVM checks that, and compares a checksum.
One that does not fit is silently left alone; then a start takes as long as without.
`neve.lake.class_training` makes it. See docs/decisions/0014.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from neve.config import cache_directory
from neve.lake.jars import spark_home

# Of up to 190 MB each: for the environments that somebody who works with several used last.
MOST_ARCHIVES = 4
_SUFFIX = ".jsa"
_SCRATCH_PREFIX = ".making-"
_SCRATCH_SECONDS = 3600.0


@dataclass(frozen=True)
class ClassArchive:
    """Where the archive of one Java and one set of jars is kept, or will be."""

    directory: Path
    key: str

    def find(self) -> Path | None:
        """Return the archive, if there is a whole one: a JVM would die of half a file."""
        for path in self.directory.glob(f"{self.key}-*{_SUFFIX}"):
            if path.name == self._file_name(path.stat().st_size):
                return path
        return None

    def keep(self, file: Path) -> None:
        """Have later starts use a finished file, and remove old ones. Atomic."""
        descriptor = os.open(file, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        file.replace(self.directory / self._file_name(size))
        _remove_unused(self.directory)

    def scratch(self) -> Path:
        """Make a directory to write a new archive in; a forgotten one is removed later."""
        directory = self.directory / f"{_SCRATCH_PREFIX}{os.getpid()}-{time.time_ns()}"
        directory.mkdir(parents=True)
        return directory

    def _file_name(self, size: int) -> str:
        return f"{self.key}-{size}{_SUFFIX}"


def archive_of(java: Path, jars: Sequence[Path]) -> ClassArchive:
    """Return the archive of this Java, this Spark and these further jars.

    Raises:
        OSError: one of their files cannot be read.
    """
    digest = hashlib.sha256()
    for part in _identity(java, jars):
        digest.update(os.fsencode(f"{part}\0"))
    return ClassArchive(cache_directory() / "classes", digest.hexdigest()[:20])


def _identity(java: Path, jars: Sequence[Path]) -> Iterator[object]:
    # Java's own classes, by which the JVM knows, too, whether an archive is of its version.
    modules = java.resolve().parent.parent / "lib" / "modules"
    for path in (modules, *sorted(spark_home().glob("jars/*.jar")), *jars):
        status = path.stat()
        yield from (path, status.st_size, status.st_mtime_ns)


def use_options(java: Path, jars: Sequence[Path]) -> list[str]:
    """Return the JVM options that use the archive; none if there is none.

    The use is noted: the archive that was not used for the longest time is removed first.
    """
    try:
        archive = archive_of(java, jars).find()
    except OSError:
        return []
    if archive is None:
        return []
    with suppress(OSError):  # the cache may be another user's
        os.utime(archive)
    return [
        _option("SharedArchiveFile", archive),
        # Else the JVM would run whatever a damaged file holds. It takes a twentieth of a second.
        "-XX:+VerifySharedSpaces",
        "-Xlog:cds=off",
        "-Xlog:cds+dynamic=off",
    ]


def make_options(file: Path) -> list[str]:
    """Return the JVM options that write an archive of all classes in use when the JVM ends."""
    # The better compiler pays off in longer runs than this.
    return [_option("ArchiveClassesAtExit", file), "-XX:TieredStopAtLevel=1"]


def _option(name: str, path: Path) -> str:
    """Quote an option as Spark's launcher reads it, which splits at spaces."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"-XX:{name}={text}"'


def _remove_unused(directory: Path) -> None:
    """Remove all but the archives that were used last, and what processes that died left."""
    archives = sorted(directory.glob(f"*{_SUFFIX}"), key=_last_use, reverse=True)
    for archive in archives[MOST_ARCHIVES:]:
        archive.unlink(missing_ok=True)  # a JVM that uses it keeps what it has mapped
    for scratch in directory.glob(f"{_SCRATCH_PREFIX}*"):
        if _last_use(scratch) < time.time() - _SCRATCH_SECONDS:
            shutil.rmtree(scratch, ignore_errors=True)


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # removed by another process meanwhile
        return 0.0
