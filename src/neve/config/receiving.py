"""Settings of the OTLP receiver and of the buffer it appends to."""

from __future__ import annotations

from pydantic import Field, model_validator

from neve.config.address import ListenAddress
from neve.config.paths import EMBEDDED_DIRECTORY, LocalPath
from neve.config.section import ByteCount, Duration, Section
from neve.config.tokens import Tokens
from neve.limits import (
    DEAD_LETTERS_BYTES,
    DEFAULT_REQUEST_BYTES,
    LARGEST_REQUEST_BYTES,
    MAX_WORKERS,
    MIB,
)


class TlsSettings(Section):
    """Certificates of the receiver, as PEM files."""

    cert: LocalPath = Field(description="The receiver's certificate, with its chain.")
    key: LocalPath = Field(description="The private key of the certificate.")
    client_ca: LocalPath | None = Field(
        None, description="Authority of the clients; set, only clients it has signed may connect."
    )


class ReceiveSettings(Section):
    """The OTLP receiver: neve serve."""

    http: ListenAddress = Field(
        "127.0.0.1:4318",
        description="Address of OTLP/HTTP, as host:port; a port alone is one of 127.0.0.1.",
    )
    grpc: ListenAddress = Field(
        "127.0.0.1:4317",
        description="Address of OTLP/gRPC, as host:port; a port alone is one of 127.0.0.1.",
    )
    workers: int = Field(
        1,
        gt=0,
        le=MAX_WORKERS,
        description="Processes that share both ports; more than one for more than one core.",
    )
    # Before the tokens, whose check asks for it.
    allow_weak_tokens: bool = Field(
        default=False,
        description="Accept tokens of fewer than 16 characters, which can be guessed.",
    )
    tokens: Tokens = Field(
        (),
        description=(
            "Bearer tokens that may send: texts, or entries with a name. None lets everybody in."
        ),
    )
    tls: TlsSettings | None = Field(
        None, description="Certificate files, as cert, key and client_ca; unset means plain text."
    )
    max_request_bytes: ByteCount = Field(
        DEFAULT_REQUEST_BYTES,
        gt=0,
        le=LARGEST_REQUEST_BYTES,
        description="Largest request taken, counted after decompression.",
    )
    dedup_seconds: Duration = Field(
        300.0, ge=0, description="A request sent again within this time is stored once; 0 is off."
    )
    cors_origins: tuple[str, ...] = Field(
        (), description="Web pages that may send, such as https://app.example.com; or *."
    )


class BufferSettings(Section):
    """The durable log between the receiver and the tables."""

    location: LocalPath = Field(
        f"{EMBEDDED_DIRECTORY}/buffer",
        description="A directory, or s3://bucket/prefix (with the storage section).",
    )
    seal_bytes: ByteCount = Field(64 * MIB, gt=0, description="A segment of this size is sealed.")
    seal_seconds: Duration = Field(3.0, gt=0, description="A segment of this age is sealed.")
    max_bytes: ByteCount = Field(
        10 * 1024 * MIB, gt=0, description="Past this, senders are asked to come back later."
    )
    dead_letters_max_bytes: ByteCount = Field(
        DEAD_LETTERS_BYTES,
        gt=0,
        description="Past this, the oldest dead letters are removed with a warning.",
    )
    dead_letters_retain_seconds: Duration = Field(
        30 * 86_400.0, gt=0, description="Dead letters older than this are removed."
    )
    retain_seconds: Duration = Field(
        0.0,
        ge=0,
        description="Consumed segments are kept for so long, for neve consolidate --replay; "
        "beside max_bytes.",
    )

    @model_validator(mode="after")
    def _a_segment_fits(self) -> BufferSettings:
        if self.seal_bytes > self.max_bytes:
            raise ValueError(
                f"seal_bytes ({self.seal_bytes}) is more than max_bytes ({self.max_bytes}): the "
                "buffer would be full before a segment is"
            )
        return self
