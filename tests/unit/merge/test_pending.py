"""What of a changelog waits for its mirror, and what of it one commit takes."""

from __future__ import annotations

import io
import itertools
import uuid

import fastavro
import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from neve.errors import CatalogError
from neve.lake.java_tables import Task
from neve.merge.checkpoint import Checkpoint
from neve.merge.pending import (
    Pending,
    consumed_slices,
    file_slices,
    pending,
    unproven,
    whole_snapshots,
)
from tests.support.snapshots import (
    append,
    append_nothing,
    metadata_of,
    overwrite,
    replace,
    unnamed,
)

UUID = str(uuid.uuid4())


def waiting(metadata, checkpoint):
    return pending("ns.changes", "ns.rows", metadata, checkpoint)


def changelog(*snapshots, **options):
    return metadata_of(*snapshots, table_uuid=UUID, **options)


def ids(found):
    return [one.snapshot_id for one in found.snapshots]


def test_what_comes_after_the_checkpoint_waits():
    table = changelog(append(1), append(2), replace(3), append(4))
    assert ids(waiting(table, Checkpoint(UUID, 1))) == [2, 3, 4]
    assert waiting(table, Checkpoint(UUID, 4)).is_empty
    found = waiting(table, Checkpoint(UUID, 2))
    assert found.lag_snapshots == 2
    assert found.lag_seconds > 0
    assert found.note is None


def test_a_first_merge_takes_the_whole_table():
    found = waiting(changelog(overwrite(1), append(2)), Checkpoint(UUID))
    assert found.whole.snapshot_id == 2
    assert (found.lag_snapshots, found.note) == (1, None)
    assert waiting(changelog(), Checkpoint(UUID)).is_empty


def test_without_a_checkpoint_everything_is_merged_again_and_it_says_so():
    found = waiting(changelog(append(1), append(2)), None)
    assert (found.whole.snapshot_id, found.checkpoint) == (2, Checkpoint(UUID))
    assert "cannot be proven" in found.note


@pytest.mark.parametrize("checkpoint", [Checkpoint(UUID, 1), Checkpoint(UUID, 1, 2, files=1)])
def test_a_checkpoint_that_is_expired_means_everything_and_it_says_so(checkpoint):
    table = changelog(append(1), append(2), append(3), expired=[1, 2])
    found = waiting(table, checkpoint)
    assert (found.whole.snapshot_id, found.checkpoint) == (3, Checkpoint(UUID))
    assert "is expired" in found.note


def test_a_checkpoint_that_a_tag_keeps_beyond_what_is_expired_is_no_rollback():
    table = changelog(append(1), append(2), append(3), expired=[2])
    tag = SnapshotRef(snapshot_id=1, snapshot_ref_type=SnapshotRefType.TAG)
    tagged = table.model_copy(update={"refs": {**table.refs, "kept": tag}})
    assert waiting(tagged, Checkpoint(UUID, 1)).whole.snapshot_id == 3


def test_a_first_load_goes_on_where_it_stood_unless_its_snapshot_is_expired():
    begun = Checkpoint(UUID, None, 1, files=2, offset=3, whole=True)
    snapshots = append(1), append(2)
    assert waiting(changelog(*snapshots), begun).whole.snapshot_id == 1
    found = waiting(changelog(*snapshots, expired=[1]), begun)
    assert (found.whole.snapshot_id, found.checkpoint) == (2, Checkpoint(UUID))
    assert "snapshot 1 of ns.changes is expired" in found.note


