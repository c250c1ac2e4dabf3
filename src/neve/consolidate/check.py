"""Is what a configuration says of the telemetry tables possible?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from neve.config import Settings
from neve.errors import ConfigError, NeveError
from neve.publish.rejected_rows import BATCH, REJECTED_BY
from neve.telemetry.promote import Promotion, promotions_of, with_promoted_fields
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from neve.lake import Lake


def check_tables(settings: Settings) -> None:
    """Refuse promoted columns that exist already, and audits of what does not exist.

    Needs nothing but the settings.

    Raises:
        ConfigError: it names the setting and the column in question.
    """
    namespace, promotions = settings.telemetry.namespace, promotions_of(settings)
    for one in promotions:
        _check_promotion(namespace, one)
    known = {
        f"{namespace}.{name}": with_promoted_fields(schema, promotions).names
        for name, schema in SCHEMAS.items()
    }
    for table, audits in settings.audits.items():
        if table not in known:
            raise ConfigError(
                f"audits.{table}: there is no such telemetry table",
                hint=f"the tables are {', '.join(known)}",
            )
        for audit in audits:
            for name in audit.all_columns:
                if name.split(".")[0] not in known[table]:
                    raise ConfigError(
                        f"audits.{table}: audit {audit.name} looks at {name}, "
                        "which the table does not have",
                        hint=f"its columns are {', '.join(known[table])}",
                    )


def _check_promotion(namespace: str, one: Promotion) -> None:
    for name, schema in SCHEMAS.items():
        # Failing rows are set aside in a table with two columns more.
        if one.column in (*schema.names, REJECTED_BY, BATCH):
            where = f"{name}_rejected" if one.column in (REJECTED_BY, BATCH) else name
            raise ConfigError(
                f"telemetry.promote: the {one.source} attribute {one.attribute} would become the "
                f"column {one.column}, which {namespace}.{where} has already",
                hint="give it another name with column",
            )


def audit_checks(
    settings: Settings, opened: Callable[[], Lake]
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Return a name and a probe for each table that has audits: Spark analyses them."""
    for table, audits in settings.audits.items():
        if audits:
            yield f"audits {table}", partial(_probe_audits, settings, table, opened)


def _probe_audits(settings: Settings, table: str, opened: Callable[[], Lake]) -> str:
    from neve.publish.audits import analyse_audit

    audits = settings.audits[table]
    with opened() as lake:
        rows = _empty_rows(lake, table)
        for audit in audits:
            try:
                with lake.explaining():
                    analyse_audit(rows, audit)
            except ConfigError as error:
                raise ConfigError(f"audits.{table}: {error.message}", hint=error.hint) from error
            except NeveError as error:
                reason = f"audits.{table}: audit {audit.name}: {error.message}"
                raise ConfigError(reason, hint=error.hint) from error
    return f"{len(audits)} audits fit the table's columns"


def _empty_rows(lake: Lake, table: str) -> DataFrame:
    """Return a frame with the columns of a table as it is, or will be; without a row."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema

    from neve.lake.create import load_if_exists
    from neve.lake.identifier import parse_identifier

    identifier = parse_identifier(table)
    schema = with_promoted_fields(SCHEMAS[identifier[-1]], promotions_of(lake.settings))
    present = (
        load_if_exists(lake.profile, lake.catalog(), identifier)
        if lake.profile.has_catalog
        else None
    )
    if present is not None:
        stored: pa.Schema = schema_to_pyarrow(present.schema(), include_field_ids=False)
        schema = pa.schema([*stored, *(f for f in schema if f.name not in stored.names)])
    with lake.explaining():
        return lake.spark.createDataFrame([], from_arrow_schema(schema))
