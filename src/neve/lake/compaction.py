"""Iceberg's own procedure that rewrites small data files into larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.lake.identifier import quote_identifier

if TYPE_CHECKING:
    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef


def rewrite_data_files(lake: Lake, ref: TableRef, max_files: int) -> None:
    """Rewrite at most `max_files` small data files of a table. Atomic; rows stay the same."""
    with lake.explaining():
        lake.spark.sql(
            f"CALL {quote_identifier((ref.catalog, 'system', 'rewrite_data_files'))}"
            "(table => :table, "
            "options => map('min-input-files', '2', 'max-files-to-rewrite', :max_files))",
            args={"table": ref.quoted, "max_files": str(max_files)},
        ).collect()
