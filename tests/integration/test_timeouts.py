"""Servers that accept and never answer: everything ends, soon, with a line that says why."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
import yaml

import neve
from neve.buffer.buffer import open_buffer
from neve.buffer.spec import BufferSpec
from neve.cli.app import run
from neve.errors import CatalogError, Code, StorageError, UnknownOutcomeError
from neve.lake.catalog import open_catalog
from neve.lake.probe import probe_storage
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.lake.staging import Change, StagingTable
from neve.signals import Signal
from tests.support.lakes import (
    CLIENT,
    CLIENT_SECRET,
    postgres_settings,
    rest_settings,
    s3tables_settings,
)
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered
from tests.support.silent import running_silent_server
from tests.support.wait import until

# Bytes of the request that commits.
COMMITS = {"rest": b'"updates"', "postgres": b"COMMIT\x00"}
SHORT = {"connect_timeout_seconds": 1, "timeout_seconds": 1}
# For servers that do answer first, on a machine that has other things to do.
PATIENT = {"connect_timeout_seconds": 4, "timeout_seconds": 4}
SOON_SECONDS = 20  # a time-out or two, on a machine that has other things to do


def with_timeouts(settings, timeouts):
    catalog = settings.catalog.model_copy(update=timeouts)
    storage = settings.storage.model_copy(update=timeouts)
    return settings.model_copy(update={"catalog": catalog, "storage": storage})


@pytest.fixture
def silent():
    with running_silent_server() as server:
        yield server


@pytest.mark.parametrize("kind", ["rest", "oauth2", "s3tables", "postgres"])
def test_a_catalog_that_never_answers(kind, silent, postgres, s3):
    settings = {
        "rest": lambda: rest_settings(silent.uri, s3),
        "oauth2": lambda: rest_settings(silent.uri, s3, credential=f"{CLIENT}:{CLIENT_SECRET}"),
        "s3tables": lambda: s3tables_settings(silent.uri, s3),
        "postgres": lambda: postgres_settings(replace(postgres, port=silent.port), s3),
    }[kind]()
    started = time.monotonic()
    with pytest.raises(CatalogError) as raised:
        open_catalog(profile_named(with_timeouts(settings, SHORT), DEFAULT_CATALOG))
    assert time.monotonic() - started < SOON_SECONDS
    assert (raised.value.code, raised.value.retryable) == (Code.UNREACHABLE, True)
    assert (
        "no answer within 1 s" in raised.value.message or "timeout expired" in raised.value.message
    )
    assert silent.connections >= 1


@pytest.mark.parametrize("kind", ["rest", "postgres"])
def test_a_catalog_that_stops_answering(kind, rest_catalog, postgres, s3):
    """A read fails, a commit has an unknown outcome; afterwards both go on as if nothing was."""
    upstream = {"rest": rest_catalog.port, "postgres": postgres.port}[kind]
    with running_silent_server(upstream) as server:
        settings = {
            "rest": lambda: rest_settings(server.uri, s3),
            "postgres": lambda: postgres_settings(replace(postgres, port=server.port), s3),
        }[kind]()
        with neve.open(with_timeouts(settings, PATIENT)) as lake:
            namespace = f"silent_{uuid.uuid4().hex[:12]}"
            lake.catalog().create_namespace(namespace)
            created = lake.catalog().create_table(f"{namespace}.t", pa.schema([("a", pa.int64())]))
            table = StagingTable(lake.profile, created)
            server.silent.set()
            started = time.monotonic()
            with pytest.raises(CatalogError, match="no answer within 4 s"):
                table.refresh()
            server.silent.clear()
            table.refresh()
            server.silent_after = COMMITS[kind]
            with pytest.raises(UnknownOutcomeError):
                table.apply(Change(base_main=None))
            assert server.silent.is_set()
            assert time.monotonic() - started < SOON_SECONDS
            server.silent_after = None
            server.silent.clear()
            # The server had it all the time.
            until(lambda: table.refresh() or table.main_id is not None)
            table.apply(Change(base_main=table.main_id))


def test_commands_end_with_a_clear_line(silent, tmp_path, capfd):
    path = tmp_path / "neve.yaml"
    document = {
        "catalog": {"type": "rest", "uri": silent.uri, **SHORT},
        "buffer": {"location": str(tmp_path / "buffer")},
    }
    path.write_text(yaml.safe_dump(document))
    with open_buffer(
        BufferSpec(location=str(tmp_path / "buffer"), seal_seconds=0.01), ["logs"]
    ) as buffer:
        buffer.append("logs", buffered(protobuf(Signal.LOGS, "a", 1))).durable.result(10)
    commands = {("tables",): 1, ("consolidate", "--once"): 3, ("sql", "SELECT * FROM a.b"): 1}
    for command, status in commands.items():
        started = time.monotonic()
        assert run([*command, "-c", str(path)]) == status
        assert time.monotonic() - started < SOON_SECONDS
        assert "no answer within 1 s" in capfd.readouterr().err


def test_a_store_that_never_answers(silent, s3, postgres):
    storage = replace(s3, endpoint=silent.uri)
    settings = with_timeouts(postgres_settings(postgres, storage), SHORT)
    started = time.monotonic()
    with pytest.raises(StorageError, match="not writable"):
        probe_storage(profile_named(settings, DEFAULT_CATALOG))
    assert time.monotonic() - started < SOON_SECONDS


@pytest.mark.parametrize("kind", ["rest", pytest.param("postgres", marks=pytest.mark.soak)])
def test_spark_ends_as_well(embedded_lake, kind, rest_catalog, postgres, s3):
    """Python would say it first: what is silent here is silent only once the lake is open."""
    upstream = {"rest": rest_catalog.port, "postgres": postgres.port}[kind]
    with running_silent_server(upstream) as server:
        settings = {
            "rest": lambda: rest_settings(server.uri, s3),
            "postgres": lambda: postgres_settings(replace(postgres, port=server.port), s3),
        }[kind]()
        with neve.open(with_timeouts(settings, PATIENT)) as lake:
            namespace = f"silent_{uuid.uuid4().hex[:12]}"
            lake.sql(f"CREATE NAMESPACE {namespace}")
            lake.sql(f"CREATE TABLE {namespace}.t (a BIGINT) USING iceberg")
            server.silent.set()
            started = time.monotonic()
            with pytest.raises((CatalogError, StorageError)) as raised:
                lake.query(f"SELECT * FROM {namespace}.t")
            assert time.monotonic() - started < SOON_SECONDS
            assert raised.value.retryable
            server.silent.clear()
