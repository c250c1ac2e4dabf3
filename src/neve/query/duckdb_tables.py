"""Scans of the lake's tables by DuckDB, each at the version that its catalog names now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from neve.errors import NotFoundError, UnsupportedError
from neve.lake.identifier import quote_identifier
from neve.lake.metadata_reader import as_json
from neve.lake.paths import store_path
from neve.lake.profile import profile_named
from neve.query.plain_read import NotPlainError
from neve.query.sql_types import of_iceberg
from neve.query.statement import table_parts
from neve.query.typed import Columns, quote_name, quote_text

if TYPE_CHECKING:
    from sqlglot import exp

    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef
    from neve.query.duckdb_execution import Execution


# Spark's own catalogs and formats, which stand where a namespace does.
_NOT_NAMESPACES = frozenset(
    ("global_temp", "system", "session", "parquet", "orc", "avro", "json", "csv", "text", "iceberg")
)

_TIME_TRANSFORMS = ("year", "month", "day", "hour")


class TableScans:
    """Makes a scan of each table that a statement names, when it is first named.

    A scan stands in FROM as it is. A view would have DuckDB read the table's metadata and manifests
    twice: when it is made, and when it is used.

    Args:
        alone: Spark does not take over. A table that does not exist is an error, and constants
            before 1970, for which DuckDB looks in the wrong partitions, make it look in all.
    """

    def __init__(self, lake: Lake, execution: Execution, *, alone: bool = False) -> None:
        self._alone = alone
        self._lake = lake
        self._execution = execution
        self._scans: dict[TableRef, tuple[str, Columns]] = {}

    def scan(self, node: exp.Table) -> tuple[str, Columns]:
        """Return what stands for a table in FROM, and its columns.

        Raises:
            NotFoundError: there is no such table, and nothing else of that name.
            NotPlainError: there is no such table, but it may be something that Spark reads.
            UnsupportedError: it cannot be read without Spark.
        """
        ref = self._lake.ref(quote_identifier(table_parts(node)))
        if ref not in self._scans:
            try:
                self._scans[ref] = self._make(ref)
            except NotFoundError as error:
                if not self._alone and self._may_be_other(ref):
                    raise NotPlainError(f"{ref.name}, which is no table") from error
                raise
        return self._scans[ref]

    def _may_be_other(self, ref: TableRef) -> bool:
        """Say whether a name may be a metadata table, a view, or files with a path for a name."""
        first, *rest = ref.identifier
        may_be_table_of_catalog = len(rest) == 1 and first.lower() not in _NOT_NAMESPACES
        return not may_be_table_of_catalog or self._lake.reader(ref.catalog).may_have_views()

    def _make(self, ref: TableRef) -> tuple[str, Columns]:
        metadata = self._metadata(ref)
        _require_readable_vectors(ref, metadata)
        scan = f"iceberg_scan({quote_text(metadata.metadata_location)})"
        if self._alone and (hidden := _hidden_columns(ref, metadata)):
            scan = f"(SELECT * REPLACE ({', '.join(hidden)}) FROM {scan})"  # noqa: S608 - quoted
        columns = ((field["name"], of_iceberg(field["type"])) for field in metadata.fields)
        return scan, tuple(columns)

    def _metadata(self, ref: TableRef) -> MetadataJson:
        """Read a table's metadata: without PyIceberg from the local disk, else open its store."""
        if profile_named(self._lake.settings, ref.catalog).local_warehouse is not None:
            metadata = self._lake.reader(ref.catalog).read(ref.identifier)
            if store_path(metadata.metadata_location).is_local:
                return metadata
        table = self._lake.load(ref)
        self._open_store(table.metadata.location, table.io.properties)
        return as_json(table)

    def _open_store(self, location: str, properties: Mapping[str, Any]) -> None:
        """Give DuckDB the credentials with which PyIceberg reads this table."""
        if not location.startswith("s3"):
            return
        options = store_options(properties)
        written = ", ".join(f"{key} {quote_text(value)}" for key, value in options.items())
        scope = quote_text(location.rstrip("/") + "/")
        name = quote_name(f"table {len(self._scans)}")
        self._execution.create_secret(
            f"CREATE TEMPORARY SECRET {name} (TYPE s3, SCOPE {scope}, {written})"
        )


def _require_readable_vectors(ref: TableRef, metadata: MetadataJson) -> None:
    """Refuse deletion vectors of several partition specs, which DuckDB 1.5 mixes up.

    It skips some of them and takes others for another file's. Position deletes of format version 2
    it applies correctly, and so it does vectors while the table has one spec.
    """
    has_several_specs = len(metadata.document.get("partition-specs") or ()) > 1
    summary = metadata.current_summary
    has_deletes = summary is not None and summary.get("total-delete-files") != "0"
    if has_several_specs and has_deletes and metadata.format_version > 2:
        raise UnsupportedError(
            f"DuckDB does not delete all rows of {ref.name}: the partitioning was changed, and the "
            "table has deletion vectors",
            hint="use --engine spark",
        )


def _hidden_columns(ref: TableRef, metadata: MetadataJson) -> list[str]:
    """Hide from DuckDB that the source of a partition by time is a column of the table."""
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
    return [f"[{quote_name(name)}][1] AS {quote_name(name)}" for name in sorted(names)]


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
