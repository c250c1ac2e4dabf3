"""DuckDB in this process, with its extensions from packages: nothing is downloaded."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from neve.errors import SetupError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Both read Iceberg tables. httpfs, for object stores, is loaded where a table lies in one.
_EXTENSIONS = ("avro", "iceberg")


def connect() -> DuckDBPyConnection:
    """Open a database in memory that reads Iceberg tables and calculates with times in UTC."""
    import duckdb

    connection = duckdb.connect(
        config={
            # The check of a signature reads 80 MB, which takes 0.3 s. The files are as
            # trustworthy as DuckDB itself: packages of the same environment, pinned by hash.
            "allow_unsigned_extensions": "true",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # Else what does not fit into memory is put into the working directory.
            "temp_directory": str(Path(tempfile.gettempdir()) / f"neve-duckdb-{os.getpid()}"),
        }
    )
    for extension in _EXTENSIONS:
        load_extension(connection, extension)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def load_extension(connection: DuckDBPyConnection, name: str) -> None:
    """Load an extension from its package, without a copy in the home directory."""
    import duckdb

    package = find_spec(f"duckdb_extension_{name}")
    if package is None or package.origin is None:
        raise SetupError(
            f"the package duckdb-extension-{name} is not installed",
            hint="install Neve's dependencies again",
        )
    directory = Path(package.origin).parent / "extensions" / f"v{duckdb.__version__}"
    connection.load_extension(str(directory / f"{name}.duckdb_extension"))
