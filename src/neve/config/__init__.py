"""One frozen settings tree, read from neve.yaml and the environment."""

from neve.config.auditing import AuditSettings
from neve.config.cache import cache_directory
from neve.config.load import Loaded, load
from neve.config.receiving import BufferSettings, ReceiveSettings
from neve.config.settings import (
    CatalogSettings,
    NamedCatalogSettings,
    PromotionSettings,
    Settings,
    SparkSettings,
    StorageSettings,
)

__all__ = [
    "AuditSettings",
    "BufferSettings",
    "CatalogSettings",
    "Loaded",
    "NamedCatalogSettings",
    "PromotionSettings",
    "ReceiveSettings",
    "Settings",
    "SparkSettings",
    "StorageSettings",
    "cache_directory",
    "load",
]
