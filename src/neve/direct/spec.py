"""What a direct writer is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from neve.config import Settings
from neve.config.upkeep import UpkeepSettings
from neve.lake.snapshot_limit import SnapshotLimit
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
        max_snapshots: of each table, but for what `upkeep` keeps for followers and as tags.
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
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)

    def snapshot_limit(self, table: str) -> SnapshotLimit:
        """Return which snapshots of a table a commit may remove."""
        upkeep = self.upkeep
        policy = upkeep.policy_of(f"{self.namespace}.{table}")
        hourly, daily = policy.keep_hourly, policy.keep_daily
        return SnapshotLimit(
            self.max_snapshots,
            upkeep.follow_horizon_seconds,
            upkeep.keep_hourly if hourly is None else hourly,
            upkeep.keep_daily if daily is None else daily,
        )


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
        upkeep=settings.upkeep,
    )
