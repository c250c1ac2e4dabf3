"""What Java reads reaches Python whole, without py4j's slow large answers, and leaves no file."""

import json
import tempfile
import uuid
from pathlib import Path

import pytest

from neve.lake import jvm
from neve.lake.jvm import byte_streams
from neve.lake.jvm.table_files import TableFiles


@pytest.fixture
def files(embedded_lake, tmp_path, monkeypatch):
    namespace = f"streams_{uuid.uuid4().hex[:8]}"
    embedded_lake.sql(f"CREATE NAMESPACE {namespace}")
    embedded_lake.sql(
        f"CREATE TABLE {namespace}.t USING iceberg AS SELECT id, uuid() FROM range(5000)"
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield TableFiles(embedded_lake.spark, embedded_lake.ref(f"{namespace}.t"))
    assert list(tmp_path.iterdir()) == []


def local_path(files):
    return Path(files.metadata_location().removeprefix("file:"))


def test_a_large_file_is_read_whole_and_in_parts(files):
    data = max(local_path(files).parent.parent.glob("data/*.parquet"))
    content = data.read_bytes()
    assert len(content) > 50_000
    assert files.read(str(data)) == content
    assert files.read(str(data), 1000, 40_000) == content[1000:41_000]
    assert files.read(str(data), len(content) - 4, 100) == b"PAR1"


def test_metadata_is_what_the_file_says(files):
    document = json.loads(local_path(files).read_bytes())
    assert json.loads(files.metadata_json()) == document


def test_a_file_that_is_missing_is_javas_error(files):
    with pytest.raises(jvm.JavaError):
        files.read(f"{files.metadata_location()}.gone")


def test_the_stream_is_closed_when_it_cannot_be_read(embedded_lake, tmp_path):
    gateway = embedded_lake.spark.sparkContext._gateway
    (tmp_path / "file").write_bytes(b"1234")
    stream = gateway.jvm.java.io.FileInputStream(str(tmp_path / "file"))
    with pytest.raises(jvm.JavaError):
        byte_streams.read_stream(gateway, stream, -1)
    with pytest.raises(jvm.JavaError, match="Closed"):
        stream.read()
