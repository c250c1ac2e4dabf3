"""The journal of a move: what it keeps, what a power cut leaves of it, who may write it."""

from __future__ import annotations

import resource

import pytest

from neve.errors import Code, ConflictError, CorruptionError, StorageError
from neve.lake.file_store import Copied
from neve.move.copy import CopyJob
from neve.move.files import WrittenFile
from neve.move.journal import (
    Journal,
    journal_path,
    list_journals,
    read_journal,
)
from neve.move.move_state import MoveHeader, MoveState, Stage

HEADER = MoveHeader(
    id="m1",
    source_catalog="lake",
    source_table="sales.orders",
    source_metadata="s3://a/orders/metadata/1.metadata.json",
    target_catalog="archive",
    target_table="sales.orders",
    location="s3://b/orders",
    document='{"location": "ü"}'.encode(),
    options={"verification": "full"},
)


@pytest.fixture
def path(tmp_path):
    return journal_path(tmp_path / "moves", "archive", "sales.orders")


def note_copied(journal: Journal, name: str, size: int = 3) -> None:
    journal.copied(CopyJob(f"a/{name}", f"b/{name}", size), Copied(size, f"sum of {name}"))


def fill(path) -> MoveState:
    with Journal(path) as journal:
        journal.begin(HEADER)
        journal.counted({"files": 2, "bytes": 6})
        journal.reached(Stage.PLANNED)
        note_copied(journal, "1")
        note_copied(journal, "2 ü\n")
        journal.reached(Stage.COPIED)
        journal.rewritten("a/m.avro", WrittenFile("b/moved-m.avro", 17))
        journal.failed(Stage.REWRITTEN, "postgresql://me:pass@host is down")
        return journal.state


def test_a_journal_is_read_as_it_was_written(path):
    written = fill(path)
    state = read_journal(path)
    assert state == MoveState(
        header=HEADER,
        began_at=written.began_at,
        changed_at=written.changed_at,
        stage=Stage.COPIED,
        copied={"b/1": "sum of 1", "b/2 ü\n": "sum of 2 ü\n"},
        copied_bytes=6,
        rewritten={"a/m.avro": WrittenFile("b/moved-m.avro", 17)},
        counts={"files": 2, "bytes": 6},
        error="postgresql://me:********@host is down",
        error_stage=Stage.REWRITTEN,
    )
    assert (state.rewrite_count, state.rewrite_error) == (1, state.error)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list_journals(path.parents[1]) == [path]
    with Journal(path) as journal:
        journal.resume()
        assert (journal.state.error, journal.state.stage) == (None, Stage.COPIED)
        journal.reached(Stage.REGISTERED, metadata="b/1.metadata.json")
    assert read_journal(path).is_finished
    assert read_journal(path).facts == {"metadata": "b/1.metadata.json"}


def test_a_new_move_to_the_same_place_knows_what_was_copied(path):
    fill(path)
    with Journal(path) as journal:
        journal.begin(HEADER)
        assert (journal.state.stage, journal.state.error, len(journal.state.copied)) == (
            None,
            None,
            2,
        )
    with Journal(path) as journal:
        journal.begin(MoveHeader(**{**HEADER.__dict__, "location": "s3://c/orders"}))
    assert (read_journal(path).copied, read_journal(path).rewrite_count) == ({}, 0)


def test_a_torn_last_line_is_cut_off_wherever_it_is_torn(path):
    fill(path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length] + b"\0\0" * (length % 2))
        whole_lines = content[:length].count(b"\n")
        read_journal(path)
        with Journal(path) as journal:
            journal.counted({"after": length})
        assert path.read_bytes().count(b"\n") == whole_lines + 1
        assert read_journal(path).counts["after"] == length


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"kind": "cop\n', "line 2 of the journal"),
        (b"[]\n", "line 2 of the journal"),
        (b'{"kind": "copied"}\n', "line 2 of the journal"),
        (b'{"kind": "begun", "version": 2}\n', "version 2 is of a later Neve"),
    ],
)
def test_damage_before_the_last_line_is_refused_and_kept(path, line, reason):
    fill(path)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([first, line, *rest])
    path.write_bytes(damaged)
    for read in (read_journal, Journal):
        with pytest.raises(CorruptionError, match=reason):
            read(path)
    assert path.read_bytes() == damaged


def test_a_later_version_in_the_last_line_is_not_cut_off(path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"kind": "begun", "version": 2}\n')
    with pytest.raises(CorruptionError, match="later Neve"):
        Journal(path)
    assert path.stat().st_size > 0


def test_a_second_process_is_refused_and_may_look(path):
    assert read_journal(path) is None
    with Journal(path) as journal:
        journal.begin(HEADER)
        assert read_journal(path).is_running
        with pytest.raises(ConflictError, match="another process is moving") as refused:
            Journal(path)
        assert refused.value.code is Code.LOCKED
    assert not read_journal(path).is_running
    Journal(path).close()


def test_a_full_disk_leaves_whole_lines(path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as journal:
        journal.begin(HEADER)
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))
        try:
            with pytest.raises(StorageError, match="journal"):
                note_copied(journal, "1")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.stat().st_size == size
        note_copied(journal, "2")
    assert read_journal(path).copied == {"b/2": "sum of 2"}


def test_any_name_of_a_table_is_a_file_name(tmp_path):
    paths = {journal_path(tmp_path, "c", name) for name in ("a/b", "a%2Fb", "..", "ns.t", "ns. t")}
    assert len(paths) == 5
    assert {path.parent for path in paths} == {tmp_path / "c"}
