"""Tables go from one embedded lake to another: no JVM, no servers."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import neve
from neve.errors import (
    ConflictError,
    CorruptionError,
    NeveError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from neve.failpoints import POINTS
from neve.lake.metadata_json import MetadataJson
from neve.lake.metadata_reader import EmbeddedReader
from neve.lake.table_ref import TableRef
from neve.move import inventory
from neve.move.files import Tally
from neve.move.journal import Journal, journal_path, read_journal
from neve.move.mover import Mover
from neve.move.progress import Progress
from neve.move.spec import MoveSpec
from tests.support.lakes import sqlite_settings
from tests.support.moved_tables import (
    destroy,
    make_by_pyiceberg,
    read_by_pyiceberg,
    refs_of,
    rows_of,
    with_catalogs,
)
from tests.support.power_cut import power_cut

SOURCE, TARGET = TableRef("lake", ("shop", "orders")), TableRef("archive", ("shop", "orders"))
KILLED_AT = [name for name in POINTS if name.startswith("move.")]


@pytest.fixture
def lake(tmp_path):
    further = sqlite_settings(tmp_path / "archive")
    settings = with_catalogs(sqlite_settings(tmp_path), tmp_path / "journals", archive=further)
    with neve.open(settings) as lake:
        make_by_pyiceberg(lake, SOURCE)
        yield lake


def content(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def target_exists(lake) -> bool:
    return lake.catalog("archive").table_exists(TARGET.identifier)


def test_a_table_arrives_with_its_history_and_the_source_is_not_written_to(lake, tmp_path):
    before = content(tmp_path / "warehouse"), (tmp_path / "catalog.db").read_bytes()
    (plan,) = lake.plan_move("shop.orders", to="archive")
    assert (plan.snapshots, plan.refs, plan.blocked_by) == (4, ("audit", "main", "v1"), ())
    assert plan.copy_files == plan.files["data"]
    assert not (tmp_path / "archive/warehouse").exists()
    (report,) = lake.move("shop.orders", to="archive")
    assert (report.outcome, report.files_copied) == ("registered", plan.copy_files)
    assert report.rewrite_count == plan.rewrite_count
    assert read_by_pyiceberg(lake, TARGET) == read_by_pyiceberg(lake, SOURCE)
    assert refs_of(lake, TARGET) == refs_of(lake, SOURCE)
    assert (content(tmp_path / "warehouse"), (tmp_path / "catalog.db").read_bytes()) == before
    for file in content(tmp_path / "archive" / "warehouse").values():
        assert str(tmp_path / "warehouse").encode() not in file
    (again,) = lake.move("shop.orders", to="archive")
    assert (again.outcome, again.files_copied, again.rewrite_count) == ("already there", 0, 0)
    (check,) = lake.verify_move("shop.orders", to="archive")
    assert (check.outcome, check.problems) == ("whole", ())
    assert report.rows == again.rows == check.rows > 0


def test_a_copy_of_other_numbers_than_the_plan_is_not_registered(lake, monkeypatch):
    monkeypatch.setattr(inventory, "tally_of", lambda _records: Tally(rows=1))
    with pytest.raises(CorruptionError, match=r"the plan has 5 rows in 0 .* the copy 8 rows in 4"):
        lake.move("shop.orders", to="archive")
    assert not target_exists(lake)


@pytest.mark.parametrize("point", KILLED_AT)
def test_killed_and_run_again(lake, point):
    with power_cut(point):
        lake.move("shop.orders", to="archive")
    assert target_exists(lake) == (point == "move.registered")
    (report,) = lake.move("shop.orders", to="archive")
    assert report.error is None
    if point in ("move.copied", "move.rewritten", "move.verified"):
        assert report.files_copied == 0
    assert read_by_pyiceberg(lake, TARGET) == read_by_pyiceberg(lake, SOURCE)


def test_what_is_not_proven_is_not_registered(lake, tmp_path):
    """Promise 8: a byte of the copy is wrong, and nobody gets to see the table."""
    with power_cut("move.rewritten"):
        lake.move("shop.orders", to="archive")
    data = next((tmp_path / "archive" / "warehouse").rglob("*.parquet"))
    damaged = bytearray(data.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    data.write_bytes(damaged)
    with pytest.raises(CorruptionError, match=f"{data.name}.*nothing was registered"):
        lake.move("shop.orders", to="archive")
    assert not target_exists(lake)
    # The journal said that it was copied. It is not believed again.
    with pytest.raises(ConflictError, match=f"{data.name}.*remove what an earlier move left"):
        lake.move("shop.orders", to="archive")
    data.unlink()
    lake.move("shop.orders", to="archive")
    assert read_by_pyiceberg(lake, TARGET) == read_by_pyiceberg(lake, SOURCE)


@pytest.mark.parametrize("kind", ["*.avro", "*.parquet"])
def test_a_source_that_is_expired_before_it_is_verified_proves_nothing(lake, tmp_path, kind):
    """It is not the copy that is damaged, so that what was copied is still trusted."""
    with power_cut("move.rewritten"):
        lake.move("shop.orders", to="archive")
    state = read_journal(journal_path(tmp_path / "journals", "archive", "shop.orders"))
    mover = Mover(lake, MoveSpec("archive"), Progress(lambda _: None))
    plan = mover.plan(SOURCE)
    written = Path(state.facts["metadata"].removeprefix("file://"))
    moved = MetadataJson(state.facts["metadata"], json.loads(written.read_text()))
    for path in (tmp_path / "warehouse").rglob(kind):
        path.unlink()
    with pytest.raises(NotFoundError, match=r"was deleted before .* run the command again"):
        mover._verify(plan, moved)
    mover.close()


def test_a_source_that_was_written_to_meanwhile_moves_in_its_newest_version(lake):
    with power_cut("move.copied"):
        lake.move("shop.orders", to="archive")
    lake.load(SOURCE).append(rows_of(7))
    (report,) = lake.move("shop.orders", to="archive")
    assert report.files_copied == 1
    assert 0 < report.bytes_copied < 2000
    assert read_by_pyiceberg(lake, TARGET) == read_by_pyiceberg(lake, SOURCE)


def test_an_existing_target_is_refused_extended_or_replaced(lake, tmp_path):
    lake.move("shop.orders", to="archive")
    lake.load(SOURCE).append(rows_of(7))
    with pytest.raises(UnsupportedError, match="exists already"):
        lake.move("shop.orders", to="archive")
    # One that the target has lost is copied again, too.
    next((tmp_path / "archive" / "warehouse").rglob("*.parquet")).unlink()
    (report,) = lake.move("shop.orders", to="archive", existing="extend")
    assert (report.outcome, report.files_copied) == ("extended", 2)
    assert read_by_pyiceberg(lake, TARGET) == read_by_pyiceberg(lake, SOURCE)
    lake.load(TARGET).append(rows_of(8))
    lake.load(SOURCE).append(rows_of(9))
    with pytest.raises(NeveError, match="was written there"):
        lake.move("shop.orders", to="archive", existing="extend")
    (report,) = lake.move("shop.orders", to="archive", existing="replace")
    assert report.outcome == "replaced"
    assert read_by_pyiceberg(lake, TARGET) == read_by_pyiceberg(lake, SOURCE)


def test_one_failure_leaves_the_other_tables_alone(lake):
    """`…/orders` is a prefix of `…/orders_2`; a third table has lost a file."""
    make_by_pyiceberg(lake, TableRef("lake", ("shop", "orders_2")))
    make_by_pyiceberg(lake, TableRef("lake", ("shop", "torn")))
    lost = lake.load(TableRef("lake", ("shop", "torn"))).scan().plan_files()
    Path(next(iter(lost)).file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(NeveError, match="was deleted while the table was moved"):
        lake.move("shop", to="archive")
    moved = sorted(name[-1] for name in lake.catalog("archive").list_tables("shop"))
    assert moved == ["orders", "orders_2"]


def test_somebody_elses_files_are_left_alone(lake, tmp_path):
    other = tmp_path / "archive" / "warehouse" / "shop" / "orders" / "data" / "theirs.parquet"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"theirs")
    (plan,) = lake.plan_move("shop.orders", to="archive")
    assert "other files lie at" in plan.notes[0]
    (report,) = lake.move("shop.orders", to="archive")
    assert report.location == plan.location != str(other.parent.parent)
    assert other.read_bytes() == b"theirs"
    assert read_by_pyiceberg(lake, TARGET) == read_by_pyiceberg(lake, SOURCE)


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_table_that_was_renamed_at_the_target_keeps_its_files_to_itself(
    lake, tmp_path, has_journal
):
    """They lie where the table would go, look like an earlier move's, and belong to a table."""
    locations = set()
    for name in ("first", "second", "third"):
        (report,) = lake.move("shop.orders", to="archive")
        locations.add(report.location)
        lake.catalog("archive").rename_table(TARGET.identifier, ("shop", name))
        if not has_journal:
            shutil.rmtree(tmp_path / "journals")
    assert len(locations) == 3


