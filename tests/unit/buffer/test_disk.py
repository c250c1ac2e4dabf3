"""What can go wrong on a disk, and what is left of it."""

from __future__ import annotations

import errno
import os
import shutil
from itertools import product
from pathlib import Path

import pytest

from neve.buffer import disk_log
from neve.buffer.disk import DiskStore
from neve.buffer.reader import BufferReader
from neve.buffer.store import LostStreamError
from neve.errors import CorruptionError, StorageError
from tests.support.buffer_stores import payloads
from tests.support.power_cut import power_cut
from tests.support.requests import buffered


@pytest.fixture
def root(tmp_path):
    return tmp_path / "buffer"


@pytest.fixture
def store(root):
    return DiskStore(root)


def segment_files(root):
    return sorted(path.name for path in root.glob("logs/*/*.*"))


def failing(error_number):
    def fail(*_):
        raise OSError(error_number, os.strerror(error_number))

    return fail


def test_an_unsealed_segment_is_not_served(store):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    assert payloads(store) == []
    log.seal()
    assert payloads(store) == [b"a"]


def test_sealing_nothing_makes_no_segment(store, root):
    log = store.begin("logs")
    log.seal()
    log.seal()
    assert segment_files(root) == []
    log.close()
    assert payloads(store) == []


@pytest.fixture
def synced(monkeypatch):
    """The paths that were synced, in order."""
    paths = []

    def record(sync):
        def recorded(fd):
            paths.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
            sync(fd)

        return recorded

    monkeypatch.setattr(os, "fsync", record(os.fsync))
    monkeypatch.setattr(os, "fdatasync", record(os.fdatasync))
    return paths


def test_the_file_and_its_directory_are_synced(store, root, synced):
    log = store.begin("logs")
    directory = str(root / log.stream)
    assert {str(root.parent), str(root), str(root / "logs"), directory} <= set(synced)
    synced.clear()
    log.commit([buffered(b"a")])
    opened = f"{directory}/000000000001.open"
    assert synced == [opened, directory, opened]
    synced.clear()
    log.seal()
    assert synced == [directory]


