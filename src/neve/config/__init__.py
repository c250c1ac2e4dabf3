"""One frozen settings tree, read from neve.yaml and the environment."""

from neve.config.cache import cache_directory
from neve.config.load import Loaded, load
from neve.config.settings import (
    BufferSettings,
    CatalogSettings,
    NamedCatalogSettings,
    ReceiveSettings,
    Settings,
    SparkSettings,
    StorageSettings,
)

__all__ = [
    "BufferSettings",
    "CatalogSettings",
    "Loaded",
    "NamedCatalogSettings",
    "ReceiveSettings",
    "Settings",
    "SparkSettings",
    "StorageSettings",
    "cache_directory",
    "load",
]
