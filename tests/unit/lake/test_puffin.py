"""Puffin files: what was written is read, range by range, and damage is noticed."""

import io
import json

import pytest
from pyiceberg.table.puffin import PuffinFile

from neve.errors import CorruptionError, UnsupportedError
from neve.lake.puffin import MAGIC, PuffinWriter, read_blob, read_footer


def written(count=3, payload=b"payload", **options):
    stream = io.BytesIO()
    writer = PuffinWriter(stream, {"made-for": "a test"})
    for number in range(count):
        writer.add(
            f"type-{number}",
            payload * (number + 1),
            fields=[1, 2],
            snapshot_id=7,
            sequence_number=8,
            properties={"n": str(number)},
            **options,
        )
    footer = writer.finish()
    assert writer.size == len(stream.getvalue())
    return stream.getvalue(), footer


class Counting(io.BytesIO):
    """Counts the bytes that are read."""

    count = 0

    def read(self, size=-1):
        data = super().read(size)
        self.count += len(data)
        return data


@pytest.mark.parametrize("compress", [False, True])
def test_blobs_come_back(compress):
    data, footer = written(compress=compress)
    found = read_footer(io.BytesIO(data), len(data), "f")
    assert found == footer
    assert found.properties == {"created-by": "Neve", "made-for": "a test"}
    assert [read_blob(io.BytesIO(data), blob, "f") for blob in found.blobs] == [
        b"payload" * (number + 1) for number in range(3)
    ]
    assert found.blobs[1].fields == (1, 2)
    assert (found.blobs[1].snapshot_id, found.blobs[1].sequence_number) == (7, 8)


def test_a_file_without_blobs():
    data, footer = written(count=0)
    assert read_footer(io.BytesIO(data), len(data), "f") == footer


def test_a_footer_longer_than_the_first_read():
    data, footer = written(count=500)
    assert footer.size > 16 * 1024
    assert read_footer(io.BytesIO(data), len(data), "f") == footer


def test_one_blob_is_read_without_the_others():
    data, _ = written(payload=bytes(1_000_000))
    stream = Counting(data)
    blob = read_footer(stream, len(data), "f").blobs[0]
    assert len(read_blob(stream, blob, "f")) == 1_000_000
    assert stream.count < 1_100_000


@pytest.mark.parametrize("compress", [False, True])
def test_pyiceberg_reads_it(compress):
    data, _ = written(compress=compress)
    file = PuffinFile(data)
    assert [file.get_blob_payload(blob) for blob in file.footer.blobs][2] == b"payload" * 3


def test_truncated_files_are_noticed():
    data, _ = written()
    for size in range(len(data)):
        with pytest.raises(CorruptionError, match="shard-9"):
            read_footer(io.BytesIO(data[:size]), size, "shard-9")


def test_a_blob_beyond_the_end_is_noticed():
    data, footer = written()
    with pytest.raises(CorruptionError, match="ends at"):
        read_blob(io.BytesIO(data[:10]), footer.blobs[2], "f")


def test_a_damaged_footer_is_noticed():
    data, footer = written()
    start = len(data) - footer.size
    for damaged in (
        data[:start] + b"x" + data[start + 1 :],
        data[: start + 4] + b"x" + data[start + 5 :],
    ):
        with pytest.raises(CorruptionError):
            read_footer(io.BytesIO(damaged), len(damaged), "f")


def test_a_damaged_compressed_blob_is_noticed():
    data, footer = written(compress=True)
    with pytest.raises(CorruptionError, match="decompressed"):
        read_blob(io.BytesIO(bytes(len(data))), footer.blobs[0], "f")


def test_what_is_not_supported_is_said():
    payload = json.dumps({"blobs": []}).encode()
    data = MAGIC + MAGIC + payload + len(payload).to_bytes(4, "little") + b"\1\0\0\0" + MAGIC
    with pytest.raises(UnsupportedError, match="footer"):
        read_footer(io.BytesIO(data), len(data), "f")
