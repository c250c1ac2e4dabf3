"""What goes wrong with real servers is told in one clear line, soon, and without secrets."""

from __future__ import annotations

import json
import sqlite3
import ssl
import time
from contextlib import closing
from dataclasses import replace

import pytest
import yaml

import neve
from neve.cli.app import run
from neve.config.reference import secrets
from neve.errors import CatalogError, Code, NeveError, StorageError
from neve.lake import profile
from neve.lake.catalog import open_catalog
from neve.lake.probe import probe_storage
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from tests.support.certificates import make_certificates
from tests.support.gates import BearerToken
from tests.support.lakes import (
    CLIENT,
    TOKEN,
    postgres_settings,
    rest_settings,
    s3tables_settings,
    sqlite_settings,
)
from tests.support.process import free_port
from tests.support.proxy import Response, error_response, running_proxy

SOON_SECONDS = 15  # a second or two, on a machine that has other things to do
WRONG = "wr0ng-secret"


def failure(call, settings):
    """Return the error a call raises, after a look at what every error must be."""
    started = time.monotonic()
    with pytest.raises(NeveError) as raised:
        call()
    assert time.monotonic() - started < SOON_SECONDS
    told = f"{raised.value.message} {raised.value.hint}"
    assert "\n" not in told
    assert raised.value.hint
    assert not [secret for secret in {WRONG, *secrets(settings)} if secret in told]
    return raised.value


def opening(settings):
    return failure(lambda: open_catalog(profile_named(settings, DEFAULT_CATALOG)), settings)


@pytest.fixture(scope="module")
def distrusted_proxy(rest_catalog, tmp_path_factory):
    made = make_certificates(tmp_path_factory.mktemp("tls"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.server_cert, made.server_key)
    with running_proxy(rest_catalog.port, tls=tls) as proxy:
        yield proxy


@pytest.mark.parametrize("kind", ["rest", "oauth2", "s3tables", "postgres"])
def test_a_catalog_that_is_not_there(kind, postgres, s3):
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    error = opening(
        {
            "rest": rest_settings(address, s3, token=TOKEN),
            "oauth2": rest_settings(address, s3, credential=f"{CLIENT}:{WRONG}"),
            "s3tables": s3tables_settings(address, s3),
            "postgres": postgres_settings(replace(postgres, port=port), s3),
        }[kind]
    )
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
    assert str(port) in error.message
    assert "cannot be reached" in error.message
    assert "Connection refused" in error.message


@pytest.mark.parametrize("kind", ["rest", "oauth2", "s3tables", "postgres"])
def test_credentials_that_are_refused(
    kind, token_proxy, oauth2_proxy, s3tables_proxy, postgres, s3
):
    error = opening(
        {
            "rest": rest_settings(token_proxy.uri, s3, token=WRONG),
            "oauth2": rest_settings(oauth2_proxy.uri, s3, credential=f"{CLIENT}:{WRONG}"),
            "s3tables": s3tables_settings(s3tables_proxy.uri, s3, secret_access_key=WRONG),
            "postgres": postgres_settings(replace(postgres, password=WRONG), s3),
        }[kind]
    )
    assert (error.code, error.retryable) == (Code.REFUSED, False)
    assert "refused the credentials" in error.message


@pytest.mark.parametrize("kind", ["rest", "oauth2", "s3tables"])
def test_a_certificate_that_is_not_trusted(kind, distrusted_proxy, s3):
    error = opening(
        {
            "rest": rest_settings(distrusted_proxy.uri, s3, token=TOKEN),
            "oauth2": rest_settings(distrusted_proxy.uri, s3, credential=f"{CLIENT}:{WRONG}"),
            "s3tables": s3tables_settings(distrusted_proxy.uri, s3),
        }[kind]
    )
    assert (error.code, error.retryable) == (Code.CERTIFICATE, False)
    assert "not trusted: unable to get local issuer certificate" in error.message


def test_an_answer_that_is_no_catalogs(rest_catalog, s3):
    def web_page(request, forward):
        return Response(200, {"Content-Type": "text/html"}, b"<html>Welcome</html>")

    def overload(request, forward):
        return error_response(503, "SlowDown", "try again later")

    with running_proxy(rest_catalog.port, [web_page]) as proxy:
        error = opening(rest_settings(proxy.uri, s3, token=TOKEN))
    assert "not of an Iceberg REST catalog" in error.message
    with running_proxy(rest_catalog.port, [overload]) as proxy:
        error = opening(rest_settings(proxy.uri, s3, token=TOKEN))
    assert (error.retryable, "try again later" in error.message) == (True, True)


def test_a_corrupt_catalog_file(tmp_path):
    (tmp_path / "catalog.db").write_bytes(b"not a database, whatever its name says" * 100)
    error = opening(sqlite_settings(tmp_path))
    assert isinstance(error, CatalogError)
    assert f"{tmp_path}/catalog.db is corrupt" in error.message


def test_a_locked_catalog_file(tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "SQLITE_WAIT_SECONDS", 0.1)
    settings = sqlite_settings(tmp_path)
    open_catalog(profile_named(settings, DEFAULT_CATALOG)).close()
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        error = opening(settings)
    assert (error.code, error.retryable) == (Code.LOCKED, True)
    assert f"{tmp_path}/catalog.db is locked" in error.message


def test_a_catalog_file_that_cannot_be_made(tmp_path):
    (tmp_path / "taken").write_text("a file where a directory should be")
    error = opening(sqlite_settings(tmp_path / "taken"))
    assert isinstance(error, StorageError)
    assert f"{tmp_path}/taken" in error.message


@pytest.mark.parametrize("kind", ["file in the way", "no such bucket", "wrong key", "no store"])
def test_a_warehouse_that_cannot_be_written(kind, tmp_path, postgres, s3):
    (tmp_path / "warehouse").write_text("in the way")
    settings = {
        "file in the way": sqlite_settings(tmp_path),
        "no such bucket": postgres_settings(postgres, s3, warehouse="s3://nowhere/lake"),
        "wrong key": postgres_settings(postgres, replace(s3, secret_key=WRONG)),
        "no store": postgres_settings(
            postgres, replace(s3, endpoint=f"http://127.0.0.1:{free_port()}")
        ),
    }[kind]
    error = failure(lambda: probe_storage(profile_named(settings, DEFAULT_CATALOG)), settings)
    assert isinstance(error, StorageError)
    assert f"{settings.catalog.warehouse} is not writable" in error.message


def test_spark_tells_what_fails_after_the_lake_was_opened(embedded_lake, rest_catalog, s3):
    token = BearerToken(TOKEN)
    accepted = [TOKEN]

    def revocable(request, forward):
        return replace(token, token=accepted[0])(request, forward)

    with running_proxy(rest_catalog.port, [revocable]) as proxy:
        settings = rest_settings(proxy.uri, s3, token=TOKEN)
        with neve.open(settings) as lake:
            lake.query("SHOW NAMESPACES")
            accepted[0] = "another"
            error = failure(lambda: lake.query("SHOW NAMESPACES"), settings)
    assert error.code is Code.REFUSED
    assert error.message == "Not authorized: the token is not valid"

    accepted[0] = TOKEN
    with running_proxy(rest_catalog.port, [revocable]) as proxy:
        settings = rest_settings(proxy.uri, s3, token=TOKEN)
        lake = neve.open(settings)
        lake.spark  # noqa: B018 - connects
    with lake:
        error = failure(lambda: lake.query("SHOW NAMESPACES"), settings)
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)


