"""How far a mirror has come, as its snapshots tell it."""

from __future__ import annotations

import json

import pytest

from neve.errors import CatalogError
from neve.merge.checkpoint import (
    BARRIER,
    BATCH_ID,
    CHECKPOINT,
    REJECTED,
    TOMBSTONES,
    Checkpoint,
    MirrorState,
    mirror_state,
    side_summary,
    snapshot_to_restore,
)
from tests.support.snapshots import append, metadata_of, replace

UUID = "8f6b9f4e-3c1c-4b7e-9a55-0a6b2f9f6a10"


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint(UUID),
        Checkpoint(UUID, 7),
        Checkpoint(UUID, 7, 8, files=2, offset=5),
        Checkpoint(UUID, None, 8, files=0, offset=5, whole=True),
    ],
)
def test_a_checkpoint_is_read_back_as_it_was_written(checkpoint):
    assert Checkpoint(**json.loads(checkpoint.encode())) == checkpoint


def merged(snapshot_id, checkpoint, **further):
    keys = {"barrier": BARRIER, "tombstones": TOMBSTONES, "rejected": REJECTED}
    summary = {keys[name]: value for name, value in further.items()}
    return append(snapshot_id, **{CHECKPOINT: checkpoint.encode(), **summary})


def test_the_newest_merge_counts_and_others_commits_are_passed_over():
    state = mirror_state(
        metadata_of(
            merged(1, Checkpoint(UUID, 10), tombstones="5"),
            merged(2, Checkpoint(UUID, 11), tombstones="6", rejected="7", barrier='["3", "x"]'),
            append(3),
            replace(4),
        )
    )
    assert state.main_id == 4
    assert state.checkpoint == Checkpoint(UUID, 11)
    assert (state.tombstones_id, state.rejected_id) == (6, 7)
    assert state.barrier == ("3", "x")


def test_a_mirror_rolled_back_has_the_older_checkpoint():
    snapshots = [merged(1, Checkpoint(UUID, 10)), merged(2, Checkpoint(UUID, 11))]
    state = mirror_state(metadata_of(*snapshots, main=1))
    assert (state.main_id, state.checkpoint) == (1, Checkpoint(UUID, 10))


def test_without_the_commit_that_says_so_nothing_is_proven():
    state = mirror_state(metadata_of(merged(1, Checkpoint(UUID, 10)), replace(2), expired=[1]))
    assert (state.main_id, state.checkpoint, state.tombstones_id) == (2, None, None)


def test_a_mirror_without_a_snapshot_is_none_of_ours():
    with pytest.raises(CatalogError, match="no snapshot"):
        mirror_state(metadata_of())


def test_tables_beside_the_mirror_that_have_no_snapshot_are_named_so():
    summary = side_summary(None, 7)
    state = mirror_state(
        metadata_of(append(1, **{CHECKPOINT: Checkpoint(UUID).encode(), **summary}))
    )
    assert (state.tombstones_id, state.rejected_id, state.is_proven) == (None, 7, True)


@pytest.mark.parametrize(
    ("snapshots", "named", "restored"),
    [
        ((), None, None),
        # The mirror names none: all rows are of merges that died.
        ((append(1, **{BATCH_ID: "a"}),), None, None),
        ((append(1, **{BATCH_ID: "a"}),), 1, 1),
        ((append(1, **{BATCH_ID: "a"}), append(2, **{BATCH_ID: "b"})), 1, 1),
        # What others do stays, unless it is on top of what goes.
        ((append(1, **{BATCH_ID: "a"}), replace(2)), 1, 2),
        ((append(1, **{BATCH_ID: "a"}), append(2, **{BATCH_ID: "b"}), replace(3)), 1, 1),
        # Expired: all rows count.
        ((append(2, **{BATCH_ID: "b"}),), 1, 2),
    ],
)
def test_what_merges_wrote_without_the_mirrors_commit_is_undone(snapshots, named, restored):
    side = metadata_of(*snapshots)
    assert snapshot_to_restore(side, MirrorState(1, Checkpoint(UUID)), named) == restored
    if snapshots:
        # Nothing says what the mirror names: everything counts.
        unknown = MirrorState(1, None, is_proven=False)
        assert snapshot_to_restore(side, unknown, None) == snapshots[-1].snapshot_id
