"""A writer on an embedded catalog, and the lake it writes to."""

import pytest

import neve
from neve.config import Settings
from neve.direct import Writer
from tests.support.lakes import sqlite_settings


@pytest.fixture
def settings(tmp_path):
    def make(**sections) -> Settings:
        embedded = sqlite_settings(tmp_path).model_dump(exclude={"telemetry"}, by_alias=True)
        return Settings.model_validate({**embedded, **sections})

    return make


@pytest.fixture
def open_writer(settings):
    opened = []

    def make(observer=None, **sections) -> Writer:
        arguments = {"observer": observer} if observer else {}
        opened.append(Writer.open(settings(**sections), **arguments))
        return opened[-1]

    yield make
    for writer in opened:
        writer.close()


@pytest.fixture
def lake(settings):
    with neve.open(settings()) as opened:
        yield opened


@pytest.fixture
def rows(lake):
    """Read some columns of a table, as its readers see it now."""

    def read(table, *columns):
        scan = lake.catalog().load_table(f"otel.{table}").scan(selected_fields=columns or ("*",))
        return scan.to_arrow().to_pylist()

    return read
