"""Catalogs, Spark sessions, tables and commits: the way to tables for every other room."""

from neve.lake.lake import Lake

__all__ = ["Lake"]
