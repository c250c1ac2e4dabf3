"""Manifest lists: long ones are copied, and any engine reads them."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import clear_manifest_cache, read_manifest_list

import neve
from neve.errors import CorruptionError
from neve.lake import append_snapshot, manifest_lists
from neve.lake.avro_blocks import locate_blocks
from neve.lake.avro_files import AvroRecords, read_header
from neve.lake.manifest_lists import SETTLED, read_list, read_manifest_paths
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings
from tests.support.readers import read_with_duckdb


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch):
    """Eight appends make a manifest that is settled, and a block holds some of those."""
    monkeypatch.setattr(append_snapshot, "_SIZES", (8,))
    monkeypatch.setattr(manifest_lists, "_BLOCK_BYTES", 400)


@pytest.fixture
def appender(lake):
    return Appender(lake)


class CurrentList:
    """The manifest list of the current snapshot of a table, as its file is."""

    def __init__(self, appender):
        table = appender.load()
        self.io, self.path = table.io, table.current_snapshot().manifest_list
        self.file = Path(self.path.removeprefix("file://"))
        self.content = self.file.read_bytes()
        self.header = read_header(self.content, self.path)
        blocks = self.content[self.header.length :]
        starts = [place.start for place in locate_blocks(blocks)]
        self.blocks = [
            blocks[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)
        ]

    @property
    def settled(self):
        return int(self.header.metadata.get(SETTLED, b"-1"))

    def read(self):
        return read_list(self.io, self.path)


def append_many(appender, numbers):
    for number in numbers:
        appender.append(number)


def test_settled_manifests_are_copied_byte_for_byte(appender):
    """Nine appends merge eight. Then 72 appends leave eight manifests that are settled."""
    append_many(appender, range(73))
    before = CurrentList(appender)
    appender.append(73)
    after = CurrentList(appender)
    assert before.settled == after.settled == 9
    assert after.header.sync == before.header.sync
    assert len(after.blocks) > 2, "settled manifests take several blocks"
    assert after.blocks[1:] == before.blocks[1:]
    assert after.blocks[0] != before.blocks[0]
    # Only the manifests that may be merged are decoded.
    assert len(before.read().manifests) == 1
    assert len(after.read().manifests) == 2


def test_every_reader_sees_all_manifests_and_rows(lake, appender):
    append_many(appender, range(40))
    listed = CurrentList(appender)
    manifests = list(read_manifest_list(listed.io.new_input(listed.path)))
    assert [each.existing_files_count for each in manifests] == [0] * 8 + [8] * 4
    assert {each.manifest_path for each in manifests} == read_manifest_paths(listed.io, listed.path)
    assert [each.sequence_number for each in manifests][:8] == list(range(40, 32, -1))
    summary = appender.load().current_snapshot().summary
    assert (summary["manifests-created"], summary["manifests-kept"]) == ("1", "11")
    assert appender.ids() == Counter(range(40))
    assert [row["id"] for row in read_with_duckdb(lake, "ns.t")] == list(range(40))


def test_a_list_of_another_writer_is_decoded_and_divided_again(appender):
    append_many(appender, range(20))
    appender.load().append(pa.table({"id": [20]}))
    assert CurrentList(appender).settled == -1
    appender.table.refresh()
    appender.append(21)
    assert CurrentList(appender).settled == 2
    assert appender.ids() == Counter(range(22))


def test_a_list_with_another_codec_is_written_as_the_table_says(appender):
    append_many(appender, range(20))
    with appender.load().transaction() as change:
        change.set_properties({"write.avro.compression-codec": "zstd"})
    appender.table.refresh()
    append_many(appender, range(20, 40))
    listed = CurrentList(appender)
    assert (listed.header.codec, listed.settled) == ("zstandard", 4)
    assert appender.ids() == Counter(range(40))


def test_a_list_whose_blocks_were_cut_elsewhere_is_decoded_as_a_whole(appender):
    """Moving a table rewrites paths, under the same header and in blocks of another size."""
    append_many(appender, range(40))
    listed = CurrentList(appender)
    records = AvroRecords(listed.content, listed.path, read={})
    listed.file.write_bytes(records.with_records(record for _, record in records.encoded()))
    clear_manifest_cache()
    whole = CurrentList(appender)
    assert (len(whole.blocks), whole.settled) == (1, 4)
    assert len(whole.read().manifests) == 12
    append_many(appender, range(40, 60))
    assert CurrentList(appender).settled == 7
    assert appender.ids() == Counter(range(60))


def test_a_list_that_is_cut_off_is_damaged(appender):
    append_many(appender, range(40))
    listed = CurrentList(appender)
    listed.file.write_bytes(listed.content[:-1])
    with pytest.raises(CorruptionError, match="not a whole Avro file"):
        listed.read()
