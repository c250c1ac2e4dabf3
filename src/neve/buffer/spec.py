"""Where requests are buffered, and how much and how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.limits import DEAD_LETTERS_BYTES, MIB, PENDING_BYTES

if TYPE_CHECKING:
    from neve.config import Settings


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """How to reach an object store; what is left out comes from the environment."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    path_style: bool = True
    connect_timeout_seconds: float = 5.0
    # How long the store may be silent within a request.
    timeout_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A buffer: a local directory, or `s3://bucket/prefix` in an object store."""

    location: str
    seal_bytes: int = 64 * MIB
    seal_seconds: float = 3.0
    max_bytes: int = 10 * 1024 * MIB
    # Of the dead letters, which do not count in `max_bytes`.
    dead_letters_max_bytes: int = DEAD_LETTERS_BYTES
    dead_letters_retain_seconds: float = 30 * 86_400.0
    # Consumed segments are kept for so long; they do not count in `max_bytes`. 0 keeps none.
    retain_seconds: float = 0.0
    # Requests waiting for their commit, per signal: what bounds the receiver's memory.
    max_pending_bytes: int = PENDING_BYTES
    dedup_seconds: float = 300.0
    # An object store is charged by the put: commits of a stream start at least this far apart.
    put_interval_seconds: float = 0.2
    # The same for a disk, where each fdatasync costs processor time: requests that come in between
    # share one, and a request that comes alone does not wait.
    sync_interval_seconds: float = 0.005
    storage: ObjectStorage = field(default_factory=ObjectStorage)


def buffer_spec(settings: Settings) -> BufferSpec:
    """Return the buffer that a configuration asks for."""
    buffer, storage = settings.buffer, settings.storage
    secret = storage.secret_access_key
    return BufferSpec(
        location=buffer.location,
        seal_bytes=buffer.seal_bytes,
        seal_seconds=buffer.seal_seconds,
        max_bytes=buffer.max_bytes,
        dead_letters_max_bytes=buffer.dead_letters_max_bytes,
        dead_letters_retain_seconds=buffer.dead_letters_retain_seconds,
        retain_seconds=buffer.retain_seconds,
        dedup_seconds=settings.receive.dedup_seconds,
        storage=ObjectStorage(
            endpoint=storage.endpoint,
            region=storage.region,
            access_key_id=storage.access_key_id,
            secret_access_key=secret.get_secret_value() if secret else None,
            path_style=storage.path_style,
            connect_timeout_seconds=storage.connect_timeout_seconds,
            timeout_seconds=storage.timeout_seconds,
        ),
    )
