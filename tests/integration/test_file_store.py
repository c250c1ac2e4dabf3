"""One behaviour over a directory, a bucket of a real server, and a store that obstore knows."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import ConflictError, CorruptionError, NotFoundError
from neve.lake import file_store
from tests.support.file_stores import PART, local_store, s3_store, use_small_parts

NAMES = [
    "plain",
    "a b",
    "a%2Fb",
    "a%20b",
    "a+b",
    "ü☃ 数",
    "x=1/y?z#w",
    "q'\"{}|^`~*",
    "deep/er",
]
# Of two parts, the second short.
LARGE = bytes(range(256)) * (PART // 256) + b"the rest"


@pytest.fixture(params=["empty", "small", "streamed", "in parts"])
def content(request, monkeypatch):
    """What each way of copying copies."""
    use_small_parts(monkeypatch, whole=request.param != "in parts")
    return {"empty": b"", "small": b"small"}.get(request.param, LARGE)


@pytest.fixture(params=["directory", "s3", "memory"])
def place(request, tmp_path):
    """A store and a prefix in it that nothing else uses."""
    if request.param == "s3":
        server = request.getfixturevalue("s3")
        store, prefix = s3_store(server), f"s3a://{server.bucket}/{tmp_path.name}"
    else:
        store = local_store()
        prefix = f"file:{tmp_path}" if request.param == "directory" else "memory:///t"
    with store:
        yield store, prefix


def test_names_are_kept_letter_by_letter(place):
    store, prefix = place
    for name in NAMES:
        assert store.write_new(f"{prefix}/t/{name}", name.encode())
        assert not store.write_new(f"{prefix}/t/{name}", b"other")
    store.write_new(f"{prefix}/t_2/x", b"of another table")
    paths = [f"{prefix}/t/{name}" for name in NAMES]
    lengths = {path: len(name.encode()) for path, name in zip(paths, NAMES, strict=True)}
    assert store.list_sizes(f"{prefix}/t") == lengths
    assert store.sizes([*paths, f"{prefix}/none"]) == {**lengths, f"{prefix}/none": None}
    for path, name in zip(paths, NAMES, strict=True):
        assert store.read(path) == name.encode()
        copy = store.copy_in(store, path, path.replace("/t/", "/copy/"))
        assert copy.checksum == store.checksum(path)
        assert store.read(path.replace("/t/", "/copy/")) == name.encode()
    store.delete(paths)
    assert store.list_sizes(f"{prefix}/t") == {}


def test_directories_are_listed_one_level_at_a_time(place, monkeypatch):
    store, prefix = place
    for name in ("ns/t/metadata/x", "ns/t/data/day=1/y", "ns/t2/x", "ns/file", "nsx/x", "ns/a b/x"):
        store.write_new(f"{prefix}/dirs/{name}", b"")
    monkeypatch.setattr(file_store, "_PAGE", 2)
    assert sorted(store.list_directories(f"{prefix}/dirs")) == ["ns", "nsx"]
    assert sorted(store.list_directories(f"{prefix}/dirs/ns")) == ["a b", "t", "t2"]
    assert sorted(store.list_directories(f"{prefix}/dirs/ns/t/")) == ["data", "metadata"]
    assert list(store.list_directories(f"{prefix}/dirs/none")) == []


def test_keys_with_empty_segments_are_other_keys(s3, tmp_path, monkeypatch):
    """The server keeps files, so it lists such keys as others: they are not listed here."""
    use_small_parts(monkeypatch, whole=False)
    with s3_store(s3) as store, local_store() as directory:
        path = f"s3://{s3.bucket}/{tmp_path.name}//a/b/"
        for name, content in (("small", b"small"), ("large", LARGE)):
            (tmp_path / name).write_bytes(content)
            store.copy_in(directory, str(tmp_path / name), path + name)
            assert not store.write_new(path + name, b"other")
            assert store.size(path + name) == len(content)
            assert store.read(path + name) == content
            assert store.copy_in(store, path + name, path + "copy-" + name).size == len(content)
            assert store.checksum(path + "copy-" + name) == store.checksum(path + name)
            with pytest.raises(NotFoundError):
                store.read(path + "none")
            store.delete([path + name])
            assert store.size(path + name) is None


def test_a_missing_file_is_named(place):
    store, prefix = place
    for read in (store.read, store.open, store.checksum):
        with pytest.raises(NotFoundError, match=f"{prefix}/none does not exist"):
            read(f"{prefix}/none")
    with pytest.raises(NotFoundError, match=f"{prefix}/none does not exist"):
        store.copy_in(store, f"{prefix}/none", f"{prefix}/copy", size=3)


def test_a_copy_is_whole_and_may_be_made_again(place, tmp_path, content):
    store, prefix = place
    (tmp_path / "source").write_bytes(content)
    told = []
    with local_store() as source:
        path = str(tmp_path / "source")
        copied = store.copy_in(source, path, f"{prefix}/x", size=len(content), on_bytes=told.append)
        assert (copied.size, copied.existed, sum(told)) == (len(content), False, len(content))
        assert copied.checksum == store.checksum(f"{prefix}/x") == source.checksum(path)
        assert store.read(f"{prefix}/x") == content
        again = store.copy_in(source, path, f"{prefix}/x", size=len(content))
        assert (again.existed, again.checksum) == (True, copied.checksum)
        # Back to a directory.
        source.copy_in(store, f"{prefix}/x", str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == content


def test_what_another_put_at_the_target_is_never_replaced(place, tmp_path, content):
    store, prefix = place
    (tmp_path / "source").write_bytes(content)
    other = b"s" * max(1, len(content))
    store.write_new(f"{prefix}/x", other)
    with local_store() as source, pytest.raises(ConflictError, match=f"{prefix}/x"):
        store.copy_in(source, str(tmp_path / "source"), f"{prefix}/x")
    assert store.read(f"{prefix}/x") == other


def test_what_another_puts_at_the_target_meanwhile_is_never_replaced(place, tmp_path, content):
    store, prefix = place
    (tmp_path / "source").write_bytes(content)
    with local_store() as source, pytest.raises(ConflictError, match=f"{prefix}/x"):
        store.copy_in(
            source,
            str(tmp_path / "source"),
            f"{prefix}/x",
            on_bytes=lambda _: store.write_new(f"{prefix}/x", b"other"),
        )
    assert store.read(f"{prefix}/x") == b"other"


def test_a_source_of_another_length_is_refused_with_both_lengths(place, tmp_path, content):
    store, prefix = place
    (tmp_path / "source").write_bytes(content)
    expected = rf"source has {len(content)} bytes.* says {len(content) + 1}"
    with local_store() as source, pytest.raises(CorruptionError, match=expected):
        store.copy_in(source, str(tmp_path / "source"), f"{prefix}/x", size=len(content) + 1)
    assert store.list_sizes(prefix) == (
        {} if "file:" not in prefix else {f"{prefix}/source": len(content)}
    )


def test_a_file_is_read_in_ranges_by_pyarrow(place):
    store, prefix = place
    table = pa.table({"id": range(1000)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    store.write_new(f"{prefix}/x.parquet", buffer.getvalue())
    with store.open(f"{prefix}/x.parquet") as file:
        assert pq.read_table(file) == table
    assert store.read_range(f"{prefix}/x.parquet", 0, 4) == b"PAR1"


def test_a_probe_leaves_nothing(place):
    store, prefix = place
    store.check_conditional_put(f"{prefix}/new")
    assert store.list_sizes(prefix) == {}
