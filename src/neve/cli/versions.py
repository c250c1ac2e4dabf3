"""`neve --version`: what is inside."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

from neve import __version__
from neve.errors import SetupError

# By the names of their packages. Iceberg is a jar that Spark loads.
_PACKAGES = {"spark": "pyspark", "pyiceberg": "pyiceberg", "duckdb": "duckdb"}


def versions() -> dict[str, Any]:
    """Return the version of each part; `java` is None if there is none that Spark can use."""
    from neve.lake.jars import ICEBERG_VERSION

    parts: dict[str, Any] = {"neve": __version__, "python": platform.python_version()}
    parts |= {part: version(package) for part, package in _PACKAGES.items()}
    return {**parts, "iceberg": ICEBERG_VERSION, **_java()}


def _java() -> dict[str, Any]:
    from neve.lake.java import java_command, java_version

    try:
        command = java_command()
        return {"java": java_version(command), "java_command": str(command)}
    except SetupError as error:
        return {"java": None, "java_missing": str(error)}


def version_lines() -> list[str]:
    """Return what a person reads: a line for each part."""
    parts = versions()
    java = parts["java"]
    return [
        f"neve {parts['neve']}",
        f"Python {parts['python']}",
        f"Spark {parts['spark']}",
        f"Iceberg {parts['iceberg']}",
        f"PyIceberg {parts['pyiceberg']}",
        f"DuckDB {parts['duckdb']}",
        f"Java {java} ({parts['java_command']})" if java else parts["java_missing"],
    ]