def test_a_file_that_is_put_is_synced_before_it_has_its_name_and_its_directory_after(
    store, root, monkeypatch
):
    directory = root / "logs" / "stream"
    path = directory / "000000000001.retired"
    directory.mkdir(parents=True)
    synced = []
    fsync = os.fsync

    def recorded(fd):
        target = Path(f"/proc/self/fd/{fd}").readlink()
        size = None if target.is_dir() else target.stat().st_size
        synced.append((target.parent if size else target, size, path.exists()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    assert store.put_new("logs/stream/000000000001.retired", b"content")
    assert synced == [(directory, 7, False), (directory, None, True)]


def test_without_fdatasync_as_on_macos_a_commit_is_synced_all_the_same(
    store, root, synced, monkeypatch
):
    monkeypatch.delattr(os, "fdatasync")
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    synced.clear()
    log.commit([buffered(b"b")])
    assert synced == [str(root / log.stream / "000000000001.open")]
    log.close()
    assert payloads(store) == [b"a", b"b"]


def test_nobody_else_may_read_what_is_buffered(store, root):
    before = os.umask(0)
    try:
        log = store.begin("logs")
        log.commit([buffered(b"a")])
        log.seal()
        log.commit([buffered(b"b")])
        store.put_new("dead-letters/logs/stream/000000000001-000000.json", b"{}")
        assert store.lease("logs", 60.0).hold()
    finally:
        os.umask(before)
    created = [root, *root.rglob("*")]
    assert len(created) >= 10
    assert [path for path in created if path.stat().st_mode & 0o077] == []


def test_a_stream_that_is_ended_twice_is_ended_once(store):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    with pytest.raises(StorageError, match="another process"):
        store.end_stream(log.stream)
    log.abandon()
    log.abandon()
    store.end_stream(log.stream)
    store.end_stream(log.stream)
    store.end_stream("logs/never-begun")
    assert payloads(store) == [b"a"]


def test_what_a_dead_receiver_left_is_synced_before_it_is_served(store, root, synced):
    # It may have died between its write and its sync; a retry is then acknowledged on the
    # strength of what was found.
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    log.abandon()
    synced.clear()
    store.close_abandoned()
    directory = str(root / log.stream)
    assert synced[:2] == [f"{directory}/000000000001.open", directory]


@pytest.mark.parametrize("call", ["writev", "fdatasync"])
@pytest.mark.parametrize("acknowledged", [0, 2])
def test_after_a_failed_commit_what_was_acknowledged_is_left_and_nothing_else(
    store, root, monkeypatch, call, acknowledged
):
    log = store.begin("logs")
    for n in range(acknowledged):
        log.commit([buffered(b"%d" % n)])
    with monkeypatch.context() as broken:
        broken.setattr(disk_log.os, call, failing(errno.EIO))
        with pytest.raises(StorageError) as caught:
            log.commit([buffered(b"lost")])
        assert caught.value.retryable
    assert log.settle() is False
    log.commit([buffered(b"next")])
    log.close()
    assert payloads(store) == [*(b"%d" % n for n in range(acknowledged)), b"next"]


def test_a_half_written_group_is_cut_off(store, monkeypatch):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    real = os.writev

    def half(fd, parts):
        real(fd, [parts[0][: len(parts[0]) // 2]])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(disk_log.os, "writev", half)
        with pytest.raises(StorageError, match="No space"):
            log.commit([buffered(b"lost")])
    log.settle()
    log.close()
    assert payloads(store) == [b"a"]


def test_a_failed_sync_is_not_trusted_even_when_the_next_succeeds(store, root, monkeypatch):
    # fsyncgate: the pages of a failed fsync are marked clean, and may be lost.
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    with monkeypatch.context() as broken:
        broken.setattr(disk_log.os, "fdatasync", failing(errno.EIO))
        with pytest.raises(StorageError):
            log.commit([buffered(b"lost")])
    log.settle()
    assert [name for name in segment_files(root) if name.endswith(".open")] == []
    log.commit([buffered(b"b")])
    assert any(name.startswith("000000000002.open") for name in segment_files(root))


def test_settling_is_repeated_until_it_succeeds(store, monkeypatch):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    with monkeypatch.context() as read_only:
        for call in ("writev", "ftruncate", "fsync"):
            read_only.setattr(disk_log.os, call, failing(errno.EROFS))
        with pytest.raises(StorageError):
            log.commit([buffered(b"lost")])
        for _ in range(2):
            with pytest.raises(StorageError):
                log.settle()
    assert log.settle() is False
    log.close()
    assert payloads(store) == [b"a"]


def test_sealing_is_repeated_after_a_directory_sync_failed(store, monkeypatch):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    with monkeypatch.context() as broken:
        broken.setattr(disk_log, "sync_directory", failing(errno.EIO))
        with pytest.raises(StorageError):
            log.seal()
    log.seal()
    log.commit([buffered(b"b")])
    log.close()
    assert payloads(store) == [b"a", b"b"]


def test_a_removed_directory_is_noticed_although_fsync_succeeds(store, root):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    shutil.rmtree(root)
    with pytest.raises(LostStreamError):
        log.commit([buffered(b"lost")])
    log.abandon()
    again = store.begin("logs")
    again.commit([buffered(b"b")])
    again.close()
    assert payloads(store) == [b"b"]


def test_a_moved_directory_that_comes_back_has_only_what_was_acknowledged(store, root):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    root.rename(root.with_name("moved"))
    with pytest.raises(LostStreamError):
        log.commit([buffered(b"lost")])
    log.abandon()
    root.with_name("moved").rename(root)
    store.close_abandoned()
    assert payloads(store) == [b"a"]


def test_a_live_stream_is_not_closed_by_others(store):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    assert store.close_abandoned() == []
    log.commit([buffered(b"b")])
    log.close()
    assert payloads(store) == [b"a", b"b"]


def test_a_stream_that_cannot_be_closed_does_not_stop_the_others(store, monkeypatch, caplog):
    logs = sorted((store.begin("logs") for _ in range(2)), key=lambda log: log.stream)
    for log in logs:
        log.commit([buffered(log.stream.encode())])
        log.abandon()
    broken, fine = (log.stream for log in logs)
    recover = DiskStore._recover

    def fail(self, stream):
        if stream == broken:
            raise OSError(errno.EIO, "Input/output error")
        recover(self, stream)

    with monkeypatch.context() as damaged:
        damaged.setattr(DiskStore, "_recover", fail)
        assert store.close_abandoned() == [fine]
    assert f"{broken} cannot be closed" in caplog.text
    assert store.close_abandoned() == [broken]
    assert sorted(payloads(store)) == [broken.encode(), fine.encode()]


def test_a_torn_tail_is_cut(store, root, caplog):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    log.abandon()
    [path] = root.glob("logs/*/*.open")
    with path.open("ab") as file:
        file.write(b"half a frame")
    store.close_abandoned()
    assert payloads(store) == [b"a"]
    assert "cut 12 torn bytes" in caplog.text


def test_damage_before_whole_frames_is_kept_and_reported(store, root, caplog):
    log = store.begin("logs")
    log.commit([buffered(b"first")])
    log.commit([buffered(b"second")])
    log.abandon()
    [path] = root.glob("logs/*/*.open")
    path.write_bytes(path.read_bytes().replace(b"first", b"fIrst"))
    size = path.stat().st_size
    store.close_abandoned()
    assert "is damaged" in caplog.text
    reader = BufferReader(store, dedup_seconds=300)
    [segment, _closing] = reader.segments(log.stream)
    assert segment.bytes == size, "nothing may be cut"
    with pytest.raises(CorruptionError, match="000000000001"):
        list(reader.read(segment))


def test_a_sealed_segment_cut_short_is_noticed(store, root):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    frame = log.open_bytes
    log.commit([buffered(b"b")])
    log.close()
    [path] = root.glob("logs/*/000000000001.*.segment")
    os.truncate(path, frame)
    reader = BufferReader(store, dedup_seconds=300)
    with pytest.raises(CorruptionError):
        list(reader.read(reader.segments(log.stream)[0]))


DISK_POINTS = [
    "buffer.created",
    "buffer.torn",
    "buffer.written",
    "buffer.synced",
    "buffer.renamed",
    "buffer.sealed",
]


@pytest.mark.parametrize(("point", "passes"), [*product(DISK_POINTS, [1, 2]), ("buffer.closed", 1)])
def test_a_power_cut_loses_nothing_acknowledged(store, root, point, passes):
    acknowledged = []
    log = store.begin("logs")
    with power_cut(point, passes):
        for content in (b"a", b"b", b"c"):
            log.commit([buffered(content)])
            acknowledged.append(content)
            log.seal()
        log.close()
    log.abandon()
    store.close_abandoned()
    found = payloads(DiskStore(root))
    assert found[: len(acknowledged)] == acknowledged
    # At most the group under way besides.
    assert len(found) - len(acknowledged) in (0, 1)
    assert BufferReader(store, dedup_seconds=300).streams()[0].closed


def test_a_power_cut_while_recovering(store, root):
    log = store.begin("logs")
    log.commit([buffered(b"a")])
    log.abandon()
    with power_cut("buffer.recovered"):
        store.close_abandoned()
    assert store.close_abandoned() == [log.stream]
    assert payloads(store) == [b"a"]


def test_a_power_cut_while_beginning_leaves_no_stream(store, root):
    with power_cut("buffer.named"):
        store.begin("logs")
    assert store.close_abandoned() == []
    assert list((root / "logs").iterdir()) == []


@pytest.mark.parametrize("point", ["buffer.retire_declared", "buffer.retire_removed"])
def test_a_power_cut_while_retiring(store, point):
    log = store.begin("logs")
    for content in (b"a", b"b", b"c"):
        log.commit([buffered(content)])
        log.seal()
    reader = BufferReader(store, dedup_seconds=300)
    with power_cut(point):
        reader.retire(log.stream, 2)
    assert [s.number for s in reader.segments(log.stream)] == [3]
    reader.retire(log.stream, 2)
    assert len([f for f in store.files("logs") if f.path.endswith(".segment")]) == 1