@pytest.mark.parametrize(
    ("table", "checkpoint", "told"),
    [
        (
            changelog(append(1), overwrite(2), append(3)),
            Checkpoint(UUID, 1),
            "2 is of the operation overwrite",
        ),
        (changelog(append(1), unnamed(2)), Checkpoint(UUID, 1), "2 does not name its operation"),
        (changelog(append(1), append(2), main=1), Checkpoint(UUID, 2), "rolled back"),
        # Replaced by nothing: an empty table is no proof that nothing has changed.
        (changelog(), Checkpoint(UUID, 2), "rolled back"),
        # The same where something was expired: a rollback is none of it.
        (
            changelog(*(append(number) for number in range(1, 5)), main=3, expired=[1, 2]),
            Checkpoint(UUID, 4),
            "rolled back behind snapshot 4",
        ),
        (changelog(append(1), append(2), main=1), Checkpoint(UUID, 1, 2, 1), "rolled back"),
        (changelog(append(1)), Checkpoint(str(uuid.uuid4()), 1), "is another table"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(table, checkpoint, told):
    with pytest.raises(CatalogError, match=told) as caught:
        waiting(table, checkpoint)
    assert "ns.changes" in caught.value.message
    assert "neve merge ns.rows --rebuild" in caught.value.hint
    assert not caught.value.retryable


def test_an_overwrite_that_is_merged_already_is_past():
    assert ids(waiting(changelog(overwrite(1), append(2)), Checkpoint(UUID, 1))) == [2]


def test_a_rebuild_needs_every_event_since_the_beginning():
    assert unproven("ns.changes", changelog(append(1), replace(2), append(3)), lists(1)) is None
    for table, why in (
        (changelog(), "it has no snapshot"),
        (changelog(append(1), append(2), expired=[1]), "snapshots before 2 are expired"),
        (cut(append(1), append(2)), "snapshots before 2 are expired"),
        (changelog(append(1), overwrite(2), append(3)), "snapshot 2 is of the operation"),
        (changelog(append(1), unnamed(2)), "snapshot 2 does not name its operation"),
    ):
        assert f"ns.changes holds all its events: {why}" in (
            unproven("ns.changes", table, lists(2)) or ""
        )
    replaced = changelog(append(1), append(2))
    first, second = replaced.snapshots
    second = second.model_copy(update={"parent_snapshot_id": None, "summary": first.summary})
    replaced = replaced.model_copy(update={"snapshots": [first, second]})
    assert "or were replaced" in (unproven("ns.changes", replaced, lists(2)) or "")


def test_the_manifest_list_of_the_oldest_snapshot_says_whether_it_had_a_parent():
    """Metadata cannot tell a table of format version 1 that was emptied, upgraded and filled."""
    table = changelog(append(1))
    whole = unproven("ns.changes", table, lists(1, parent="null"))
    emptied = unproven("ns.changes", table, lists(1, parent="7"))
    assert (whole, "snapshots before 1 are expired" in (emptied or "")) == (None, True)


def lists(snapshot_id, parent=None):
    """Return a reader of manifest lists that have a header of this kind; without, of none."""

    def read(_):
        header = {"snapshot-id": str(snapshot_id), "parent-snapshot-id": parent}
        stream = io.BytesIO()
        schema = {"type": "record", "name": "r", "fields": []}
        fastavro.writer(stream, schema, [], metadata=header if parent else {})
        return stream.getvalue()

    return read


def cut(*snapshots):
    """As PyIceberg's expiry leaves a table: the oldest snapshot has lost its parent."""
    table = changelog(*snapshots)
    oldest = table.snapshots[1].model_copy(update={"parent_snapshot_id": None})
    return table.model_copy(update={"snapshots": [oldest, *table.snapshots[2:]]})


def test_a_checkpoint_that_pyiceberg_expired_is_no_rollback():
    found = waiting(cut(append(1), append(2), append(3)), Checkpoint(UUID, 1))
    assert found.whole.snapshot_id == 3
    assert "is expired" in found.note


def batch_of(snapshots, size, checkpoint=None):
    return whole_snapshots(Pending(checkpoint or Checkpoint(UUID, 1), tuple(snapshots)), size)


def test_snapshots_share_a_commit_as_far_as_they_fit():
    batch = batch_of([append(2, 4), replace(3), append(4, 6), append(5, 1)], 10)
    assert (batch.after_id, batch.until_id, batch.reaches) == (1, 4, Checkpoint(UUID, 4))
    # A compaction adds no rows to the changelog, though it writes all of them.
    assert batch_of([replace(2)], 1).until_id == 2
    assert batch_of([append_nothing(2)], 1).until_id == 2


def test_a_snapshot_that_is_too_large_unknown_or_begun_is_cut():
    assert batch_of([append(2, 11)], 10) is None
    assert batch_of([append(2, None)], 10) is None
    assert batch_of([append(2, 5)], 10, Checkpoint(UUID, 1, 2, offset=3)) is None
    assert batch_of([append(2, 5), append(3, None)], 10).until_id == 2


TASKS = [
    Task("b", 3, 1, None),
    Task("a", 5, 2, None),
    Task("a0", 0, 1, None),
    Task("z", 4, 1, None),
]
ORDER = ["a0", "b", "z", "a"]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("size", range(1, 14))
def test_slices_cover_every_row_once_whatever_their_size(size, whole):
    checkpoint, taken, batches = Checkpoint(UUID, 1), [], 0
    while checkpoint.snapshot_id != 9:
        # Planning promises no order.
        tasks = TASKS[batches % 4 :] + TASKS[: batches % 4]
        merged = consumed_slices(checkpoint, tasks) if checkpoint.scanning else ()
        assert rows_of(merged) == taken
        batch = file_slices(checkpoint, 9, tasks, size, whole=whole)
        rows = rows_of(batch.slices)
        assert len(rows) <= size
        taken += rows
        checkpoint, batches = batch.reaches, batches + 1
    assert taken == [
        (task.path, n) for task in sorted(TASKS, key=_order) for n in range(task.records)
    ]
    assert batches <= -(-12 // size) + 1


def _order(task):
    return ORDER.index(task.path)


def rows_of(slices):
    rows = ([(one.task.path, n) for n in range(one.start, one.end)] for one in slices)
    return list(itertools.chain(*rows))


def test_a_cut_knows_what_it_belongs_to():
    batch = file_slices(Checkpoint(UUID, 1), 9, TASKS, 4, whole=False)
    assert batch.reaches == Checkpoint(UUID, 1, 9, files=2, offset=1)
    # Begun on another snapshot, or as another kind of scan: from the start.
    for other in (Checkpoint(UUID, 1, 8, 2, 1), Checkpoint(UUID, 1, 9, 2, 1, whole=True)):
        assert rows_of(file_slices(other, 9, TASKS, 1, whole=False).slices) == [("b", 0)]


def test_a_snapshot_without_files_is_done_at_once():
    assert file_slices(Checkpoint(UUID), 9, [], 4, whole=True).reaches == Checkpoint(UUID, 9)
