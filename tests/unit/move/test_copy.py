"""Copies between directories: whole, once, resumable, with a limit."""

from __future__ import annotations

import threading

import pytest

from neve.errors import ConflictError, CorruptionError, NotFoundError
from neve.lake.local_files import TEMPORARY_PREFIX
from neve.lake.stored_files import PART_BYTES
from neve.move.copy import CopyJob, copy_files
from neve.move.rate_limit import RateLimit
from tests.support.file_stores import local_store
from tests.support.power_cut import power_cut

LARGE = 2 * PART_BYTES + 1


@pytest.fixture
def store():
    with local_store() as store:
        yield store


@pytest.fixture
def jobs(tmp_path):
    """Ten files, one of them of three parts."""
    sizes = [0, LARGE, *range(1, 9)]
    (tmp_path / "source").mkdir()
    made = []
    for number, size in enumerate(sizes):
        source = tmp_path / "source" / f"{number} %2F+ü"
        source.write_bytes(bytes([number]) * size)
        made.append(CopyJob(str(source), f"file:{tmp_path}/target/{source.name}", size))
    return made


def copy(store, jobs, noted, told=None, *, files_at_once=4, limit=None):
    return copy_files(
        jobs,
        store,
        store,
        done=lambda job, copied: noted.__setitem__(job.target, copied.checksum),
        already=dict(noted),
        files_at_once=files_at_once,
        limit=RateLimit(limit),
        on_bytes=(told if told is not None else []).append,
    )


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_every_file_arrives_and_is_noted(store, jobs, tmp_path):
    noted, told = {}, []
    counts = copy(store, iter(jobs), noted, told)
    total = sum(job.size for job in jobs)
    assert contents(tmp_path / "target") == contents(tmp_path / "source")
    assert (counts.files, counts.bytes, counts.existing_files) == (10, total, 0)
    assert noted == {job.target: store.checksum(job.source) for job in jobs}
    assert sum(told) == total


@pytest.mark.parametrize("point", ["move.file_copied", "lake.part_written"])
def test_a_copy_that_was_cut_off_goes_on(store, jobs, tmp_path, point):
    noted = {}
    with power_cut(point, 3):
        copy(store, jobs, noted, files_at_once=1)
    assert len(noted) < len(jobs)
    before = dict(noted)
    told = []
    counts = copy(store, jobs, noted, told)
    assert contents(tmp_path / "target") == contents(tmp_path / "source")
    assert counts.existing_files >= len(before)
    assert len(noted) == counts.files == len(jobs)
    assert sum(told) == counts.bytes


def test_what_is_noted_and_no_longer_there_is_copied_again(store, jobs, tmp_path):
    noted = {}
    copy(store, jobs, noted)
    (tmp_path / "target" / "5 %2F+ü").unlink()
    (tmp_path / "target" / "6 %2F+ü").write_bytes(b"")
    with pytest.raises(ConflictError, match=r"6 %2F\+ü already"):
        copy(store, jobs, noted)
    (tmp_path / "target" / "6 %2F+ü").unlink()
    assert copy(store, jobs, noted).existing_files >= 8
    assert contents(tmp_path / "target") == contents(tmp_path / "source")


def test_a_file_that_vanished_at_the_source_is_named(store, jobs, tmp_path):
    (tmp_path / "source" / "7 %2F+ü").unlink()
    with pytest.raises(NotFoundError, match=r"source/7 %2F\+ü was deleted while") as error:
        copy(store, jobs, {})
    assert "run the command again" in error.value.hint


@pytest.mark.parametrize("number", [1, 5])
def test_a_truncated_source_ends_the_copy_and_leaves_nothing_half(store, jobs, tmp_path, number):
    source = tmp_path / "source" / f"{number} %2F+ü"
    size = source.stat().st_size
    source.write_bytes(source.read_bytes()[:-1])
    noted = {}
    with pytest.raises(CorruptionError, match=f"has {size - 1} bytes.* says {size}"):
        copy(store, jobs, noted)
    written = contents(tmp_path / "target")
    assert source.name not in written
    assert not [name for name in written if name.startswith(TEMPORARY_PREFIX)]
    assert {path.rpartition("/")[2] for path in noted} <= set(written)


def test_files_are_taken_as_they_are_needed(store, jobs):
    """A plan of a million files is not held in memory by the copy."""
    taken = 0

    def lazily():
        nonlocal taken
        for job in jobs:
            taken += 1
            yield job

    def done(job, copied):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_files(
            lazily(), store, store, done=done, already={}, files_at_once=2, limit=RateLimit(None)
        )
    assert taken <= 4


def test_the_limit_holds_for_all_files_together():
    class Waits(threading.Event):
        def __init__(self):
            super().__init__()
            self.seconds = []

        def wait(self, timeout=None):
            self.seconds.append(timeout)
            return False

    waits, limit = Waits(), RateLimit(10)
    for _ in range(3):
        limit.take(100, waits)
    assert waits.seconds == pytest.approx([0, 10, 20], abs=1)
    RateLimit(None).take(1 << 60, waits)
    assert len(waits.seconds) == 3


def test_a_failure_ends_copies_that_wait_for_the_limit(store, jobs, tmp_path):
    """At one byte a second this would take years."""
    (tmp_path / "source" / "9 %2F+ü").unlink()
    jobs.sort(key=lambda job: job.source, reverse=True)
    with pytest.raises(NotFoundError):
        copy(store, jobs, {}, limit=1)
    assert not list((tmp_path / "target").glob(f"{TEMPORARY_PREFIX}*"))
