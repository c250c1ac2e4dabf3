"""Files that nothing names are found: of every kind, and none that a table still needs."""

from __future__ import annotations

import neve
from neve.lake.json_table import read_database_table, swap_document
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings
from tests.support.leftovers import committed_files, local_path, plant, unreferenced_files


def test_what_no_version_and_no_log_names_is_left_over(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        appender = Appender(lake)
        for number in range(3):
            appender.append(number)
        assert unreferenced_files(lake.catalog()) == set()
        planted = plant(appender.load())
        assert {"".join(path.suffixes) for path in planted} == {
            ".parquet",
            ".avro",
            ".metadata.json",
        }
        assert unreferenced_files(lake.catalog()) == planted


def test_a_metadata_file_that_has_left_the_log_is_left_over(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        appender = Appender(lake)
        appender.append(1)
        identifier = appender.load().name()
        base, io = read_database_table(lake.catalog(), identifier)
        (first, *_) = base.document["metadata-log"]
        swap_document(lake.catalog(), io, identifier, base, {**base.document, "metadata-log": []})
        left = unreferenced_files(lake.catalog())
        assert {
            local_path(each) for each in (first["metadata-file"], base.metadata_location)
        } == left
        assert left.isdisjoint(committed_files(appender.load()))
