"""What works at the source stays there; what moves says which version it is."""

from neve.index.current_root import ROOT_PROPERTY
from neve.index.root import index_location
from neve.move.extension import without_snapshots
from neve.move.leave_behind import leave_behind
from neve.move.record import MOVED, read_record
from tests.support.table_documents import TableHistory


def make_source():
    source = TableHistory("s3://lake/shop/orders")
    source.append()
    source.append()
    return source


def test_a_table_without_neves_marks_moves_as_it_is():
    source = make_source()
    source.append(branch="audit")
    source.stage(parent_id=101)  # as `write.wap` does: no ref names it
    before = source.metadata()
    version = leave_behind(before, "shop.orders")
    moved = dict(version.metadata.document)
    record = read_record(version.metadata)
    moved["properties"] = {key: moved["properties"][key] for key in before.properties}
    assert moved == before.document
    assert version.lines == ()
    assert record.refs == {"main": 102, "audit": 103}


def test_refs_of_neve_stay_and_the_snapshots_that_only_they_reach():
    source = make_source()
    source.point("neve-staged-b1", source.stage(parent_id=102), "tag")
    source.point("neve-held-b2", source.stage(parent_id=source.stage(parent_id=101)))
    source.point("neve-merge-x", source.stage(parent_id=102))
    source.point("neve_follow_hours", 101, "tag")
    source.document["properties"] |= {
        "neve.mark.stream": "7",
        "neve.rejected.b0": "5",
        "neve.follow.hours": "{}",
        "neve.merge.keys": '["id"]',
    }
    version = leave_behind(source.metadata(), "shop.orders")
    moved = version.metadata
    assert moved.refs == {"main": 102}
    # A follower's position was current once, and stays in the table's history.
    assert moved.snapshots.keys() == {101, 102}
    assert moved.properties.keys() == {"owner", "neve.merge.keys", MOVED}
    # The staged batch may be published as it is, and follow in the next move.
    assert moved.document["last-sequence-number"] == 2
    text = "\n".join(version.lines)
    assert "staged or held batches stay behind (2)" in text
    assert "neve staged list shop.orders" in text
    assert "neve-merge-x" in text
    assert "followers hours" in text
    assert "consumption marks stay behind (2)" in text


def test_the_index_stays_and_other_statistics_move():
    source = make_source()
    uuid = source.document["table-uuid"]
    files = [f"{index_location(source.location, uuid)}/root-1.puffin", "s3://lake/stats.puffin"]
    source.document["statistics"] = [
        {"snapshot-id": 101 + number, "statistics-path": path, "file-size-in-bytes": 5}
        for number, path in enumerate(files)
    ]
    source.document["properties"][ROOT_PROPERTY] = "{}"
    # Of an expired snapshot: the file may be deleted, and nothing reads it.
    expired = {**source.document["statistics"][1], "snapshot-id": 9, "statistics-path": "s3://x/y"}
    source.document["statistics"].append(expired)
    version = leave_behind(source.metadata(), "shop.orders")
    (statistics,) = version.metadata.document["statistics"]
    assert statistics["statistics-path"] == "s3://lake/stats.puffin"
    assert ROOT_PROPERTY not in version.metadata.properties
    assert "neve index build" in version.lines[0]


def test_a_history_log_is_cut_where_a_snapshot_is_left_out():
    """With a gap, another snapshot would seem current at that time."""
    source = make_source()
    source.append()
    moved = without_snapshots(source.metadata(), {102})
    assert moved.snapshots.keys() == {101, 103}
    assert [each["snapshot-id"] for each in moved.document["snapshot-log"]] == [103]


def test_equal_versions_have_equal_records_and_later_ones_have_not():
    source = make_source()
    before = source.metadata()
    records = [read_record(leave_behind(each, "t").metadata) for each in (before, before)]
    later = read_record(leave_behind(source.metadata(), "t").metadata)
    assert records[0] == records[1] != later
    assert source.location not in records[0].encode()
