"""The only door to catalogs, Spark and Iceberg."""

from neve.lake.lake import Lake, open_lake

__all__ = ["Lake", "open_lake"]
