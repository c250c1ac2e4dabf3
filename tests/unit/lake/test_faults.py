"""What libraries say of a failure, and not the names in it, decides what it means. No server."""

import psycopg2
import pytest
import sqlalchemy.exc

from neve.config import Settings
from neve.errors import Code
from neve.lake import sql
from neve.lake.faults import explain_fault
from neve.lake.profile import CatalogProfile

SERVER = 'connection to server at "127.0.0.1", port 5432 failed: '
ODD = "certificate, no password supplied, handshake"
AWS = "software.amazon.awssdk.services.s3.model.S3Exception: Slow (Service: S3, Status Code: 503)"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f'{SERVER}FATAL:  database "{ODD}" does not exist', Code.UNREACHABLE),
        (f'{SERVER}FATAL:  password authentication failed for user "{ODD}"', Code.REFUSED),
        (f'{SERVER}FATAL:  role "{ODD}" does not exist', Code.REFUSED),
        (f'{SERVER}server certificate for "db" does not match host name "x"', Code.CERTIFICATE),
        (f"{SERVER}SSL error: certificate verify failed", Code.CERTIFICATE),
    ],
)
def test_names_in_postgresqls_messages_decide_nothing(text, code):
    catalog = {"type": "postgres", "uri": "postgresql://h/d", "warehouse": "s3://b/w"}
    settings = Settings.model_validate({"catalog": catalog})
    profile = CatalogProfile("lake", settings.catalog, settings.storage)
    error = sqlalchemy.exc.OperationalError(None, None, psycopg2.OperationalError(text))
    assert explain_fault(profile, error).code is code


@pytest.mark.parametrize("path", ["s3://b/NoSuchKeyException/a", "file:/w/SSLHandshakeException/a"])
def test_names_of_files_in_javas_messages_decide_nothing(monkeypatch, path):
    causes = [f"org.apache.iceberg.exceptions.RuntimeIOException: Failed to read {path}", AWS]
    monkeypatch.setattr(sql.jvm, "messages", lambda _: causes)
    explained = sql.explain(Exception())
    assert (explained.code, explained.retryable) == (Code.STORAGE, True)
