"""`neve staged publish`: a held batch comes in exactly once, whatever fails meanwhile."""

from functools import partial

import pytest

import neve
from neve.buffer.buffer import open_buffer, open_reader, open_store
from neve.buffer.spec import buffer_spec
from neve.buffer.stream_states import put_drop_note
from neve.errors import NotFoundError, UsageError
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX, Outcome
from neve.publish.ranges import BATCH_ID, Range
from neve.publish.staged_batches import discard, release
from neve.publish.staged_list import list_staged
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut
from tests.support.publishing import STREAM, KnownStreams, Lab, Lossy
from tests.support.requests import buffered

TABLE = "otel.logs"


@pytest.fixture
def lab(tmp_path):
    """A table whose batch `bad`, with the row 666, is held; `main` has moved since."""
    settings = sqlite_settings(tmp_path)
    buffer = settings.buffer.model_copy(update={"location": str(tmp_path / "buffer")})
    with neve.open(settings.model_copy(update={"buffer": buffer})) as lake:
        lab = Lab(lake)
        publisher = lab.publisher()
        publisher.hold(publisher.stage("bad", lab.files(666), {STREAM: Range(1, 1)}))
        lab.append_by_another(1)
        yield lab


@pytest.mark.parametrize("fault", ["overtaken", "lost before", "lost after", "cut after"])
def test_a_swap_that_goes_wrong_leaves_one_copy_and_no_ref(lab, fault):
    publisher = lab.publisher()
    plan = [partial(lab.append_by_another, 2) if fault == "overtaken" else fault]
    lossy = Lossy(publisher.table, plan, swaps_only=True)
    (held,) = publisher.table.staged(HELD_PREFIX)
    assert publisher.release(held) is Outcome.PUBLISHED
    assert lossy.plan == []
    # Whatever is still listed can be published: that is how rows were stored twice.
    for batch in list_staged(lab.lake, TABLE):
        release(lab.lake, TABLE, batch.ref)
    assert lab.rows() == ([1, 2, 666] if fault == "overtaken" else [1, 666])
    assert lab.refs() == ["main"]
    assert publisher.marks() == {STREAM: 1}


@pytest.mark.parametrize("point", ["publish.release_ready", "publish.released"])
def test_cut_and_done_again(lab, point):
    with power_cut(point):
        release(lab.lake, TABLE, "bad")
    if point == "publish.released":
        with pytest.raises(NotFoundError, match="holds no batch bad"):
            release(lab.lake, TABLE, "bad")
    else:
        assert release(lab.lake, TABLE, "bad") is Outcome.PUBLISHED
    assert lab.rows() == [1, 666]
    assert lab.refs() == ["main"]


def leave_ref_of_earlier_version(lab, ref):
    """Stage the batch once more, as earlier versions did before each swap."""
    table = lab.publisher().table
    held = table.staged(HELD_PREFIX)[0]
    return table.stage(table.added_files(held.snapshot_id), {BATCH_ID: "bad"}, ref)


def test_refs_that_an_earlier_version_left_go_with_the_batch(lab):
    leave_ref_of_earlier_version(lab, f"{HELD_PREFIX}bad@1")
    leave_ref_of_earlier_version(lab, f"{STAGED_PREFIX}bad@2")
    assert release(lab.lake, TABLE, "bad") is Outcome.PUBLISHED
    assert lab.rows() == [1, 666]
    assert lab.refs() == ["main"]


def test_a_batch_whose_rows_are_on_main_is_refused_and_can_be_discarded(lab):
    publisher = lab.publisher()
    (held,) = publisher.table.staged(HELD_PREFIX)
    publisher.release(held)
    table = lab.publisher().table
    table.stage(lab.files(666), {BATCH_ID: "bad"}, f"{HELD_PREFIX}bad@1")
    with pytest.raises(UsageError, match="bad was published or discarded already"):
        release(lab.lake, TABLE, "bad")
    discard(lab.lake, TABLE, "bad")
    assert lab.rows() == [1, 666]
    assert lab.refs() == ["main"]


def test_of_two_people_who_publish_it_at_once_one_does(lab):
    first, second = lab.publisher(), lab.publisher()
    (held,) = first.table.staged(HELD_PREFIX)
    assert first.release(held) is Outcome.PUBLISHED
    assert second.release(held) is Outcome.SUPERSEDED
    assert lab.rows() == [1, 666]


def test_a_batch_that_somebody_cherry_picked_is_refused(lab):
    publisher = lab.publisher()
    (held,) = publisher.table.staged(HELD_PREFIX)
    # As Iceberg's procedure does, where main is not the parent any more.
    picked = {"source-snapshot-id": str(held.snapshot_id)}
    publisher.table.append(publisher.table.added_files(held.snapshot_id), picked)
    with pytest.raises(UsageError, match="published or discarded already"):
        release(lab.lake, TABLE, "bad")
    assert lab.rows() == [1, 666]
    discard(lab.lake, TABLE, "bad")
    assert lab.refs() == ["main"]


def test_discarding_drops_all_refs_of_the_batch(lab):
    leave_ref_of_earlier_version(lab, f"{HELD_PREFIX}bad@1")
    discard(lab.lake, TABLE, "bad")
    assert lab.refs() == ["main"]
    assert lab.rows() == [1]


LOST = "logs/00000000deadbeef-20260101T000000Z-1"


def stage_for_lost_buffer(lab, batch_id, row, first):
    publisher = lab.publisher()
    publisher.streams = KnownStreams(LOST)
    publisher.stage(batch_id, lab.files(row), {LOST: Range(first, first)})


def test_a_staged_batch_of_a_lost_buffer_is_published_with_its_marks(lab):
    stage_for_lost_buffer(lab, "lost", 7, first=1)
    assert release(lab.lake, TABLE, "lost") is Outcome.PUBLISHED
    assert lab.rows() == [1, 7]
    assert lab.publisher().marks() == {STREAM: 1, LOST: 1}
    assert lab.refs() == ["main", f"{HELD_PREFIX}bad"]


def test_a_staged_batch_of_a_stream_that_was_dropped_here_is_refused(lab):
    stage_for_lost_buffer(lab, "lost", 7, first=1)
    store = open_store(buffer_spec(lab.lake.settings))
    put_drop_note(store, LOST, retired_through=1)
    with pytest.raises(UsageError, match="published or discarded already"):
        release(lab.lake, TABLE, "lost")
    assert lab.rows() == [1]


def test_a_staged_batch_of_a_lost_buffer_waits_for_the_one_before_it(lab):
    stage_for_lost_buffer(lab, "second", 8, first=2)
    with pytest.raises(UsageError, match="comes before this one"):
        release(lab.lake, TABLE, "second")
    stage_for_lost_buffer(lab, "first", 7, first=1)
    release(lab.lake, TABLE, "first")
    release(lab.lake, TABLE, "second")
    assert lab.rows() == [1, 7, 8]


def test_a_staged_batch_of_this_buffer_is_left_to_consolidation(lab):
    with open_buffer(buffer_spec(lab.lake.settings), ["logs"]) as buffer:
        buffer.append("logs", buffered(b"")).durable.result(10)
    (stream,) = open_reader(buffer_spec(lab.lake.settings)).streams()
    publisher = lab.publisher()
    publisher.streams = KnownStreams(stream.stream)
    publisher.stage("ours", lab.files(7), {stream.stream: Range(1, 1)})
    with pytest.raises(UsageError, match="are in this buffer"):
        release(lab.lake, TABLE, "ours")
    assert lab.rows() == [1]