def test_spark_tells_that_the_warehouse_cannot_be_written(embedded_lake, postgres, s3):
    settings = postgres_settings(postgres, s3, warehouse="s3://nowhere/lake")
    with neve.open(settings) as lake:
        lake.sql("CREATE NAMESPACE IF NOT EXISTS unwritable")
        statement = "CREATE TABLE unwritable.events (id BIGINT) USING iceberg"
        error = failure(lambda: lake.sql(statement), settings)
    assert error.code is Code.STORAGE
    assert "bucket does not exist" in error.message


def test_config_check_reports_each_part(
    embedded_lake, token_proxy, distrusted_proxy, postgres, s3, tmp_path, capsys
):
    main = rest_settings(token_proxy.uri, s3, token=TOKEN)
    document = {
        "catalog": {"type": "rest", "uri": token_proxy.uri, "token": TOKEN},
        "catalogs": {
            "database": {
                "type": "postgres",
                "uri": postgres.uri(),
                "warehouse": f"s3://{s3.bucket}/checked",
            },
        },
        "storage": main.storage.model_dump() | {"secret_access_key": s3.secret_key},
        "spark": main.spark.model_dump(),
    }
    path = tmp_path / "neve.yaml"
    path.write_text(yaml.safe_dump(document))
    assert run(["config", "check", "--json", "-c", str(path)]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert {part["check"]: part["result"] for part in parts} == dict.fromkeys(
        ["catalog lake", "storage lake", "catalog database", "storage database", "spark"], "ok"
    )

    document["catalogs"]["distrusted"] = {"type": "rest", "uri": distrusted_proxy.uri}
    path.write_text(yaml.safe_dump(document))
    assert run(["config", "check", "--json", "-c", str(path)]) == 1
    out, err = capsys.readouterr()
    results = {part["check"]: part["result"] for part in json.loads(out)}
    assert results.pop("catalog distrusted") == "certificate"
    assert set(results.values()) == {"ok"}
    assert not [secret for secret in secrets(main) if secret in out + err]
