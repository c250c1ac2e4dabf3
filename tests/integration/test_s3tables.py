"""The stand-in for S3 Tables refuses what it must, or the behaviour suite proves nothing."""

from __future__ import annotations

import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from pyiceberg.exceptions import BadRequestError

from neve.errors import CatalogError
from tests.support.servers import REGION


@pytest.fixture
def send(s3, s3tables_proxy, s3tables_gate):
    """Sign a request, spoil it if told to, send it, and return the answer's status."""

    def send(method, path, body=None, *, key=s3.access_key, region=REGION, spoil=None):
        address = f"{s3tables_proxy.uri}/v1/{s3tables_gate.prefix}/{path}"
        request = AWSRequest(method, address, data=body, headers={"X-Client": "tests"})
        SigV4Auth(Credentials(key, s3.secret_key), "s3tables", region).add_auth(request)
        sent = {
            "method": method,
            "url": address,
            "data": body,
            "headers": dict(request.headers.items()),
        }
        if spoil:
            spoil(sent)
        return requests.request(**sent, timeout=10).status_code

    return send


def set_header(name, value):
    return lambda sent: sent["headers"].update({name: value})


def add_to(key, text):
    return lambda sent: sent.update({key: sent[key] + text})


def test_proper_signatures_pass(send):
    assert send("GET", "namespaces") == 200
    assert send("GET", "namespaces?pageToken=&pageSize=%2B5") == 200


@pytest.mark.parametrize(
    "spoil",
    [
        set_header("X-Client", "other"),
        set_header("X-Amz-Date", "20200101T000000Z"),
        set_header("Authorization", "Bearer token"),
        add_to("data", " "),
        add_to("url", "?a=b"),
        add_to("url", "/x"),
        lambda sent: sent.update(method="PUT"),
    ],
    ids=["header", "time", "scheme", "body", "query", "path", "method"],
)
def test_what_changes_after_signing_is_refused(send, spoil):
    assert send("POST", "namespaces", "{}", spoil=spoil) == 403


def test_strangers_are_refused(send):
    assert send("GET", "namespaces", key="stranger") == 403
    assert send("GET", "namespaces", region="us-west-1") == 403


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "transactions/commit", '{"table-changes": []}'),
        ("GET", "namespaces/one/views", None),
        ("POST", "namespaces/one/register", "{}"),
        ("POST", "namespaces", '{"namespace": ["one", "two"]}'),
        ("GET", "namespaces?parent=one", None),
        ("GET", "namespaces/one%1Ftwo/tables", None),
        ("DELETE", "namespaces/one/tables/two", None),
        ("POST", "namespaces/one/tables", '{"name": "two", "stage-create": true}'),
    ],
)
def test_what_s3_tables_lacks_is_refused(send, s3tables_gate, method, path, body):
    assert send(method, path, body) == 400
    # By the gate, that is: the catalog behind it may have reasons of its own.
    assert s3tables_gate.refused[-1].startswith(f"{method} /v1/{s3tables_gate.prefix}/{path}: ")


def test_both_engines_are_told_what_is_missing(s3tables_lake):
    with pytest.raises(BadRequestError, match="one level"):
        s3tables_lake.catalog().create_namespace(("one", "two"))
    s3tables_lake.catalog().create_namespace("limits")
    with pytest.raises(CatalogError, match="stage-create is not supported"):
        s3tables_lake.sql("CREATE TABLE limits.copied USING iceberg AS SELECT 1 AS id")
