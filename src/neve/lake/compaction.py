"""Iceberg's own procedure that rewrites small data files into larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.lake.identifier import Identifier, quote_identifier
from neve.lake.profile import DEFAULT_CATALOG

if TYPE_CHECKING:
    from neve.lake.lake import Lake


def rewrite_data_files(lake: Lake, identifier: Identifier, max_files: int) -> None:
    """Rewrite at most `max_files` small data files of a table. Atomic; rows stay the same."""
    with lake.explaining():
        lake.spark.sql(
            "CALL system.rewrite_data_files(table => :table, "
            "options => map('min-input-files', '2', 'max-files-to-rewrite', :max_files))",
            args={
                "table": quote_identifier((DEFAULT_CATALOG, *identifier)),
                "max_files": str(max_files),
            },
        ).collect()
