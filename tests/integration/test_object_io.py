"""Small files of S3 by single requests: what PyIceberg is told is what pyarrow would tell it."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from neve.lake.object_io import SMALL_BYTES, ObjectFileIO
from tests.support.proxy import Response, running_proxy
from tests.support.servers import REGION


@pytest.fixture
def requests():
    return []


@pytest.fixture
def io(s3, requests):
    def counting(request, forward):
        requests.append(request.method)
        return forward(request)

    with running_proxy(int(s3.endpoint.rpartition(":")[2]), [counting]) as proxy:
        yield ObjectFileIO(
            {
                "s3.endpoint": proxy.uri,
                "s3.access-key-id": s3.access_key,
                "s3.secret-access-key": s3.secret_key,
                "s3.region": REGION,
                "s3.connect-timeout": "5",
                "s3.request-timeout": "5",
            }
        )


@pytest.fixture
def location(s3, tmp_path):
    return f"s3://{s3.bucket}/{tmp_path.name}"


def test_a_small_file_is_one_request_each_way(io, location, requests):
    output = io.new_output(f"{location}/a b+c/v1.metadata.json")
    with output.create() as stream:
        stream.write(b"{")
        stream.write(memoryview(b"}"))
        assert stream.tell() == 2
    assert len(output) == 2
    with output.to_input_file().open() as stream:
        assert stream.read() == b"{}"
    assert requests == ["PUT", "GET"]
    # pyarrow reads the very same file.
    with PyArrowFileIO(io.properties).new_input(output.location).open() as stream:
        assert stream.read() == b"{}"


def test_a_file_that_exists_is_not_replaced(io, location):
    output = io.new_output(f"{location}/m.avro")
    assert not output.exists()
    with output.create() as stream:
        stream.write(b"one")
    with pytest.raises(FileExistsError), io.new_output(output.location).create() as stream:
        stream.write(b"two")
    with io.new_output(output.location).create(overwrite=True) as stream:
        stream.write(b"three")
    read = io.new_input(output.location)
    assert (read.exists(), len(read), read.open().read()) == (True, 5, b"three")
    io.delete(read)
    assert not read.exists()
    for look in (read.open, read.__len__):
        with pytest.raises(FileNotFoundError):
            look()


def test_nothing_is_left_of_a_write_that_fails(io, location):
    output = io.new_output(f"{location}/half.avro")
    with pytest.raises(ValueError, match="stop"), output.create() as stream:  # noqa: PT012
        stream.write(b"half")
        raise ValueError("stop")
    assert not output.exists()


def test_a_large_file_and_parquet_are_written_as_ever(io, location):
    path = f"{location}/large.parquet"
    table = pa.table({"n": pa.array(range(SMALL_BYTES // 8))})
    with io.new_output(path).create() as stream, pq.ParquetWriter(stream, table.schema) as writer:
        writer.write_table(table, row_group_size=200_000)
    with pickle.loads(pickle.dumps(io)).new_input(path).open(seekable=True) as stream:
        assert pq.read_table(stream).equals(table)
    small = f"{location}/small.parquet"
    with io.new_output(small).create() as stream, pq.ParquetWriter(stream, table.schema) as writer:
        writer.write_table(table.slice(0, 10))
    with io.new_input(small).open() as stream:
        assert pq.read_table(stream).num_rows == 10


def test_a_lost_answer_is_no_other_file(s3, location):
    answers = []

    def losing(request, forward):
        answer = forward(request)
        answers.append(answer.status)
        return Response(503) if len(answers) == 1 else answer

    with running_proxy(int(s3.endpoint.rpartition(":")[2]), [losing]) as proxy:
        keys = {"s3.access-key-id": s3.access_key, "s3.secret-access-key": s3.secret_key}
        io = ObjectFileIO({"s3.endpoint": proxy.uri, "s3.region": REGION, **keys})
        with io.new_output(f"{location}/once.avro").create() as stream:
            stream.write(b"once")
        assert io.new_input(f"{location}/once.avro").open().read() == b"once"
    assert answers[0] == 200


def test_what_the_store_refuses_is_told_as_by_a_file_system(s3, location):
    wrong = {
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.access_key,
        "s3.secret-access-key": "wrong",
        "s3.region": REGION,
    }
    io = ObjectFileIO(wrong)
    with pytest.raises(PermissionError) as told:
        io.new_input(f"{location}/x.avro").open()
    assert "wrong" not in str(told.value)
    with pytest.raises(PermissionError), io.new_output(f"{location}/x.avro").create() as stream:
        stream.write(b"x")
