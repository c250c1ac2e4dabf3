"""The settings tree: every key of neve.yaml, its type, its default, and one sentence on it.

The reference page, `neve init` and `neve config show` are made from this tree, so a key that is
described here is documented everywhere.
"""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from neve.config.address import ListenAddress
from neve.config.auditing import AuditSettings
from neve.config.direct import DirectSettings
from neve.config.merging import MergeSettings
from neve.config.paths import EMBEDDED_DIRECTORY, LocalPath, resolve_path
from neve.config.receiving import BufferSettings, ReceiveSettings
from neve.config.section import ByteCount, Duration, Section
from neve.config.upkeep import UpkeepSettings, check_retention

MIB = 1024 * 1024

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TABLE_BUCKET = re.compile(r"arn:aws[a-z-]*:s3tables:(?P<region>[a-z0-9-]+):\d{12}:bucket/.+")
_SQLITE = "sqlite:///"


def _resolve_sqlite(value: str | None, info: ValidationInfo) -> str | None:
    if value is None or not value.startswith(_SQLITE):
        return value
    return _SQLITE + resolve_path(value.removeprefix(_SQLITE), info)


def _resolve_warehouse(value: str | None, info: ValidationInfo) -> str | None:
    # That of a REST catalog is a name that the server knows.
    return value if value is None or info.data.get("type") == "rest" else resolve_path(value, info)


def _text(value: Any) -> Any:
    """Write YAML's booleans and numbers the way Java properties are written."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


Properties = dict[str, Annotated[str, BeforeValidator(_text)]]


class StorageSettings(Section):
    """S3-compatible object storage, for warehouses that begin with s3://."""

    endpoint: str | None = Field(None, description="Address of the store; unset means AWS itself.")
    region: str | None = Field(None, description="Region that requests are signed for.")
    access_key_id: str | None = Field(
        None, description="Access key; unset means the AWS default chain."
    )
    secret_access_key: SecretStr | None = Field(None, description="Secret that goes with the key.")
    path_style: bool = Field(
        default=False,
        description="Put the bucket into the path, as most stores that are not AWS want it.",
    )
    connect_timeout_seconds: Duration = Field(
        5.0, gt=0, description="How long the store may take to accept a connection."
    )
    timeout_seconds: Duration = Field(
        20.0,
        gt=0,
        description=(
            "How long the store may be silent within a request. A request that fails so is "
            "repeated a few times."
        ),
    )

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> StorageSettings:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key go together: set both or neither")
        return self


class CatalogSettings(Section):
    """The catalog that knows which tables exist and which version of each is current."""

    type: Literal["sqlite", "postgres", "rest", "s3tables", "none"] = Field(
        "sqlite", description="Kind of catalog; none writes plain Parquet without one."
    )
    uri: Annotated[str | None, AfterValidator(_resolve_sqlite)] = Field(
        None,
        description=(
            "Where it is: sqlite:///path/catalog.db, postgresql://user:password@host/db, or the "
            "REST address. For sqlite the default is .neve/catalog.db; for s3tables it follows "
            "from the region."
        ),
    )
    warehouse: Annotated[str | None, AfterValidator(_resolve_warehouse)] = Field(
        None,
        description=(
            "Where new tables are put: a directory or s3://bucket/prefix; for s3tables the table "
            "bucket's ARN; for rest the name the server knows, if it wants one. The default for "
            "sqlite and none is .neve/warehouse."
        ),
    )
    token: SecretStr | None = Field(None, description="Bearer token (rest).")
    credential: SecretStr | None = Field(
        None, description="OAuth2 client credentials as id:secret (rest)."
    )
    connect_timeout_seconds: Duration = Field(
        10.0, gt=0, description="How long the catalog may take to accept a connection."
    )
    timeout_seconds: Duration = Field(
        60.0,
        gt=0,
        description=(
            "How long the catalog may take to answer. After a commit that was not answered in time "
            "the table is read again, to see whether it was applied."
        ),
    )
    properties: Properties = Field(
        default_factory=dict,
        description="Iceberg catalog properties, passed through to Spark and PyIceberg.",
    )

    @model_validator(mode="before")
    @classmethod
    def _embedded_defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        kind = data.get("type", "sqlite")
        defaults = {}
        if kind in ("sqlite", "none"):
            defaults["warehouse"] = f"{EMBEDDED_DIRECTORY}/warehouse"
        if kind == "sqlite":
            defaults["uri"] = f"{_SQLITE}{EMBEDDED_DIRECTORY}/catalog.db"
        # A key that was set to nothing (`uri:`) means the default, as in the rest of YAML's world.
        return defaults | {key: value for key, value in data.items() if value is not None}

    @model_validator(mode="after")
    def _fits_its_type(self) -> CatalogSettings:
        prefixes = {
            "sqlite": (_SQLITE,),
            "postgres": ("postgresql://",),
            "rest": ("http://", "https://"),
            "s3tables": ("http://", "https://"),
        }.get(self.type, ())
        if self.type in ("postgres", "rest") and not self.uri:
            raise ValueError(f"uri is required for type {self.type}")
        if self.type in ("postgres", "s3tables") and not self.warehouse:
            raise ValueError(f"warehouse is required for type {self.type}")
        if self.uri and not self.uri.startswith(prefixes or ("",)):
            raise ValueError(f"uri must begin with {' or '.join(prefixes)} for type {self.type}")
        if self.type == "s3tables" and not _TABLE_BUCKET.fullmatch(self.warehouse or ""):
            raise ValueError("warehouse must be the table bucket's ARN for type s3tables")
        return self._with_fitting_credentials()

    def _with_fitting_credentials(self) -> CatalogSettings:
        if self.type != "rest" and (self.token or self.credential):
            raise ValueError(f"token and credential belong to type rest, not {self.type}")
        if self.token and self.credential:
            raise ValueError("set token or credential, not both")
        return self

    @property
    def bucket_region(self) -> str | None:
        """The region named in a table bucket's ARN."""
        found = _TABLE_BUCKET.fullmatch(self.warehouse or "")
        return found["region"] if found else None


