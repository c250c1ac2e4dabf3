"""The only door to catalogs, Spark and Iceberg."""

from neve.lake.lake import Lake

__all__ = ["Lake"]
