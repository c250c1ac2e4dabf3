"""Where accepting what is not confirmed is refused, and what `neve config check` says."""

from __future__ import annotations

import pytest

from neve.direct import Writer
from neve.direct.check import checks
from neve.errors import ConfigError, StorageError
from tests.support.direct_lake import DirectLake


def on_s3tables(settings):
    catalog = {"type": "s3tables", "uri": "http://127.0.0.1:9", "warehouse": "arn:aws:s3tables:x"}
    return settings.model_copy(update={"catalog": settings.catalog.model_copy(update=catalog)})


def test_s3_tables_removes_unreferenced_files_so_that_accepting_is_refused(tmp_path):
    settings = on_s3tables(DirectLake(tmp_path).settings)
    with pytest.raises(ConfigError, match="S3 Tables removes files that no snapshot has"):
        Writer.open(settings)
    ((what, probe),) = checks(settings)
    assert what == "direct recovery"
    with pytest.raises(ConfigError, match="S3 Tables removes files that no snapshot has"):
        probe()


def test_a_function_with_records_on_its_own_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "telemetry")
    with pytest.raises(ConfigError, match="the disk of a function does not last"):
        Writer.open(DirectLake(tmp_path).settings)


def test_the_place_of_the_records_is_tried_and_left_as_it_was(tmp_path):
    lake = DirectLake(tmp_path)
    ((_, probe),) = checks(lake.settings)
    assert probe() == f"{lake.records} takes recovery records"
    assert list(lake.records.iterdir()) == []
    lake.records.rmdir()
    lake.records.write_text("in the way")
    with pytest.raises(StorageError):
        probe()
    refusing = lake.settings.direct.model_copy(update={"when_unavailable": "refuse"})
    assert list(checks(lake.settings.model_copy(update={"direct": refusing}))) == []
