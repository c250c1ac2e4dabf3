"""The jars Spark runs with: pinned by version and hash, fetched once, kept in the cache.

Spark carries Ivy, which knows the user's repositories and proxies; it fetches, we check and keep.
Afterwards a start neither asks a repository nor resolves anything, so it also works offline.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from neve import failpoints
from neve.config import cache_directory
from neve.errors import SetupError

ICEBERG_VERSION = "1.12.0"


@dataclass(frozen=True)
class Jar:
    """One artifact, exactly."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


JARS = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        ICEBERG_VERSION,
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar(
        "org.apache.iceberg",
        "iceberg-aws-bundle",
        ICEBERG_VERSION,
        "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.53.4.0",
        "bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb",
    ),
    Jar(
        "org.postgresql",
        "postgresql",
        "42.7.13",
        "6e0e4cc2d8cae902084f8a2b18728b073a6fd9d1f87c9d8bff8f298c18185b93",
    ),
)


def ensure_jars(
    java: Path,
    report: Callable[[str], None],
    ivy_settings: str | None = None,
    jars: Sequence[Jar] = JARS,
) -> list[Path]:
    """Return the local path of every jar, fetching those the cache lacks.

    Atomic for each jar: the cache never holds a partial or unchecked one.
    """
    directory = cache_directory() / "jars"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            if not (directory / jar.file_name).exists():
                report(f"fetching {jar.artifact} {jar.version} (once)")
                _fetch(jar, directory, java, ivy_settings)
    except OSError as error:
        raise SetupError(
            f"the cache {directory} cannot be written: {error.strerror}",
            hint="set NEVE_CACHE to a writable directory",
        ) from error
    return [directory / jar.file_name for jar in jars]


def _fetch(jar: Jar, directory: Path, java: Path, ivy_settings: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as scratch:
        command = [str(java), "-jar", str(_ivy()), "-warn", "-cache", f"{scratch}/ivy"]
        if ivy_settings:
            command += ["-settings", ivy_settings]
        command += ["-dependency", jar.group, jar.artifact, jar.version, "-notransitive"]
        command += [
            "-types",
            "jar",
            "bundle",
            "-retrieve",
            f"{scratch}/[artifact]-[revision].[ext]",
        ]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        fetched = Path(scratch, jar.file_name)
        if answer.returncode != 0 or not fetched.exists():
            raise SetupError(
                f"jar {jar.coordinate} could not be fetched: no repository answered with it",
                hint=f"connect once, put {jar.file_name} into {directory}, or name a mirror with "
                "spark.conf spark.jars.ivySettings",
            )
        if _sha256(fetched) != jar.sha256:
            raise SetupError(
                f"jar {jar.coordinate} is not the pinned one: its SHA-256 differs",
                hint="the repository or a proxy served another file; use a trusted mirror",
            )
        failpoints.reach("lake.jar_fetched")
        fetched.replace(directory / jar.file_name)


def _ivy() -> Path:
    return next(_pyspark().glob("jars/ivy-*.jar"))


def spark_home() -> Path:
    """Return the directory of the Spark that PySpark starts."""
    named = os.environ.get("SPARK_HOME")
    return Path(named) if named else _pyspark()


def _pyspark() -> Path:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise SetupError("pyspark is not installed", hint="reinstall Neve")
    return Path(pyspark.origin).parent


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
