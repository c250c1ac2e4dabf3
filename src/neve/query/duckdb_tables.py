"""Tables of the lake as views of a DuckDB connection, each at the version its catalog names now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from neve.errors import NotFoundError, UnsupportedError
from neve.lake.identifier import quote_identifier
from neve.lake.profile import profile_named
from neve.query.plain_read import NotPlainError
from neve.query.statement import table_parts
from neve.query.typed import Columns, quote_name, quote_text

if TYPE_CHECKING:
    from sqlglot import exp

    from neve.lake import Lake
    from neve.lake.table_ref import TableRef
    from neve.query.duckdb_execution import Execution


# Spark's own catalogs and formats, which stand where a namespace does.
_NOT_NAMESPACES = frozenset(
    ("global_temp", "system", "session", "parquet", "orc", "avro", "json", "csv", "text", "iceberg")
)

_TIME_TRANSFORMS = ("year", "month", "day", "hour")


class TableViews:
    """Makes a view of each table that a statement names, when it is first named.

    Args:
        alone: Spark does not take over. A table that does not exist is an error, and constants
            before 1970, for which DuckDB looks in the wrong partitions, make it look in all.
    """

    def __init__(self, lake: Lake, execution: Execution, *, alone: bool = False) -> None:
        self._alone = alone
        self._lake = lake
        self._execution = execution
        self._views: dict[TableRef, tuple[str, Columns]] = {}

    def view(self, node: exp.Table) -> tuple[str, Columns]:
        """Return the name and the columns of a table's view.

        Raises:
            NotFoundError: there is no such table, and nothing else of that name.
            NotPlainError: there is no such table, but it may be something that Spark reads.
            UnsupportedError: it cannot be read without Spark.
        """
        ref = self._lake.ref(quote_identifier(table_parts(node)))
        if ref not in self._views:
            try:
                self._views[ref] = self._create(ref, f"table {len(self._views)}")
            except NotFoundError as error:
                if not self._alone and self._may_be_other(ref):
                    raise NotPlainError(f"{ref.name}, which is no table") from error
                raise
        return self._views[ref]

    def _may_be_other(self, ref: TableRef) -> bool:
        """Say whether a name may be a metadata table, a view, or files with a path for a name."""
        first, *rest = ref.identifier
        may_be_table_of_catalog = len(rest) == 1 and first.lower() not in _NOT_NAMESPACES
        return not may_be_table_of_catalog or self._lake.reader(ref.catalog).may_have_views()

    def _create(self, ref: TableRef, name: str) -> tuple[str, Columns]:
        location = self._local_metadata(ref)
        if location is None:
            table = self._lake.load(ref)
            location = table.metadata_location
            self._open_store(table.metadata.location, name, table.io.properties)
        view = quote_name(name)
        self._execution.execute(
            f"CREATE TEMP VIEW {view} AS FROM iceberg_scan({quote_text(location)}) "
            f"SELECT *{self._hidden_columns(ref)}"
        )
        return name, self._execution.columns(name)

    def _hidden_columns(self, ref: TableRef) -> str:
        """Hide from DuckDB that the source of a partition by time is a column of the table."""
        if not self._alone:
            return ""
        metadata = self._lake.reader(ref.catalog).read(ref.identifier)
        names = {
            metadata.column_names[field["source-id"]]
            for spec in metadata.document.get("partition-specs") or ()
            for field in spec["fields"]
            if field["transform"] in _TIME_TRANSFORMS
            and field.get("source-id") in metadata.column_names
        }
        if nested := [name for name in names if "." in name]:
            raise UnsupportedError(
                f"DuckDB does not find all rows of {ref.name}, which is partitioned by {nested[0]}",
                hint="use --engine spark",
            )
        hidden = [f"[{quote_name(name)}][1] AS {quote_name(name)}" for name in sorted(names)]
        return f" REPLACE ({', '.join(hidden)})" if hidden else ""

    def _local_metadata(self, ref: TableRef) -> str | None:
        """Return the metadata file of a table on the local disk, without PyIceberg."""
        if profile_named(self._lake.settings, ref.catalog).local_warehouse is None:
            return None
        location = self._lake.reader(ref.catalog).read(ref.identifier).metadata_location
        return location if location.startswith(("/", "file:")) else None

    def _open_store(self, location: str, name: str, properties: Mapping[str, Any]) -> None:
        """Give DuckDB the credentials with which PyIceberg reads this table."""
        if not location.startswith("s3"):
            return
        self._execution.read_stores()
        options = store_options(properties)
        written = ", ".join(f"{key} {quote_text(value)}" for key, value in options.items())
        scope = quote_text(location.rstrip("/") + "/")
        self._execution.execute(
            f"CREATE TEMPORARY SECRET {quote_name(name)} (TYPE s3, SCOPE {scope}, {written})"
        )


def store_options(properties: Mapping[str, Any]) -> dict[str, str]:
    """Translate PyIceberg's properties of an S3 store into the options of DuckDB's secret."""
    endpoint = urlsplit(properties.get("s3.endpoint") or "")
    options = {
        "KEY_ID": properties.get("s3.access-key-id"),
        "SECRET": properties.get("s3.secret-access-key"),
        "SESSION_TOKEN": properties.get("s3.session-token"),
        "REGION": properties.get("s3.region") or properties.get("client.region"),
        "ENDPOINT": endpoint.netloc,
        "USE_SSL": "false" if endpoint.scheme == "http" else "",
        # As PyIceberg does where an endpoint is named.
        "URL_STYLE": "path" if endpoint.netloc else "",
    }
    if not options["KEY_ID"]:
        options |= _default_credentials()
    return {key: str(value) for key, value in options.items() if value}


def _default_credentials() -> dict[str, str | None]:
    """Look where AWS's own tools look: environment, profile, role of the machine."""
    import boto3

    session = boto3.Session()
    credentials = session.get_credentials()
    if credentials is None:
        return {}
    frozen = credentials.get_frozen_credentials()
    return {
        "KEY_ID": frozen.access_key,
        "SECRET": frozen.secret_key,
        "SESSION_TOKEN": frozen.token,
    }
