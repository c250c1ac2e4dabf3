"""The package for AWS Lambda: built, measured, and run from its directory alone."""

from __future__ import annotations

import zipfile

import pytest

from neve.signals import Signal
from tests.support.lakes import s3tables_settings, sqlite_settings
from tests.support.lambda_function import Answer, event
from tests.support.lambda_process import run_handler, variables
from tests.support.otlp_bodies import protobuf
from tools import lambda_package

IMPORT_SECONDS = 5.0


@pytest.mark.soak
def test_the_package_is_small_enough_and_stores_requests(tmp_path, s3, s3tables_proxy):
    package = tmp_path / "lambda"
    lambda_package.build(package)
    assert lambda_package.size_bytes(package) < lambda_package.MOST_BYTES
    assert lambda_package.import_seconds(package) < IMPORT_SECONDS
    # Deployed is the archive, so this is what runs.
    unpacked = tmp_path / "task"
    with zipfile.ZipFile(lambda_package.pack(package)) as archive:
        archive.extractall(unpacked)
    events = [event(body=protobuf(signal), signal=signal) for signal in Signal]
    further = {"NEVE_TELEMETRY__NAMESPACE": "from_package"}
    for settings in (sqlite_settings(tmp_path), s3tables_settings(s3tables_proxy.uri, s3)):
        environment = variables(settings, **further)
        done = run_handler(events, environment, tmp_path, package=unpacked)
        assert [Answer(answer).status for answer in done.answers] == [200, 200, 200]
        assert len(done.metrics) == 3
