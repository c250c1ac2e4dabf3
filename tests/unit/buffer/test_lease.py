"""A lease keeps others away, outlives nobody for long, and is the same on every store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from obstore.store import MemoryStore

from neve.buffer.disk import DiskStore
from neve.buffer.object_lease import ObjectLease
from neve.buffer.objects import ObjectStore
from neve.buffer.reader import BufferReader
from neve.errors import StorageError
from tests.support.buffer_stores import DoubtfulStore, disk, memory
from tests.support.wait import until

LONG, SHORT = 60.0, 0.2
NAME = "logs"


@pytest.fixture(params=["disk", "objects"])
def open_store(request, tmp_path):
    return disk(tmp_path / "buffer") if request.param == "disk" else memory()


def test_one_holds_it_until_it_is_released(open_store):
    first, second = (open_store().lease(NAME, LONG) for _ in range(2))
    assert first.hold()
    assert not second.hold()
    assert first.hold()
    first.release()
    assert second.hold()
    assert not first.hold()
    second.release()
    second.release()
    assert [one for one in open_store().files("") if one.size] == []


def test_leases_of_different_names_have_nothing_to_do_with_each_other(open_store):
    assert open_store().lease("logs", LONG).hold()
    assert open_store().lease("traces", LONG).hold()


def test_one_that_is_kept_is_not_taken_over(open_store):
    first, second = (open_store().lease(NAME, SHORT) for _ in range(2))
    assert first.hold()
    end = time.monotonic() + 3 * SHORT
    while time.monotonic() < end:
        assert not second.hold()
        assert first.hold()
        time.sleep(SHORT / 10)


def test_one_that_is_not_kept_is_taken_over_and_its_holder_notices(open_store):
    first, second = (open_store().lease(NAME, SHORT) for _ in range(2))
    assert first.hold()
    until(second.hold)
    assert not first.hold()
    # Whoever lost it takes nothing away from the one that has it.
    first.release()
    assert not open_store().lease(NAME, LONG).hold()
    assert second.hold()


def test_a_lease_is_no_stream(open_store):
    open_store().lease(NAME, LONG).hold()
    reader = BufferReader(open_store(), dedup_seconds=300)
    assert reader.streams() == []
    assert reader.close_abandoned() == []


def test_a_dead_holder_on_this_machine_is_noticed_at_once(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from neve.buffer.disk import DiskStore; "
        f"lease = DiskStore(Path(sys.argv[1])).lease('{NAME}', {LONG}); "
        "print(lease.hold(), flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline().strip() == "True"
        lease = DiskStore(tmp_path).lease(NAME, LONG)
        assert not lease.hold()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert lease.hold()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_a_clock_that_was_set_back_keeps_nobody_away_for_long(tmp_path):
    first, second = (DiskStore(tmp_path).lease(NAME, LONG) for _ in range(2))
    assert first.hold()
    (path,) = tmp_path.glob("leases/*")
    ahead = time.time() + 3600
    os.utime(path, (ahead, ahead))
    assert second.hold()
    assert not first.hold()


def test_a_put_whose_answer_was_lost_is_known_for_ours():
    class Repeating(ObjectStore):
        """A client that sends a put again after it was applied."""

        def put_new(self, path, data):
            super().put_new(path, data)
            return super().put_new(path, data)

    bucket = MemoryStore()
    assert Repeating(bucket).lease(NAME, LONG).hold()
    assert not ObjectStore(bucket).lease(NAME, LONG).hold()


def test_of_two_that_saw_the_same_one_wins():
    bucket = MemoryStore()

    class Late(ObjectStore):
        """Between what it saw and what it does, another is first."""

        def put_new(self, path, data):
            assert ObjectStore(bucket).lease(NAME, LONG).hold()
            return super().put_new(path, data)

    assert not Late(bucket).lease(NAME, LONG).hold()


def test_a_store_that_fails_says_so():
    store = DoubtfulStore(MemoryStore())
    store.lose_requests = 1
    lease = store.lease(NAME, LONG)
    assert isinstance(lease, ObjectLease)
    with pytest.raises(StorageError):
        lease.hold()
    assert lease.hold()