class NamedCatalogSettings(CatalogSettings):
    """A further catalog, with storage of its own."""

    storage: StorageSettings | None = Field(
        None, description="Its object storage; unset means the storage section."
    )


class SparkSettings(Section):
    """How Spark is started."""

    master: str = Field(
        "local[*]", description="local[*], spark://host:port, yarn, or k8s://address."
    )
    conf: Properties = Field(
        default_factory=dict, description="Any Spark settings; they win over Neve's own."
    )
    shared_paths: tuple[str, ...] = Field(
        (),
        description=(
            "On a cluster: absolute paths of mounts that the driver and all executors share. Only "
            "there may a local warehouse or buffer lie; tasks check it when Spark starts."
        ),
    )

    @field_validator("shared_paths")
    @classmethod
    def _shared_paths_are_absolute(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not path.startswith("/"):
                raise ValueError(f"{path} is not an absolute path")
        return tuple(posixpath.normpath(path) for path in paths)


class PromotionSettings(Section):
    """An attribute that gets a typed column of its own, beside its place in the map."""

    attribute: str = Field(min_length=1, description="The attribute's key, such as http.route.")
    source: Literal["record", "resource", "scope"] = Field(
        "record",
        alias="from",
        description="Whose attribute: the log record's, span's or data point's own, or an outer.",
    )
    type: Literal["string", "int", "double", "bool"] = Field(
        "string", description="Type of the column; int is a long, of 64 bits."
    )
    column: str | None = Field(
        None,
        pattern="^[a-z0-9_]+$",
        description="Its name; unset means the attribute's, in lower case, with _ for the rest.",
    )

    @property
    def column_name(self) -> str:
        return self.column or re.sub("[^a-z0-9_]", "_", self.attribute.lower())


class TelemetrySettings(Section):
    """The tables that telemetry becomes."""

    namespace: str = Field("otel", description="Namespace of the seven telemetry tables.")
    promote: tuple[PromotionSettings, ...] = Field(
        (), description="Attributes that become columns of every table, live ones too."
    )

    @model_validator(mode="after")
    def _promotions_are_told_apart(self) -> TelemetrySettings:
        taken: dict[str, PromotionSettings] = {}
        for one in self.promote:
            other = taken.setdefault(one.column_name, one)
            if other is not one:
                raise ValueError(
                    f"promote: the {other.source} attribute {other.attribute} and the {one.source} "
                    f"attribute {one.attribute} both become the column {one.column_name}; give one "
                    "of them another column"
                )
        return self


class ConsolidateSettings(Section):
    """From the buffer to the tables: neve consolidate."""

    trigger_bytes: ByteCount = Field(64 * MIB, gt=0, description="Start when this much is sealed.")
    trigger_seconds: Duration = Field(
        2.0,
        gt=0,
        description="Start this long after the worker first saw a sealed segment waiting.",
    )
    max_held: int = Field(
        100,
        gt=0,
        description=(
            "Batches of one table that audits may hold back. One more that fails its audits stops "
            "that table, whose requests then wait in the buffer until some are published or "
            "discarded."
        ),
    )
    retain_snapshots_seconds: Duration | None = Field(
        None,
        gt=0,
        description=(
            "Deprecated, use upkeep.retain: the same for the telemetry tables. A policy of "
            "upkeep.tables wins."
        ),
    )
    retain_snapshots_min: int | None = Field(
        None,
        ge=2,
        description="Deprecated, use upkeep.retain_min: the same for the telemetry tables.",
    )


class MoveSettings(Section):
    """Moving tables to other catalogs: neve move."""

    journals: LocalPath = Field(
        f"{EMBEDDED_DIRECTORY}/moves",
        description="Directory of the journals, by which an interrupted move goes on.",
    )


class SentrySettings(Section):
    """Failures, sent to Sentry."""

    dsn: SecretStr | None = Field(
        None,
        description=(
            "Where failures are sent: their kind, code, table and place in the code, never a "
            "message or a value; unset sends nothing."
        ),
    )


class ObserveSettings(Section):
    """What Neve tells about itself while it runs."""

    http: ListenAddress | None = Field(
        None,
        description=(
            "Address of /metrics, /healthz and /readyz, as host:port; unset means none, port 0 "
            "any that is free. Whoever reaches it can read it: 127.0.0.1 is this machine only."
        ),
    )
    log_format: Literal["text", "json"] = Field(
        "text",
        description=(
            "How neve run, serve, consolidate and merge log, on standard error: text, or json, "
            "one object on a line; --json does the same."
        ),
    )
    otlp_endpoint: str | None = Field(
        None,
        pattern="^https?://.",
        description=(
            "Where spans of Neve's own work, and metrics of writes without Spark, are sent over "
            "OTLP/HTTP, as http://host:4318, to which /v1/traces or /v1/metrics is added; unset "
            "means there are none."
        ),
    )
    sentry: SentrySettings = Field(
        default_factory=SentrySettings, description="Where failures are sent."
    )


class Settings(Section):
    """Everything Neve can be told."""

    project: str = Field("neve", description="Name of this deployment, a label on metrics.")
    environment: str = Field("dev", description="Such as dev or production, a label on metrics.")
    catalog: CatalogSettings = Field(default_factory=CatalogSettings)
    catalogs: dict[str, NamedCatalogSettings] = Field(
        default_factory=dict,
        description="Further catalogs by name, for moving tables between them.",
    )
    storage: StorageSettings = Field(default_factory=StorageSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    receive: ReceiveSettings = Field(default_factory=ReceiveSettings)
    buffer: BufferSettings = Field(default_factory=BufferSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    consolidate: ConsolidateSettings = Field(default_factory=ConsolidateSettings)
    audits: dict[str, tuple[AuditSettings, ...]] = Field(
        default_factory=dict,
        description="Audits of each table's batches before they are published, by namespace.table.",
    )
    merge: MergeSettings = Field(default_factory=MergeSettings)
    upkeep: UpkeepSettings = Field(default_factory=UpkeepSettings)
    move: MoveSettings = Field(default_factory=MoveSettings)
    direct: DirectSettings = Field(default_factory=DirectSettings)
    observe: ObserveSettings = Field(default_factory=ObserveSettings)

    @field_validator("catalogs")
    @classmethod
    def _names_are_identifiers(
        cls, catalogs: dict[str, NamedCatalogSettings]
    ) -> dict[str, NamedCatalogSettings]:
        for name in catalogs:
            if not _IDENTIFIER.fullmatch(name) or name in ("lake", "spark_catalog", "system"):
                raise ValueError(
                    f"'{name}' cannot name a catalog: use letters, digits and _, and not "
                    "lake, spark_catalog or system"
                )
        return catalogs

    @model_validator(mode="after")
    def _a_request_fits_the_buffer(self) -> Settings:
        largest = self.receive.max_request_bytes
        if self.buffer.max_bytes < largest:
            raise ValueError(
                f"buffer.max_bytes ({self.buffer.max_bytes}) is less than "
                f"receive.max_request_bytes ({largest}): a request of that size could never be "
                "stored, and its sender would try for ever"
            )
        return self

    @model_validator(mode="after")
    def _merges_and_readers_outlive_no_retention(self) -> Settings:
        retain = self.consolidate.retain_snapshots_seconds
        if retain is not None:
            key = "consolidate.retain_snapshots_seconds"
            check_retention(key, retain, self.upkeep.reader_grace)
        for key, seconds in self.upkeep.retentions.items():
            if self.merge.tables and seconds < self.merge.interval:
                raise ValueError(
                    f"upkeep.{key} ({seconds:g} s) is shorter than merge.interval "
                    f"({self.merge.interval:g} s): a merge could lose the version it began with"
                )
        return self
