"""Puffin files of ours read by Iceberg's Java library, and the reverse; the index out of reach."""

import os
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io

from neve.index import PuffinIndex, compute_pk_hash
from neve.index.compaction import write_entries
from neve.index.entries import make_entries
from neve.index.root import index_location
from neve.lake.catalog import load_table
from neve.lake.puffin import PuffinWriter, read_blob, read_footer
from neve.lake.vectors import BLOB_TYPE


@pytest.fixture
def java(embedded_lake):
    return embedded_lake.spark._jvm


def read_with_java(java, path):
    iceberg = java.org.apache.iceberg
    file = iceberg.Files.localInput(java.java.io.File(str(path)))
    reader = iceberg.puffin.Puffin.read(file).build()
    try:
        metadata = reader.fileMetadata()
        pairs = reader.readAll(metadata.blobs()).iterator()
        found = []
        while pairs.hasNext():
            pair = pairs.next()
            blob, data = pair.first(), pair.second()
            content = java.org.apache.iceberg.util.ByteBuffers.toByteArray(data)
            found.append(
                (blob.type(), list(blob.inputFields()), bytes(content), dict(blob.properties()))
            )
        return found, dict(metadata.properties())
    finally:
        reader.close()


@pytest.mark.parametrize("compress", [False, True])
def test_java_reads_ours(java, tmp_path, compress):
    path = tmp_path / "ours.puffin"
    payloads = [b"", b"one", bytes(range(256)) * 1000]
    with path.open("wb") as stream:
        writer = PuffinWriter(stream, {"made-for": "Java"})
        for number, payload in enumerate(payloads):
            writer.add(
                f"type-{number}",
                payload,
                fields=[number, 7],
                snapshot_id=5,
                sequence_number=6,
                properties={"n": str(number)},
                compress=compress,
            )
        writer.finish()
    blobs, properties = read_with_java(java, path)
    assert blobs == [
        (f"type-{number}", [number, 7], payload, {"n": str(number)})
        for number, payload in enumerate(payloads)
    ]
    assert properties == {"created-by": "Neve", "made-for": "Java"}


def test_java_reads_an_index(java, tmp_path):
    index = PuffinIndex()
    index.insert(compute_pk_hash([pa.array(range(5000))]), "a", np.arange(5000), np.arange(5000))
    path = tmp_path / "index.puffin"
    path.write_bytes(index.to_bytes())
    blobs, _ = read_with_java(java, path)
    assert [blob[0] for blob in blobs] == [
        "neve-index-bucket-v2",
        "neve-index-directory-v2",
        "neve-index-contents-v2",
    ]


@pytest.mark.parametrize("codec", ["NONE", "ZSTD"])
def test_we_read_javas(java, tmp_path, codec):
    path = tmp_path / "java.puffin"
    iceberg = java.org.apache.iceberg
    file = iceberg.Files.localOutput(java.java.io.File(str(path)))
    writer = iceberg.puffin.Puffin.write(file).createdBy("Java").build()
    compression = getattr(iceberg.puffin.PuffinCompressionCodec, codec)
    payload = b"payload of Java " * 1000
    for number in range(3):
        fields = java.java.util.ArrayList()
        fields.add(number)
        properties = java.java.util.HashMap()
        properties.put("n", str(number))
        data = java.java.nio.ByteBuffer.wrap(bytearray(payload))
        writer.add(iceberg.puffin.Blob("some-type", fields, 3, 4, data, compression, properties))
    writer.close()
    data = path.read_bytes()
    stream = pa.BufferReader(data)
    footer = read_footer(stream, len(data), "java.puffin")
    assert footer.properties["created-by"] == "Java"
    assert footer.size == writer.footerSize()
    assert [read_blob(stream, blob, "java.puffin") for blob in footer.blobs] == [payload] * 3
    assert [blob.fields for blob in footer.blobs] == [(0,), (1,), (2,)]
    assert footer.blobs[0].type != BLOB_TYPE


def test_orphan_removal_does_not_reach_the_index(embedded_lake):
    lake = embedded_lake
    namespace = f"n{uuid.uuid4().hex[:8]}"
    lake.sql(f"CREATE NAMESPACE {namespace}").collect()
    lake.sql(f"CREATE TABLE {namespace}.t (id bigint) USING iceberg").collect()
    lake.sql(f"INSERT INTO {namespace}.t VALUES (1)").collect()
    table = load_table(lake.profile, lake.catalog(), (namespace, "t"))
    location = index_location(table.location(), str(table.metadata.table_uuid))
    shard = write_entries(
        load_file_io(table.io.properties, location),
        location,
        make_entries(np.array([1], np.uint64), None, 0, 0, np.array([1])),
        1,
    )
    orphan = Path(table.location().removeprefix("file:")) / "data" / "orphan.parquet"
    orphan.write_bytes(b"orphan")
    kept = Path(shard.path.removeprefix("file:"))
    for path in (orphan, kept):
        long_ago = time.time() - 10 * 86_400
        os.utime(path, (long_ago, long_ago))
    for listing in ("false", "true"):
        lake.sql(
            f"CALL system.remove_orphan_files(table => '{namespace}.t', "
            f"prefix_listing => {listing})"
        ).collect()
    assert not orphan.exists()
    assert kept.exists()
