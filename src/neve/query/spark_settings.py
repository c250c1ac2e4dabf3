"""Settings of Spark that change what a statement means, which DuckDB does not know."""

from __future__ import annotations

from collections.abc import Mapping

from neve.query.plain_read import NotPlainError

# How fast Spark answers, how it writes, and where it finds tables: not what it answers.
_WITHOUT_MEANING = (
    "spark.sql.adaptive.",
    "spark.sql.artifact.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.catalog.",
    "spark.sql.catalogImplementation",
    "spark.sql.codegen.",
    "spark.sql.execution.",
    "spark.sql.extensions",
    "spark.sql.files.",
    "spark.sql.shuffle.",
    "spark.sql.ui.",
    "spark.sql.warehouse.dir",
)
# What a plain read is translated for; people may set what holds anyway.
_USUAL = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.defaultCatalog": "lake",
    "spark.sql.session.timeZone": "UTC",
}


def require_usual_meaning(settings: Mapping[str, str]) -> None:
    """Refuse settings that a person made and that may change an answer: a zone, a catalog.

    Raises:
        NotPlainError: names the setting.
    """
    for key, value in sorted(settings.items()):
        has_meaning = key.startswith(("spark.sql.", "spark.wap."))
        if has_meaning and not key.startswith(_WITHOUT_MEANING) and _USUAL.get(key) != value:
            raise NotPlainError(f"the setting {key} is {value}")
