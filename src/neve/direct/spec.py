"""What a direct writer is told."""

from __future__ import annotations

from dataclasses import dataclass

from neve.config import Settings
from neve.limits import DEFAULT_REQUEST_BYTES, MIB
from neve.telemetry.promote import Promotion, promotions_of


@dataclass(frozen=True)
class DirectSpec:
    """A direct writer.

    Args:
        deadline_seconds: for all attempts of one commit.
        accepts_unconfirmed: whether a request whose commit was not confirmed in time is kept by a
            recovery record, in `recovery`.
        max_rows, max_bytes, max_seconds: of a batch of requests.
        max_snapshots: of each table, but for what a follower has not read, up to its horizon.
        flush_bytes: Arrow bytes of a table's rows that are gathered before a file is written.
    """

    namespace: str = "otel"
    promotions: tuple[Promotion, ...] = ()
    deadline_seconds: float = 30.0
    accepts_unconfirmed: bool = False
    recovery: str = ""
    max_rows: int = 50_000
    max_bytes: int = 64 * MIB
    max_seconds: float = 2.0
    max_request_bytes: int = DEFAULT_REQUEST_BYTES
    flush_bytes: int = 256 * MIB
    max_snapshots: int = 500
    follow_horizon_seconds: float = 7 * 86_400.0


def direct_spec(settings: Settings) -> DirectSpec:
    """Return the writer that a configuration asks for."""
    direct = settings.direct
    return DirectSpec(
        namespace=settings.telemetry.namespace,
        promotions=promotions_of(settings),
        deadline_seconds=direct.deadline_seconds,
        accepts_unconfirmed=direct.when_unavailable == "accept",
        recovery=direct.recovery,
        max_rows=direct.max_rows,
        max_bytes=direct.max_bytes,
        max_seconds=direct.max_seconds,
        max_request_bytes=settings.receive.max_request_bytes,
        max_snapshots=direct.max_snapshots,
        follow_horizon_seconds=settings.upkeep.follow_horizon_seconds,
    )
