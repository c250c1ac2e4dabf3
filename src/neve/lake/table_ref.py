"""A table by its catalog and its identifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.lake.identifier import Identifier, name_of, quote_identifier
from neve.lake.profile import DEFAULT_CATALOG

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class TableRef:
    """Names one table of one configured catalog."""

    catalog: str
    identifier: Identifier

    @classmethod
    def of(cls, table: Table) -> TableRef:
        """Name a table that a lake has loaded: PyIceberg's catalog has the configured name."""
        return cls(str(table.catalog.name), tuple(table.name()))

    @property
    def name(self) -> str:
        """Namespace and table with dots; with the catalog in front if it is not the default."""
        parts = self.identifier
        if self.catalog != DEFAULT_CATALOG:
            parts = (self.catalog, *parts)
        return name_of(parts)

    @property
    def quoted(self) -> str:
        """The name as Spark reads it in any session, catalog included."""
        return quote_identifier((self.catalog, *self.identifier))

    def with_suffix(self, suffix: str) -> TableRef:
        """Name the table beside this one: `<table><suffix>`."""
        return TableRef(self.catalog, (*self.identifier[:-1], f"{self.identifier[-1]}{suffix}"))
