"""Where requests are buffered, and how much and how long."""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """How to reach an object store; what is left out comes from the environment."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    path_style: bool = True


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A buffer: a local directory, or `s3://bucket/prefix` in an object store."""

    location: str
    seal_bytes: int = 64 * MIB
    seal_seconds: float = 5.0
    max_bytes: int = 10 * 1024 * MIB
    # Requests waiting for their commit, per signal: what bounds the receiver's memory.
    max_pending_bytes: int = 64 * MIB
    dedup_seconds: float = 300.0
    # An object store is charged by the put: commits of a stream start at least this far apart.
    put_interval_seconds: float = 0.2
    storage: ObjectStorage = field(default_factory=ObjectStorage)
