"""What is wrong with a table, what helps, and by how much. Pure.

Each finding costs points of 100, by a share or a logarithm, so that twice as bad costs more and no
single one costs all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

from neve.limits import MIB
from neve.upkeep.compaction import plan_groups

if TYPE_CHECKING:
    from neve.upkeep.observed_table import ObservedTable

MAINTAIN = "neve maintain"
_MANY_SNAPSHOTS = 2_000
_LARGE_METADATA = 10 * MIB
_SKEWED = 10.0
_SKEWED_PARTITIONS = 5
_HEALTHY_FILES_PER_KEY = 4.0
_LATE_SECONDS = 3600.0


@dataclass(frozen=True)
class Finding:
    """One thing that makes a table slow or large.

    Args:
        name: a word that stays the same when the text is reworded.
        action: the command that helps; None: nothing has to be done, or only people can decide.
        effect: what is expected of it.
        penalty: points off the score.
    """

    name: str
    text: str
    penalty: int
    action: str | None = None
    effect: str | None = None


def find(observed: ObservedTable, facts: Mapping[str, Any], now: float) -> Iterator[Finding]:
    """Yield the findings of a table, those of its files first."""
    yield from _files(observed, facts, now)
    yield from _deletes(observed)
    yield from _metadata(observed, facts)
    yield from _others(facts)


def _files(observed: ObservedTable, facts: Mapping[str, Any], now: float) -> Iterator[Finding]:
    layout, policy = observed.layout, observed.policy
    groups = plan_groups(layout.candidates, policy, now)
    before = sum(len(group.paths) for group in groups)
    after = sum(group.output_files for group in groups)
    command = f"{MAINTAIN} {observed.name}" if observed.is_compacted else None
    if before > after:
        size = sum(group.bytes for group in groups)
        yield Finding(
            "small_files",
            f"{layout.small_files:,} of {layout.files:,} files are small",
            _points(40, 1 - after / before, log2(before / after) / 8),
            command or _allow(observed.name),
            f"{before:,} files become {after:,}; {size / MIB:,.1f} MiB are rewritten",
        )
    depth = facts["files_per_key"]
    if depth is not None and depth > _HEALTHY_FILES_PER_KEY:
        effect = (
            f"{depth:,.0f} files for a key become about {_depth_after(observed, before, after)}"
        )
        yield Finding(
            "overlap",
            f"a value of the leading sort column is in {depth:,.0f} files of its hour or partition",
            _points(20, log2(depth / _HEALTHY_FILES_PER_KEY) / 5),
            (command or _allow(observed.name)) if groups else None,
            effect if groups else "closed hours only: the open one is left alone",
        )


def _depth_after(observed: ObservedTable, before: int, after: int) -> int:
    files = observed.layout.files
    depth = observed.layout.files_per_key or 1.0
    return max(1, round(depth * (files - before + after) / files))


def _deletes(observed: ObservedTable) -> Iterator[Finding]:
    layout = observed.layout
    share = layout.deleted_rows / layout.records if layout.records else 0.0
    if share >= observed.policy.delete_ratio / 2:
        yield Finding(
            "deleted_rows",
            f"{share:.0%} of the stored rows are deleted, in {layout.files_with_deletes:,} files",
            _points(30, share * 2),
            f"{MAINTAIN} {observed.name}" if observed.is_compacted else _allow(observed.name),
            f"up to {layout.deleted_rows:,} rows fewer to read and to skip",
        )
    if layout.position_delete_files > observed.policy.max_delete_files:
        yield Finding(
            "delete_files",
            f"{layout.position_delete_files:,} position delete files",
            10,
            f"{MAINTAIN} {observed.name}",
            "one for each partition",
        )


def _metadata(observed: ObservedTable, facts: Mapping[str, Any]) -> Iterator[Finding]:
    command = f"{MAINTAIN} {observed.name}"
    manifests, wanted = facts["manifests"], wanted_manifests(observed)
    if manifests > wanted:
        yield Finding(
            "manifests",
            f"{manifests:,} manifests of {facts['manifest_bytes'] / MIB:,.1f} MiB",
            _points(10, log2(manifests / wanted) / 4),
            command,
            f"about {-(-facts['manifest_bytes'] // (8 * MIB)):,} manifests",
        )
    if facts["snapshots"] > _MANY_SNAPSHOTS:
        yield Finding(
            "snapshots",
            f"{facts['snapshots']:,} snapshots: each commit writes the list of all",
            _points(15, log2(facts["snapshots"] / _MANY_SNAPSHOTS) / 4),
            command,
            "what the retention keeps",
        )
    if facts["metadata_bytes"] > _LARGE_METADATA:
        yield Finding(
            "metadata",
            f"its metadata file has {facts['metadata_bytes'] / MIB:,.1f} MiB",
            _points(10, log2(facts["metadata_bytes"] / _LARGE_METADATA) / 4),
            command,
            "as many snapshots as the retention keeps",
        )
    if facts["partitions"] >= _SKEWED_PARTITIONS and facts["skew"] > _SKEWED:
        yield Finding("skew", f"its largest partition is {facts['skew']:,.0f} times the mean", 5)


def wanted_manifests(observed: ObservedTable) -> int:
    """Return from how many manifests on they are rewritten."""
    by_size = 4 * (observed.manifest_bytes // (8 * MIB) + 1)
    return max(observed.policy.max_manifests, by_size)


def _others(facts: Mapping[str, Any]) -> Iterator[Finding]:
    if facts["held"]:
        yield Finding(
            "held", f"{facts['held']} batches are held back by audits", 5, "neve staged list"
        )
    if facts.get("index") == "missing":
        yield Finding(
            "index", "its index is missing: merges read the whole mirror", 10, "neve merge --once"
        )
    lag = facts.get("lag_seconds") or 0.0
    if lag > _LATE_SECONDS:
        commits = facts["lag_snapshots"]
        yield Finding(
            "lag", f"{commits:,} commits of its changelog wait, the oldest for {lag / 60:,.0f} min",
            _points(15, log2(lag / _LATE_SECONDS + 1) / 4), "neve merge --once",
        )  # fmt: skip
    behind = facts["follower_lag_seconds"] or 0.0
    if behind > _LATE_SECONDS:
        yield Finding(
            "followers",
            f"a follower is {behind / 3600:,.1f} h behind, and keeps snapshots from expiring",
            5,
            "neve follow list",
        )


def _allow(table: str) -> str:
    return f"upkeep.tables: {{{table}: {{compact: true}}}}"


def _points(most: int, *shares: float) -> int:
    """Return points for how bad something is, each share from 0 to 1, at least one point."""
    share = 1.0
    for each in shares:
        share *= min(1.0, max(0.0, each))
    return max(1, round(most * share))