def test_a_table_that_cannot_be_read_now_keeps_its_files_to_itself_too(lake, tmp_path, monkeypatch):
    (first,) = lake.move("shop.orders", to="archive")
    lake.catalog("archive").rename_table(TARGET.identifier, ("shop", "first"))
    shutil.rmtree(tmp_path / "journals")

    def read_all(_, names):
        return dict.fromkeys(names, StorageError("503", retryable=True))

    monkeypatch.setattr(EmbeddedReader, "read_all", read_all)
    (second,) = lake.move("shop.orders", to="archive")
    assert second.location != first.location


def test_skip_rewrite_registers_the_same_files(lake):
    (report,) = lake.move("shop.orders", to="archive", rewrite=False)
    assert report.metadata_location == lake.load(SOURCE).metadata_location
    assert read_by_pyiceberg(lake, TARGET) == read_by_pyiceberg(lake, SOURCE)


def test_a_newer_format_version_is_refused_before_anything_is_written(lake, tmp_path):
    table = lake.load(SOURCE)
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 4}))
    (plan,) = lake.plan_move("shop.orders", to="archive")
    assert "format version 4" in plan.blocked_by[0]
    with pytest.raises(UnsupportedError, match="format version 4"):
        lake.move("shop.orders", to="archive")
    assert not (tmp_path / "journals").exists()


