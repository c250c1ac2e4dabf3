"""Catalog profiles: one `catalog` section becomes settings for Spark and for PyIceberg. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from neve.config import CatalogSettings, Settings, StorageSettings
from neve.errors import UnsupportedError, UsageError
from neve.lake.identifier import Identifier, parse_identifier
from neve.lake.paths import local_address, local_path

# Not neve: the namespace of our own tables has that name, and neve.batches must mean it.
DEFAULT_CATALOG = "lake"

# PyIceberg writes the V1 layout, and makes no table in a namespace that does not exist.
_JDBC = {"jdbc.schema-version": "V1", "jdbc.strict-mode": "true"}

# What PyIceberg reads and writes files of S3 with, unless `catalog.properties` names another.
_PY_IO, _S3_FILE_IO = "py-io-impl", "neve.lake.object_io.ObjectFileIO"
_S3_SCHEMES = ("s3://", "s3a://", "s3n://")

# Both engines may commit at the same moment; a short wait beats a failed commit.
SQLITE_WAIT_SECONDS = 30


@dataclass(frozen=True)
class CatalogProfile:
    """A named catalog as both engines need to be told about it."""

    name: str
    settings: CatalogSettings
    storage: StorageSettings

    @property
    def section(self) -> str:
        """Where the configuration has it."""
        return "catalog" if self.name == DEFAULT_CATALOG else f"catalogs.{self.name}"

    @property
    def has_catalog(self) -> bool:
        return self.settings.type != "none"

    def table(self, text: str) -> Identifier:
        """Split a table's name, as this catalog lists it."""
        return self.as_listed(parse_identifier(text))

    def namespace(self, text: str) -> Identifier:
        """Split a namespace's name, as this catalog lists it."""
        return self.as_listed((*parse_identifier(text), ""))[:-1]

    def as_listed(self, table: Identifier) -> Identifier:
        """Return a table's identifier as this catalog lists it.

        A database keeps a namespace as one text with dots, so that a level which has a dot is two.
        """
        if self.settings.type not in ("sqlite", "postgres"):
            return table
        return (*".".join(table[:-1]).split("."), table[-1]) if len(table) > 1 else table

    @property
    def warehouse(self) -> str | None:
        """Where new tables go, as an address: local paths become file:// ones, letter by letter."""
        warehouse = self.settings.warehouse
        return local_address(warehouse) if warehouse and warehouse.startswith("/") else warehouse

    @property
    def local_warehouse(self) -> Path | None:
        """The warehouse as a local directory, if it is one."""
        address = self.warehouse or ""
        return local_path(address) if address.startswith("file:") else None

    @property
    def sqlite_file(self) -> Path | None:
        if self.settings.type != "sqlite" or not self.settings.uri:
            return None
        return Path(self.settings.uri.removeprefix("sqlite:///"))

    def within(self, seconds: float) -> CatalogProfile:
        """Return the same for callers that have so long: what a store keeps silent for is bounded.

        A request that times out is sent three times in all, and is not to take all of the time.
        """
        storage = self.storage
        return replace(
            self,
            storage=storage.model_copy(
                update={
                    "connect_timeout_seconds": min(storage.connect_timeout_seconds, seconds / 4),
                    "timeout_seconds": min(storage.timeout_seconds, seconds / 4),
                }
            ),
        )

    def require_catalog(self, feature: str) -> None:
        """Refuse a feature that makes no sense without a catalog."""
        if not self.has_catalog:
            raise UnsupportedError(
                f"{feature} needs a catalog, and catalog.type is none",
                hint="set catalog.type to sqlite, postgres, rest or s3tables",
            )

    def spark_conf(self) -> dict[str, str]:
        """Settings of a Spark session that make this catalog known under its name."""
        if not self.has_catalog:
            return {}
        prefix = f"spark.sql.catalog.{self.name}"
        properties = {
            # Both engines write: a cached table would hide the other's commits.
            "cache-enabled": "false",
            "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
            **self._spark_connection(),
            **self._object_store({"region": "client.region", "path": "s3.path-style-access"}),
            # Of the client that Iceberg takes unless http-client.type says otherwise.
            "http-client.apache.connection-timeout-ms": _millis(
                self.storage.connect_timeout_seconds
            ),
            "http-client.apache.socket-timeout-ms": _millis(self.storage.timeout_seconds),
            **self.settings.properties,
        }
        if self.warehouse:
            properties.setdefault("warehouse", self.warehouse)
        return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
            f"{prefix}.{key}": value for key, value in properties.items()
        }

    def pyiceberg_properties(self) -> dict[str, str]:
        """Properties for `pyiceberg.catalog.load_catalog`."""
        properties = {
            **self._pyiceberg_connection(),
            **self._object_store({"region": "s3.region"}),
            "s3.connect-timeout": f"{self.storage.connect_timeout_seconds:g}",
            "s3.request-timeout": f"{self.storage.timeout_seconds:g}",
            **s3_file_io(self.warehouse or ""),
            **self.settings.properties,
        }
        if self.warehouse:
            properties.setdefault("warehouse", self.warehouse)
        return properties

    def _spark_connection(self) -> dict[str, str]:
        kind, uri = self.settings.type, self.settings.uri or ""
        if kind == "sqlite":
            wait = f"busy_timeout={SQLITE_WAIT_SECONDS * 1000}"
            return {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{self.sqlite_file}?{wait}",
                **_JDBC,
            }
        if kind == "postgres":
            parts = urlsplit(uri)
            host = parts.netloc.rpartition("@")[2]
            login = {"jdbc.user": parts.username, "jdbc.password": parts.password}
            return {
                "type": "jdbc",
                "uri": "jdbc:" + urlunsplit(parts._replace(netloc=host)),
                "jdbc.connectTimeout": _whole_seconds(self.settings.connect_timeout_seconds),
                "jdbc.loginTimeout": _whole_seconds(self.settings.timeout_seconds),
                "jdbc.socketTimeout": _whole_seconds(self.settings.timeout_seconds),
                **_JDBC,
                **{key: unquote(value) for key, value in login.items() if value},
            }
        if kind == "s3tables":
            return self._signed("rest.") | {
                **self._rest_timeouts(),
                "rest.auth.type": "sigv4",
                "rest.auth.sigv4.delegate-auth-type": "none",
                # S3 Tables drops tables with purge only; Spark would purge by itself, and drop.
                "rest-catalog-purge": "true",
            }
        return {"type": "rest", "uri": uri, **self._rest_timeouts(), **self._authorization()}

    def _rest_timeouts(self) -> dict[str, str]:
        return {
            "rest.client.connection-timeout-ms": _millis(self.settings.connect_timeout_seconds),
            "rest.client.socket-timeout-ms": _millis(self.settings.timeout_seconds),
        }

    def _pyiceberg_connection(self) -> dict[str, str]:
        kind, uri = self.settings.type, self.settings.uri or ""
        if kind == "sqlite":
            path = quote(str(self.sqlite_file))
            return {"type": "sql", "uri": f"sqlite:///{path}?timeout={SQLITE_WAIT_SECONDS}"}
        if kind == "postgres":
            return {"type": "sql", "uri": uri.replace("postgresql://", "postgresql+psycopg2://", 1)}
        if kind == "s3tables":
            return self._signed("client.") | {
                "rest.sigv4-enabled": "true",
                # Each would wait as long again for a connection; callers repeat what may pass.
                "rest.sigv4.max-retries": "0",
            }
        return {"type": "rest", "uri": uri, **self._authorization()}

    def _authorization(self) -> dict[str, str]:
        settings = self.settings
        if settings.token:
            return {"token": settings.token.get_secret_value()}
        if settings.credential:
            return {
                "credential": settings.credential.get_secret_value(),
                # Named, since both engines are about to stop guessing it; properties may differ.
                "oauth2-server-uri": f"{(settings.uri or '').rstrip('/')}/v1/oauth/tokens",
            }
        return {}

    def _signed(self, key_prefix: str) -> dict[str, str]:
        """The REST protocol as S3 Tables speaks it: every request signed with SigV4."""
        region = self.settings.bucket_region or self.storage.region or ""
        properties = {
            "type": "rest",
            "uri": self.settings.uri or f"https://s3tables.{region}.amazonaws.com/iceberg",
            "rest.signing-name": "s3tables",
            "rest.signing-region": region,
        }
        if self.storage.access_key_id and self.storage.secret_access_key:
            properties[f"{key_prefix}access-key-id"] = self.storage.access_key_id
            secret = self.storage.secret_access_key.get_secret_value()
            properties[f"{key_prefix}secret-access-key"] = secret
        return properties

    def _object_store(self, names: dict[str, str]) -> dict[str, str]:
        storage = self.storage
        secret = storage.secret_access_key
        region = storage.region or self.settings.bucket_region
        found = {
            "s3.endpoint": storage.endpoint,
            "s3.access-key-id": storage.access_key_id,
            "s3.secret-access-key": secret.get_secret_value() if secret else None,
            names["region"]: region,
        }
        if storage.path_style and "path" in names:
            found[names["path"]] = "true"
        return {key: value for key, value in found.items() if value}


def s3_file_io(location: str) -> dict[str, str]:
    """Return the property that names the FileIO for a location of S3; nothing for other stores."""
    return {_PY_IO: _S3_FILE_IO} if location.startswith(_S3_SCHEMES) else {}


def _millis(seconds: float) -> str:
    return str(math.ceil(seconds * 1000))


def _whole_seconds(seconds: float) -> str:
    # At least one: zero means for ever.
    return str(math.ceil(seconds))


def profiles(settings: Settings) -> dict[str, CatalogProfile]:
    """Return every configured catalog by name, the session's default first."""
    found = {DEFAULT_CATALOG: CatalogProfile(DEFAULT_CATALOG, settings.catalog, settings.storage)}
    for name, catalog in settings.catalogs.items():
        found[name] = CatalogProfile(name, catalog, catalog.storage or settings.storage)
    return found


def profile_named(settings: Settings, name: str) -> CatalogProfile:
    known = profiles(settings)
    if name not in known:
        raise UsageError(f"there is no catalog {name}", hint=f"configured are: {', '.join(known)}")
    return known[name]
