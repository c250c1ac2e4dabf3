"""Is what a configuration says of the telemetry tables possible? Needs nothing but itself."""

from __future__ import annotations

from neve.config import Settings
from neve.errors import ConfigError
from neve.publish.audited_publisher import BATCH, REJECTED_BY
from neve.telemetry.promote import Promotion, promotions_of, with_promoted_fields
from neve.telemetry.schemas import SCHEMAS


def check_tables(settings: Settings) -> None:
    """Refuse promoted columns that exist already, and audits of what does not exist.

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