def test_a_second_move_of_the_same_table_is_refused(lake, tmp_path):
    path = journal_path(tmp_path / "journals", "archive", "shop.orders")
    with Journal(path), pytest.raises(NeveError, match="another process is moving this table"):
        lake.move("shop.orders", to="archive")
    assert not target_exists(lake)


def test_without_its_journal_a_move_goes_on_all_the_same(lake, tmp_path):
    with power_cut("move.verified"):
        lake.move("shop.orders", to="archive")
    shutil.rmtree(tmp_path / "journals")
    # What is written at this moment, by another move of the table.
    data = tmp_path / "archive" / "warehouse" / "shop" / "orders" / "data"
    (data / "copying-0123456789abcdef").write_bytes(b"half")
    before = content(tmp_path / "archive" / "warehouse")
    (report,) = lake.move("shop.orders", to="archive")
    assert report.files_copied == 0
    assert content(tmp_path / "archive" / "warehouse") == before


def test_files_from_anywhere_arrive_below_one_location(lake, tmp_path):
    """Added from outside, written to another place, and shared by two tables."""
    outside = tmp_path / "out side" / "same.parquet"
    further = tmp_path / "further" / "same.parquet"
    for path, number in ((outside, 50), (further, 60)):
        path.parent.mkdir()
        pq.write_table(rows_of(number), path)
    ref = TableRef("lake", ("shop", "spread"))
    elsewhere = {"write.data.path": str(tmp_path / "elsewhere")}
    make_by_pyiceberg(lake, ref, **elsewhere)
    for table in (ref, SOURCE):
        lake.load(table).add_files([str(outside), further.as_uri()])
    reports = lake.move("shop", to="archive")
    assert any("write.data.path is left out" in line for line in reports[1].left_behind)
    for report, name in zip(reports, ("orders", "spread"), strict=True):
        target = TableRef("archive", ("shop", name))
        source = TableRef("lake", ("shop", name))
        assert read_by_pyiceberg(lake, target) == read_by_pyiceberg(lake, source)
        paths = [task.file.file_path for task in lake.load(target).scan().plan_files()]
        assert all(path.startswith(f"{report.location}/") for path in paths)


def test_ctrl_c_registers_nothing(lake):
    """The threads of a move are stopped, not only left behind."""
    lake.move("shop.orders", to="archive")
    make_by_pyiceberg(lake, TableRef("lake", ("shop", "second")))
    mover = Mover(lake, MoveSpec("archive"), Progress(lambda _: None))
    mover.stop()
    with pytest.raises(NeveError, match="the move was stopped"):
        mover.move(TableRef("lake", ("shop", "second")))
    mover.close()
    assert not lake.catalog("archive").table_exists(("shop", "second"))


def test_home_again_to_the_configured_catalog(lake):
    before = read_by_pyiceberg(lake, SOURCE)
    lake.move("shop.orders", to="archive")
    with pytest.raises(UnsupportedError, match="exists already"):
        lake.move("archive.shop.orders", to="lake")
    destroy(lake, [SOURCE])
    (report,) = lake.move("archive.shop.orders", to="lake")
    assert (report.target, report.outcome) == ("shop.orders", "registered")
    destroy(lake, [TARGET])
    assert read_by_pyiceberg(lake, SOURCE) == before
    lake.load(SOURCE).append(rows_of(7))
