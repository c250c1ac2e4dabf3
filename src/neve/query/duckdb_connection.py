"""DuckDB in this process, with its extensions from packages: nothing is downloaded."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from neve.errors import SetupError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Both read Iceberg tables. httpfs, for object stores, is loaded where a table lies in one.
_EXTENSIONS = ("avro", "iceberg")


def connect_shared() -> DuckDBPyConnection:
    """Open a connection to the one database of this process: making a database takes 10 ms.

    Settings of its session and what is temporary belong to the connection alone. Secrets belong to
    the database: who needs one takes `connect`.
    """
    connection = _shared_database().cursor()
    _calculate_in_utc(connection)
    return connection


@cache
def _shared_database() -> DuckDBPyConnection:
    database = connect()
    # It would keep the content of data files in memory when no query runs.
    database.execute("SET GLOBAL enable_external_file_cache = false")
    # Else the memory of a large query is kept until the database is closed.
    database.execute("SET GLOBAL allocator_background_threads = true")
    return database


def forget_shared_database() -> None:
    """Have the next query make a new database: after a fatal error DuckDB refuses all others."""
    _shared_database.cache_clear()


# A forked process has none of the threads that the database works with.
os.register_at_fork(before=forget_shared_database)


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
    _calculate_in_utc(connection)
    return connection


def _calculate_in_utc(connection: DuckDBPyConnection) -> None:
    connection.execute("SET TimeZone = 'UTC'")


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
