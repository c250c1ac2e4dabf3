"""What is consolidated, when, and in which portions."""

from __future__ import annotations

from dataclasses import dataclass

from neve.buffer.spec import BufferSpec, buffer_spec
from neve.config import Settings
from neve.telemetry.promote import Promotion, promotions_of

MIB = 1024 * 1024


@dataclass(frozen=True)
class ConsolidateSpec:
    """A consolidation worker."""

    buffer: BufferSpec
    namespace: str = "otel"
    promotions: tuple[Promotion, ...] = ()
    trigger_bytes: int = 64 * MIB
    trigger_seconds: float = 2.0
    # Bytes of a file that are wanted, and stored bytes of segments that a task has at least.
    task_bytes: int = 32 * MIB
    # Stored bytes for one commit of each table: bounds what a kill makes us do again.
    batch_bytes: int = 1024 * MIB
    # Arrow bytes that a task gathers, of all tables, before it compresses or writes some. A span
    # takes some 450 there, and 66 in a file and a segment.
    flush_bytes: int = 256 * MIB
    # A worker that was not seen for so long has lost its turn; 0 lets several do the same work.
    lease_seconds: float = 15.0


def consolidate_spec(settings: Settings) -> ConsolidateSpec:
    """Return the worker that a configuration asks for."""
    return ConsolidateSpec(
        buffer=buffer_spec(settings),
        namespace=settings.telemetry.namespace,
        promotions=promotions_of(settings),
        trigger_bytes=settings.consolidate.trigger_bytes,
        trigger_seconds=settings.consolidate.trigger_seconds,
    )
