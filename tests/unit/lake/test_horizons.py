"""What expiry must keep for merges; what walks a long history."""

from __future__ import annotations

import json
import time

import pytest

from neve.lake.ancestry import ancestors, main_ancestors
from neve.lake.horizons import (
    CHECKPOINT,
    MOST_COMMITS_BEHIND,
    NO_SNAPSHOT,
    REJECTED,
    ROOT_PROPERTY,
    TOMBSTONES,
    SnapshotsToKeep,
    snapshots_to_keep,
)
from neve.merge.checkpoint import BATCH_ID, Checkpoint, mirror_state, snapshot_to_restore
from neve.merge.pending import pending
from tests.support.snapshots import append, metadata_of, replace

CHANGELOG = metadata_of(*(append(number) for number in range(1, 8)))
UUID = str(CHANGELOG.table_uuid)


def merged(number, tombstones=NO_SNAPSHOT, rejected=NO_SNAPSHOT, **checkpoint):
    summary = {TOMBSTONES: tombstones, REJECTED: rejected}
    return append(number, **{CHECKPOINT: Checkpoint(UUID, **checkpoint).encode(), **summary})


def rooted(snapshot_id, tombstones=None):
    root = {"path": "p", "snapshot_id": snapshot_id, "tombstones_snapshot_id": tombstones}
    return {"properties": {ROOT_PROPERTY: json.dumps(root)}}


def expired(table, kept):
    """Return a table as expiry leaves it that keeps nothing but this."""
    left = [each for each in table.snapshots if each.snapshot_id in kept]
    return table.model_copy(update={"snapshots": left})


def test_a_mirror_keeps_its_newest_merge_and_all_after_it():
    mirror = metadata_of(merged(1), merged(2, snapshot_id=3), append(3), replace(4))
    kept = snapshots_to_keep(mirror).mirror
    assert kept == {2, 3, 4}
    assert mirror_state(expired(mirror, kept)).checkpoint == Checkpoint(UUID, 3)


def test_a_mirror_keeps_what_its_index_is_of():
    mirror = metadata_of(*(merged(number) for number in range(1, 6)), **rooted(3))
    assert snapshots_to_keep(mirror).mirror == {3, 4, 5}


@pytest.mark.parametrize("root", [{}, rooted(99), {"properties": {ROOT_PROPERTY: "[1]"}}])
def test_an_index_of_no_ancestor_keeps_nothing(root):
    mirror = metadata_of(merged(1), merged(2), **root)
    assert snapshots_to_keep(mirror).mirror == {2}


def test_an_index_that_nobody_uses_any_more_keeps_nothing():
    count = MOST_COMMITS_BEHIND + 2
    mirror = metadata_of(*(merged(number) for number in range(1, count)), **rooted(1))
    assert snapshots_to_keep(mirror).mirror == {count - 1}


def test_side_tables_keep_what_retained_snapshots_of_the_mirror_name():
    mirror = metadata_of(merged(1, "11"), merged(2, "12", "21"), merged(3, "13", "21"))
    tombstones = metadata_of(*(append(number) for number in range(10, 15)))
    rejected = metadata_of(append(20), append(21))
    keep = snapshots_to_keep(mirror, tombstones=tombstones, rejected=rejected)
    assert keep == SnapshotsToKeep(frozenset({3}), frozenset({11, 12, 13, 14}), frozenset({21}))
    # Once the mirror is expired, less is named.
    left = snapshots_to_keep(expired(mirror, keep.mirror), tombstones=tombstones)
    assert left.tombstones == {13, 14}


def test_side_tables_keep_what_lies_between_main_and_what_the_index_knows():
    mirror = metadata_of(merged(1, "11"), merged(2, "14"), **rooted(1, 11))
    tombstones = metadata_of(*(append(number) for number in range(10, 16)))
    keep = snapshots_to_keep(expired(mirror, {1, 2}), tombstones=tombstones)
    assert keep.tombstones == {11, 12, 13, 14, 15}


def test_after_expiry_a_compaction_of_a_side_table_stays():
    mirror = metadata_of(merged(1, "11"))
    tombstones = metadata_of(append(11, **{BATCH_ID: "a"}), replace(12), replace(13))
    kept = snapshots_to_keep(mirror, tombstones=tombstones).tombstones
    assert snapshot_to_restore(expired(tombstones, kept), mirror_state(mirror), 11) == 13


@pytest.mark.parametrize(
    ("checkpoint", "kept"),
    [
        ({"snapshot_id": 5}, {5, 6, 7}),
        ({"snapshot_id": 5, "scanning": 6, "files": 1}, {5, 6, 7}),
        ({"scanning": 3, "offset": 1, "whole": True}, {3, 4, 5, 6, 7}),
    ],
)
def test_a_changelog_keeps_what_is_not_merged(checkpoint, kept):
    mirror = metadata_of(merged(1, **checkpoint))
    keep = snapshots_to_keep(mirror, changelog=CHANGELOG).changelog
    assert keep == kept
    before = pending("c", "m", CHANGELOG, Checkpoint(UUID, **checkpoint))
    after = pending("c", "m", expired(CHANGELOG, keep), Checkpoint(UUID, **checkpoint))
    assert after == before


def test_a_changelog_that_was_rolled_back_keeps_everything():
    changelog = metadata_of(*CHANGELOG.snapshots, main=4)
    mirror = metadata_of(
        append(1, **{CHECKPOINT: Checkpoint(str(changelog.table_uuid), 6).encode()})
    )
    assert snapshots_to_keep(mirror, changelog=changelog).changelog == set(range(1, 8))


def test_a_changelog_that_was_created_again_keeps_its_present_snapshot():
    mirror = metadata_of(append(1, **{CHECKPOINT: Checkpoint("another", 5).encode()}))
    assert snapshots_to_keep(mirror, changelog=CHANGELOG).changelog == {7}


def test_a_history_ends_where_it_is_expired():
    table = metadata_of(*(append(number) for number in range(1, 6)), expired=[2])
    assert [each.snapshot_id for each in main_ancestors(table)] == [5, 4, 3]
    assert [each.snapshot_id for each in ancestors(table, 2)] == []
    assert list(main_ancestors(metadata_of())) == []


def test_a_history_takes_time_in_proportion_to_its_length():
    def processor_seconds(count):
        table = metadata_of(*(append(number) for number in range(1, count)))
        started = time.process_time()
        assert len(list(main_ancestors(table))) == count - 1
        return time.process_time() - started

    # Searching all snapshots for each parent takes 20 s.
    assert processor_seconds(20_000) < 1
