"""Temporary views that stand in the place of version clauses, for as long as they are needed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from neve.errors import NeveError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

    from neve.lake import Lake
    from neve.versions.stored_queries import StoredQuery

# The views that the queries of temporary views read, by the names of the latter.
_KEPT: WeakKeyDictionary[SparkSession, dict[str, list[str]]] = WeakKeyDictionary()


class StatementViews:
    """The views of one statement. They are dropped at the end of the block.

    Spark resolves names when it is given the statement. Only a statement that stores its query as
    text needs them later: they are kept until what it made is replaced or dropped.
    """

    def __init__(self, lake: Lake, stored: StoredQuery | None) -> None:
        self._lake = lake
        self._stored = stored
        self._session: SparkSession | None = None
        self._names: list[str] = []

    def __enter__(self) -> Self:
        return self

    def add(self, frame: DataFrame) -> str:
        """Make a view of rows and return its name."""
        name = f"neve_{uuid.uuid4().hex}"
        frame.createTempView(name)
        self._session = frame.sparkSession
        self._names.append(name)
        return name

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an interrupt the connection to Java may be in the middle of an answer.
        if self._session is None or (kind is not None and not issubclass(kind, Exception)):
            return
        if self._stored is None or kind is not None:
            self._drop(self._names)
            return
        kept = _KEPT.setdefault(self._session, {})
        self._drop(kept.pop(self._stored.name, ()))
        for name in [name for name in kept if not self._exists(name)]:
            self._drop(kept.pop(name))
        kept[self._stored.name] = self._names

    def _drop(self, names: Iterable[str]) -> None:
        # A JVM that died has taken its views with it.
        with suppress(NeveError), self._lake.explaining():
            for name in names:
                if self._session is not None:
                    self._session.catalog.dropTempView(name)

    def _exists(self, name: str) -> bool:
        try:
            return self._lake.relation_kind((name,)) == "view"
        except NeveError as error:
            return not isinstance(error, NotFoundError)
