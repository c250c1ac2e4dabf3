"""Settings of lakes on the test servers, one builder for each catalog profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.config import Settings
from tests.support.servers import REGION, Database, S3Server

if TYPE_CHECKING:
    from pathlib import Path

# Small: the machine is shared with the servers, and with the next test process.
SPARK = {
    "master": "local[2]",
    "conf": {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"},
}
TOKEN = "t0ken-of-the-tests"
CLIENT, CLIENT_SECRET = "tester", "s3cret/of+the=tests"
TABLE_BUCKET = f"arn:aws:s3tables:{REGION}:111122223333:bucket/lake"


def sqlite_settings(directory: Path, **catalog: Any) -> Settings:
    return _settings(
        {
            "type": "sqlite",
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": str(directory / "warehouse"),
            **catalog,
        }
    )


def postgres_settings(database: Database, storage: S3Server, **catalog: Any) -> Settings:
    warehouse = f"s3://{storage.bucket}/postgres"
    return _settings(
        {"type": "postgres", "uri": database.uri(), "warehouse": warehouse, **catalog}, storage
    )


def rest_settings(uri: str, storage: S3Server, **catalog: Any) -> Settings:
    return _settings({"type": "rest", "uri": uri, **catalog}, storage)


def s3tables_settings(uri: str, storage: S3Server, **keys: Any) -> Settings:
    return _settings({"type": "s3tables", "uri": uri, "warehouse": TABLE_BUCKET}, storage, **keys)


def plain_settings(directory: Path) -> Settings:
    return _settings({"type": "none", "warehouse": str(directory / "warehouse")})


def _settings(catalog: dict[str, Any], storage: S3Server | None = None, **keys: Any) -> Settings:
    section: dict[str, Any] = {}
    if storage:
        section = {
            "endpoint": storage.endpoint,
            "region": REGION,
            "access_key_id": storage.access_key,
            "secret_access_key": storage.secret_key,
            "path_style": True,
            **keys,
        }
    return Settings.model_validate({"catalog": catalog, "storage": section, "spark": SPARK})
