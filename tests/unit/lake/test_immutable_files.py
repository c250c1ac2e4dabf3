"""Files of a store that are held in memory. No store."""

import threading
import uuid

from neve.lake.immutable_files import MOST_FILE_BYTES, ImmutableFiles


def manifest():
    return f"s3://b/t/metadata/{uuid.uuid4()}-m0.avro"


def test_files_with_a_name_of_their_own_are_held_by_store_and_path():
    files = ImmutableFiles()
    paths = [
        manifest(),
        f"s3://b/t/metadata/snap-1-0-{uuid.uuid4()}.avro",
        f"s3://b/t/metadata/00001-{uuid.uuid4()}.metadata.json",
        f"s3://b/t/data/{uuid.uuid4()}-deletes.puffin",
    ]
    for path in paths:
        files.put("http://one", path, b"content")
        assert files.get("http://one", path) == b"content"
        assert files.get("http://another", path) is None
    files.forget("http://one", paths[0])
    assert files.get("http://one", paths[0]) is None
    assert files.size == 3 * len(b"content")


def test_names_that_may_be_given_twice_and_large_files_are_not_held():
    files = ImmutableFiles()
    for path in ("s3://b/t/metadata/v3.metadata.json", "s3://b/t/data/a.parquet"):
        files.put("", path, b"content")
        assert files.get("", path) is None
    large = manifest()
    files.put("", large, bytes(MOST_FILE_BYTES + 1))
    assert files.get("", large) is None


def test_a_file_that_two_threads_bring_at_once_counts_once():
    """The second stops before it takes the lock for the second time, if it ever does."""
    files, path, second_waits = ImmutableFiles(most_bytes=10), manifest(), threading.Event()
    lock, holders = files._lock, []

    class Lock:
        def __enter__(self):
            holders.append(threading.current_thread())
            if holders.count(other) == 2 and threading.current_thread() is other:
                second_waits.set()
                first_is_done.wait(10)
            return lock.__enter__()

        def __exit__(self, *error):
            return lock.__exit__(*error)

    first_is_done = threading.Event()
    other = threading.Thread(target=lambda: (files.put("", path, b"abcdef"), second_waits.set()))
    files._lock = Lock()
    other.start()
    second_waits.wait(10)
    files.put("", path, b"abcdef")
    first_is_done.set()
    other.join()
    assert files.size == 6
    files.forget("", path)
    assert files.size == 0


def test_the_least_recently_used_go_first():
    files = ImmutableFiles(most_bytes=30)
    first, second, third, fourth = (manifest() for _ in range(4))
    for path in (first, second, third):
        files.put("", path, bytes(10))
    assert files.get("", first) is not None
    files.put("", fourth, bytes(10))
    assert files.get("", second) is None
    assert None not in (files.get("", first), files.get("", third), files.get("", fourth))
    assert files.size == 30
