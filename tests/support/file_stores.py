"""File stores of one directory or one bucket, for tests of copies."""

from __future__ import annotations

import pytest

from neve.config import CatalogSettings, StorageSettings
from neve.lake import file_copy, stored_files
from neve.lake.file_store import FileStore
from neve.lake.profile import CatalogProfile
from neve.limits import MIB
from tests.support.servers import REGION, S3Server

# The shortest parts that S3 takes.
PART = 5 * MIB


def use_small_parts(monkeypatch: pytest.MonkeyPatch, *, whole: bool = True) -> None:
    """Copy in parts of `PART`; files that are longer are written whole, or in such parts."""
    for module in (stored_files, file_copy):
        monkeypatch.setattr(module, "PART_BYTES", PART)
    if not whole:
        monkeypatch.setattr(stored_files, "WHOLE_BYTES", PART)


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
