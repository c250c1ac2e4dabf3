"""What waits for somebody: staged and held batches, an index, merges, followers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import log2
from typing import TYPE_CHECKING, Any

from neve.config.merging import INDEXED_ROWS
from neve.lake.follower_tags import unread_snapshots
from neve.lake.horizons import MOST_COMMITS_BEHIND
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX
from neve.sizes import size_text
from neve.upkeep.finding import Finding, points

if TYPE_CHECKING:
    from neve.lake.staged_snapshot import StagedSnapshot
    from neve.upkeep.observed_table import ObservedTable

_LATE_SECONDS = 3600.0


def find_waiting(
    observed: ObservedTable, facts: Mapping[str, Any], now: float
) -> Iterator[Finding]:
    """Yield what waits for longer than an hour, and what only people decide on."""
    yield from _batches(observed, facts, now)
    yield from _index(observed, facts)
    yield from _lag(observed, facts)
    behind = facts["follower_lag_seconds"] or 0.0
    if behind > _LATE_SECONDS:
        kept = len(unread_snapshots(observed.metadata, 0))
        yield Finding(
            "followers",
            f"a follower is {behind / 3600:,.1f} h behind, and keeps snapshots from expiring",
            5,
            f"neve follow list {observed.name}",
            f"{kept:,} snapshots may expire once they are read, or the follower is dropped",
        )


def _batches(observed: ObservedTable, facts: Mapping[str, Any], now: float) -> Iterator[Finding]:
    latest_ms = (now - _LATE_SECONDS) * 1000
    # A batch is staged for seconds. What is left for an hour, nobody is at any more.
    left = [
        each for each in observed.metadata.staged(STAGED_PREFIX) if each.timestamp_ms <= latest_ms
    ]
    if left:
        hours = (now - min(each.timestamp_ms for each in left) / 1000) / 3600
        yield Finding(
            "staged",
            f"batches were staged and not published: {len(left):,}, the oldest for {hours:,.1f} h",
            5,
            "neve consolidate --once",
            f"{_rows(left):,} rows are published, or discarded where they are in the table already",
        )
    if facts["held"]:
        rows = _rows(observed.metadata.staged(HELD_PREFIX))
        yield Finding(
            "held",
            f"batches held back by audits: {facts['held']:,}",
            5,
            f"neve staged list {observed.name}",
            f"{rows:,} rows come into the table, or are given up",
        )


def _rows(batches: Iterable[StagedSnapshot]) -> int:
    return sum(int(each.summary.get("added-records", 0)) for each in batches)


def _index(observed: ObservedTable, facts: Mapping[str, Any]) -> Iterator[Finding]:
    behind = facts.get("index_behind") or 0
    is_needed = observed.layout.records >= INDEXED_ROWS
    if facts.get("index") == "missing":
        what = "its index is missing"
    elif behind > MOST_COMMITS_BEHIND and is_needed:
        what = f"its index is {behind:,} commits behind, and not used any more"
    else:
        return
    layout = observed.layout
    yield Finding(
        "index",
        f"{what}: merges read the whole mirror",
        10,
        f"neve index build {observed.name}",
        f"a merge looks keys up instead of reading {facts['rows']:,} rows, "
        f"{size_text(layout.bytes)}",
    )


def _lag(observed: ObservedTable, facts: Mapping[str, Any]) -> Iterator[Finding]:
    lag = facts.get("lag_seconds") or 0.0
    if lag > _LATE_SECONDS:
        commits = facts["lag_snapshots"]
        yield Finding(
            "lag",
            f"{commits:,} commits of its changelog wait, the oldest for {lag / 60:,.0f} min",
            points(15, log2(lag / _LATE_SECONDS + 1) / 4),
            f"neve merge {observed.name} --once",
            f"{facts['lag_rows']:,} changes are merged",
        )
