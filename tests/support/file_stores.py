"""File stores of one directory or one bucket, for tests of copies."""

from __future__ import annotations

from neve.config import CatalogSettings, StorageSettings
from neve.lake.file_store import FileStore
from neve.lake.profile import CatalogProfile
from tests.support.servers import REGION, S3Server


def local_store() -> FileStore:
    return FileStore(CatalogProfile("local", CatalogSettings(), StorageSettings()))


def s3_store(server: S3Server, endpoint: str | None = None, **settings: object) -> FileStore:
    """A store with the login of a server, perhaps through a proxy."""
    storage = StorageSettings.model_validate(
        {
            "endpoint": endpoint or server.endpoint,
            "region": REGION,
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
            "path_style": True,
            **settings,
        }
    )
    return FileStore(CatalogProfile("remote", CatalogSettings(), storage))
