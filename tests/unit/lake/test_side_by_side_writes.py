"""Files that are written at the same time, on the local disk."""

import threading

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from neve.lake.side_by_side_writes import SideBySideWrites


class Gated(PyArrowFileIO):
    """Writes a file only when all of them were begun."""

    def __init__(self, begun):
        super().__init__()
        self.begun = begun

    def new_output(self, location):
        self.begun.wait(timeout=60)
        if location.endswith("refused"):
            raise PermissionError(location)
        return super().new_output(location)


def write(writes, path, content):
    file = writes.new_output(str(path))
    with file.create() as stream:
        stream.write(content)
    return file


def test_files_are_on_their_way_at_the_same_time(tmp_path):
    writes = SideBySideWrites(Gated(threading.Barrier(3)))
    contents = {tmp_path / str(number): bytes(number) for number in (1, 2, 3)}
    for path, content in contents.items():
        # The size is known before the file is there.
        assert len(write(writes, path, content)) == len(content)
    writes.finish()
    assert {path: path.read_bytes() for path in contents} == contents


def test_a_write_that_fails_is_told_at_the_end_and_half_a_file_is_not_written(tmp_path):
    begun = threading.Event()
    begun.set()
    writes = SideBySideWrites(Gated(begun))
    write(writes, tmp_path / "whole", b"1")
    with pytest.raises(ZeroDivisionError), writes.new_output(str(tmp_path / "half")).create() as s:
        s.write(b"1" * (1 // 0))
    write(writes, tmp_path / "refused", b"1")
    with pytest.raises(PermissionError):
        writes.finish()
    assert {path.name for path in tmp_path.iterdir()} == {"whole"}
