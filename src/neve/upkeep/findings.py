"""What is wrong with a table, what helps, and by how much. Pure.

Each finding costs points of 100, by a share or a logarithm, so that twice as bad costs more and no
single one costs all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING, Any

from neve.limits import MIB
from neve.sizes import size_text
from neve.upkeep.compaction import plan_groups
from neve.upkeep.finding import Finding as Finding
from neve.upkeep.finding import allow as allow
from neve.upkeep.finding import maintain as maintain
from neve.upkeep.finding import points
from neve.upkeep.layout import partition_text
from neve.upkeep.waiting_findings import find_waiting

if TYPE_CHECKING:
    from neve.upkeep.observed_table import ObservedTable

_MANY_SNAPSHOTS = 2_000
_LARGE_METADATA = 10 * MIB
_SKEWED = 10.0
_SKEWED_PARTITIONS = 5
_HEALTHY_FILES_PER_KEY = 4.0


def find(observed: ObservedTable, facts: Mapping[str, Any], now: float) -> Iterator[Finding]:
    """Yield the findings of a table, those of its files first."""
    yield from _files(observed, facts, now)
    yield from _deletes(observed)
    yield from _metadata(observed, facts, now)
    yield from find_waiting(observed, facts, now)


def _files(observed: ObservedTable, facts: Mapping[str, Any], now: float) -> Iterator[Finding]:
    layout, policy = observed.layout, observed.policy
    groups = plan_groups(layout.candidates, policy, now)
    before = sum(len(group.paths) for group in groups)
    after = sum(group.output_files for group in groups)
    action = _compaction(observed)
    if before > after:
        size = sum(group.bytes for group in groups)
        yield Finding(
            "small_files",
            f"{layout.small_files:,} of {layout.files:,} files are small",
            points(40, 1 - after / before, log2(before / after) / 8),
            action,
            f"{before:,} files become {after:,}; {size_text(size)} are rewritten",
        )
    depth = facts["files_per_key"]
    if depth is not None and depth > _HEALTHY_FILES_PER_KEY:
        effect = (
            f"{depth:,.0f} files for a key become about {_depth_after(observed, before, after)}"
        )
        yield Finding(
            "overlap",
            f"a value of the leading sort column is in {depth:,.0f} files of its hour or partition",
            points(20, log2(depth / _HEALTHY_FILES_PER_KEY) / 5),
            action if groups else None,
            effect if groups else "closed hours only: the open one is left alone",
        )


def _depth_after(observed: ObservedTable, before: int, after: int) -> int:
    files = observed.layout.files
    depth = observed.layout.files_per_key or 1.0
    return max(1, round(depth * (files - before + after) / files))


def _compaction(observed: ObservedTable) -> str:
    return maintain(observed) if observed.is_compacted else allow(observed, "compact")


def _deletes(observed: ObservedTable) -> Iterator[Finding]:
    layout = observed.layout
    share = layout.deleted_rows / layout.records if layout.records else 0.0
    if share >= observed.policy.delete_ratio / 2:
        yield Finding(
            "deleted_rows",
            f"{share:.0%} of the stored rows are deleted, in {layout.files_with_deletes:,} files",
            points(30, share * 2),
            _compaction(observed),
            f"up to {layout.deleted_rows:,} rows fewer to read and to skip",
        )
    surplus = layout.surplus_delete_files
    if surplus > observed.policy.max_delete_files:
        yield Finding(
            "delete_files",
            f"{surplus:,} position delete files too many",
            10,
            _compaction(observed),
            f"{surplus:,} position delete files fewer",
        )


def _metadata(observed: ObservedTable, facts: Mapping[str, Any], now: float) -> Iterator[Finding]:
    manifests, wanted = facts["manifests"], wanted_manifests(observed)
    if manifests > wanted:
        after = -(-facts["manifest_bytes"] // (8 * MIB))
        yield Finding(
            "manifests",
            f"{manifests:,} manifests of {size_text(facts['manifest_bytes'])}",
            points(10, log2(manifests / wanted) / 4),
            _compaction(observed),
            f"{manifests:,} manifests become about {after:,}",
        )
    yield from _versions(observed, facts, now)
    if facts["partitions"] >= _SKEWED_PARTITIONS and facts["skew"] > _SKEWED:
        yield _skew(observed, facts)


def _skew(observed: ObservedTable, facts: Mapping[str, Any]) -> Finding:
    advice = "partition it by one more column, or finer: ALTER TABLE … ADD PARTITION FIELD"
    sizes = observed.layout.bytes_by_partition
    largest = max(sizes, key=lambda partition: sizes[partition])
    name = partition_text(observed.metadata, largest) or "without a partition"
    mean = facts["bytes"] // facts["partitions"]
    return Finding(
        "skew",
        f"its largest partition, {name}, is {facts['skew']:,.0f} times the mean",
        5,
        # How Neve's own tables are partitioned, their writers decide.
        None if observed.kind.is_own else advice,
        f"a query of it reads {size_text(sizes[largest])}, one of the mean {size_text(mean)}",
    )


def _versions(observed: ObservedTable, facts: Mapping[str, Any], now: float) -> Iterator[Finding]:
    """Yield what many versions cost; which of them would go is looked at only then."""
    snapshots, size = facts["snapshots"], facts["metadata_bytes"]
    if snapshots <= _MANY_SNAPSHOTS and size <= _LARGE_METADATA:
        return
    after, share = _after_expiry(observed, now)
    action: str | None = maintain(observed)
    if observed.is_served:
        action = None
    elif after == snapshots:
        action = f"a shorter retention: upkeep.tables: {{{observed.name}: {{retain: …}}}}"
    elif not observed.retention.expire:
        action = allow(observed, "expire")
    if snapshots > _MANY_SNAPSHOTS:
        yield Finding(
            "snapshots",
            f"{snapshots:,} snapshots: each commit writes the list of all",
            points(15, log2(snapshots / _MANY_SNAPSHOTS) / 4),
            action,
            f"{snapshots:,} snapshots become about {after:,}",
        )
    if size > _LARGE_METADATA:
        yield Finding(
            "metadata",
            f"its metadata file has {size_text(size)}",
            points(10, log2(size / _LARGE_METADATA) / 4),
            action,
            f"{size_text(size)} become about {size_text(round(size * share))}",
        )


def _after_expiry(observed: ObservedTable, now: float) -> tuple[int, float]:
    """Return how many snapshots an expiry leaves, and which share of the metadata.

    What merges and the index of a mirror need besides is not read for it.
    """
    from neve.upkeep.retention import plan_retention

    policy = replace(observed.retention, expire=True)
    plan = plan_retention(observed.name, observed.metadata, policy, now)
    document, expired = observed.metadata.document, {each.snapshot_id for each in plan.expire}
    removed = [
        entry
        for part in ("snapshots", "snapshot-log")
        for entry in document.get(part) or ()
        if entry["snapshot-id"] in expired
    ]
    share = 1 - len(json.dumps(removed)) / len(json.dumps(document))
    return len(observed.metadata.snapshots) - len(expired), share


def wanted_manifests(observed: ObservedTable) -> int:
    """Return from how many manifests on they are rewritten."""
    by_size = 4 * (observed.manifest_bytes // (8 * MIB) + 1)
    return max(observed.policy.max_manifests, by_size)
