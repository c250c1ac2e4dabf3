"""What a name means to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RelationKind = Literal["Iceberg table", "metadata table", "view", "no Iceberg table"]

_ICEBERG = "org.apache.iceberg."


def relation_kind(session: SparkSession, name: str) -> RelationKind:
    """Say what a quoted name means in a session as it is now: temporary views, USE and all."""
    plan: Any = session.table(name)._jdf.queryExecution().analyzed()
    is_named = plan.nodeName() == "SubqueryAlias"
    relation = plan.child() if is_named else plan
    if not relation.getClass().getSimpleName().startswith("DataSourceV2Relation"):
        return "view" if is_named else "no Iceberg table"
    table = relation.table()
    if not table.getClass().getName().startswith(_ICEBERG):
        return "no Iceberg table"
    iceberg = table.table()
    # `ns.t.history` and `ns.t.branch_x` mean a part of another table.
    has_name = str(iceberg.name()).endswith(relation.identifier().get().name())
    is_whole = has_name and iceberg.getClass().getSimpleName() == "BaseTable"
    return "Iceberg table" if is_whole else "metadata table"
