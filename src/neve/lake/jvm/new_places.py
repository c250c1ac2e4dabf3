"""Where a statement would put what it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES = frozenset({"CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"})
_NAMESPACE = "CreateNamespace"
# The properties that decide where the files of a table are, or of a namespace's tables.
_PATHS = (
    "location",
    "write.data.path",
    "write.metadata.path",
    "write.folder-storage.path",
    "write.object-storage.path",
)


def new_places(session: SparkSession, statement: str) -> list[str]:
    """Return names and locations, as written, of the table or namespace that a statement makes.

    It returns none for every other statement. Nothing is resolved or run.
    """
    plan: Any = session._jsparkSession.sessionState().sqlParser().parsePlan(statement)
    kind = plan.getClass().getSimpleName()
    if kind not in _TABLES and kind != _NAMESPACE:
        return []
    properties = plan.properties() if kind == _NAMESPACE else plan.tableSpec().properties()
    options = [properties.get(key) for key in _PATHS]
    if kind in _TABLES:
        options.append(plan.tableSpec().location())
    places = [str(option.get()) for option in options if option.isDefined()]
    name = plan.name()
    # A name that does not stand in the statement comes from a parameter.
    match name.getClass().getSimpleName():
        case "UnresolvedIdentifier":
            parts = name.nameParts()
        case "UnresolvedNamespace":
            parts = name.multipartIdentifier()
        case _:
            return places
    return [*places, *(str(parts.apply(at)) for at in range(parts.size()))]
