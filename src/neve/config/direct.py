"""Settings of writes without Spark."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from neve.config.paths import EMBEDDED_DIRECTORY, LocalPath
from neve.config.section import ByteCount, Duration, Section
from neve.limits import MIB


class DirectSettings(Section):
    """Writing telemetry without Spark and without a buffer: neve.direct, AWS Lambda."""

    deadline_seconds: Duration = Field(
        30.0,
        gt=0,
        description=(
            "How long a write may try to commit. On AWS Lambda, the time that the function has "
            "left counts, too."
        ),
    )
    when_unavailable: Literal["refuse", "accept"] = Field(
        "refuse",
        description=(
            "What happens to a request whose commit the catalog did not confirm in time: refuse, "
            "so that the client sends it again; or accept, once a recovery record is durable, from "
            "which neve recover registers the written files. S3 Tables takes refuse only."
        ),
    )
    recovery: LocalPath = Field(
        f"{EMBEDDED_DIRECTORY}/recovery",
        description="Directory or address (s3://…) of the recovery records.",
    )
    max_rows: int = Field(
        50_000, gt=0, description="Rows of one commit, when requests are batched."
    )
    max_bytes: ByteCount = Field(
        64 * MIB, gt=0, description="Request bytes of one commit, when requests are batched."
    )
    max_seconds: Duration = Field(
        2.0, gt=0, description="How long the first request of a batch waits for others."
    )
    max_snapshots: int = Field(
        500,
        ge=2,
        description=(
            "How many snapshots a table may have before a direct write removes the oldest in its "
            "own commit, so that a commit costs the same after a year as on the first day. Only "
            "snapshots of direct writes, and of appends that are older than "
            "history.expire.max-snapshot-age-ms, with nothing but appends after them; none that a "
            "tag, a branch or a follower needs, or that upkeep is to tag. Removed versions cannot "
            "be queried any more. S3 Tables expires snapshots by itself."
        ),
    )
