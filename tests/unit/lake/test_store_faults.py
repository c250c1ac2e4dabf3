"""Answers of stores are judged by status and code, whatever a file is called. Real clients."""

from __future__ import annotations

import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSelector, S3FileSystem

from neve.errors import Code, NotFoundError, StorageError
from neve.lake.local_faults import storage_fault
from neve.lake.object_access import ObjectAccess
from neve.lake.object_files import ObjectFiles
from neve.lake.profile import profiles
from neve.lake.range_reads import FileRange, read_ranges
from neve.lake.s3_files import S3Files
from neve.lake.s3_store import s3_store
from neve.lake.store_faults import explain
from tests.support.lakes import sqlite_settings
from tests.support.proxy import Response, running_proxy

# All that ever decided by text, in one name.
ODD = (
    "t/404/http_status=403/AccessDenied ExpiredToken NoSuchBucket InvalidRange 416 timeout/"
    " - Server returned non-2xx status code: 404 Not Found: /AWS Error ACCESS_DENIED during x "
    "operation: /x.parquet"
)


class Answers:
    """Answers each request with one status and code."""

    status, code = 200, ""

    def __call__(self, request, _forward):
        told = f"<Code>{self.code}</Code><Message>no</Message><Key>{ODD}</Key>"
        body = f"<Error>{told}</Error>".encode() if self.code and request.method != "HEAD" else b""
        return Response(self.status, {}, body)


@pytest.fixture(scope="module")
def server():
    answers = Answers()
    with running_proxy(0, [answers]) as proxy:
        answers.uri = proxy.uri
        yield answers


@pytest.fixture(scope="module")
def access(server):
    return ObjectAccess(server.uri, "us-east-1", True, "id", "key", None, 5, 5)


@pytest.fixture(scope="module")
def requests(server, access):
    """One request of each client that can fail, under the odd name."""
    objects, files = ObjectFiles(s3_store("lake", access)), S3Files("lake", access)
    arrow = S3FileSystem(
        access_key="id",
        secret_key="key",
        endpoint_override=server.uri.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
    )
    return {
        "obstore get": lambda: objects.get(ODD, 1),
        "obstore head": lambda: objects.facts(ODD),
        "obstore put": lambda: objects.put_new(ODD, b""),
        "obstore list": lambda: list(objects.files(ODD + "/")),
        "obstore delete": lambda: objects.delete([ODD]),
        "botocore get": lambda: files.get("a//" + ODD, 1),
        "botocore head": lambda: files.facts("a//" + ODD),
        "botocore list": lambda: list(files.files(ODD)),
        "pyarrow head": lambda: arrow.open_input_file("lake/" + ODD),
        "pyarrow list": lambda: arrow.get_file_info(FileSelector("lake/" + ODD)),
    }


def fail(request):
    try:
        request()
    except Exception as error:  # noqa: BLE001 - what each client raises is what is tested
        return error
    raise AssertionError("the request succeeded")


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, "SlowDown"), (503, ""), (500, "InternalError"), (429, ""), (400, "BadDigest")],
)
def test_what_may_pass_is_tried_again_whatever_the_file_is_called(server, requests, status, code):
    server.status, server.code = status, code
    for client, request in requests.items():
        # An answer to HEAD has no body, and so no code.
        if status != 400 or "head" not in client:
            explained = explain("cannot read", ODD, fail(request))
            assert (client, explained.retryable, explained.code) == (client, True, Code.STORAGE)


@pytest.mark.parametrize(
    ("status", "code", "wanted"),
    [
        (403, "AccessDenied", Code.REFUSED),
        (401, "", Code.REFUSED),
        (400, "ExpiredToken", Code.REFUSED),
        (400, "InvalidRequest", Code.STORAGE),
        (404, "NoSuchBucket", Code.STORAGE),
        (501, "NotImplemented", Code.STORAGE),
    ],
)
def test_a_refusal_is_final(server, requests, status, code, wanted):
    server.status, server.code = status, code
    for client, request in requests.items():
        if "list" in client or (status != 404 and "head" not in client):
            explained = explain("cannot read", ODD, fail(request))
            assert (client, explained.retryable, explained.code) == (client, False, wanted)


def test_a_file_that_is_not_there_is_missing(server, requests):
    server.status, server.code = 404, "NoSuchKey"
    for client in ("obstore get", "botocore get", "pyarrow head"):
        assert isinstance(explain("", ODD, fail(requests[client])), NotFoundError)


@pytest.mark.parametrize(("status", "is_failure"), [(416, False), (503, True)])
def test_only_the_status_says_that_a_file_ends_before_a_range(
    server, access, monkeypatch, status, is_failure
):
    server.status, server.code = status, ""
    monkeypatch.setattr("neve.lake.store_faults.FIRST_WAIT_SECONDS", 0)
    properties = {
        "s3.endpoint": access.endpoint,
        "s3.access-key-id": "id",
        "s3.secret-access-key": "key",
        "s3.region": "us-east-1",
    }
    wanted = FileRange("s3://lake/t/InvalidRange 416 /x", 0, 1)
    if is_failure:
        with pytest.raises(StorageError):
            list(read_ranges(properties, [wanted]))
    else:
        assert list(read_ranges(properties, [wanted])) == [(wanted, b"")]


def test_a_catalogs_store_is_judged_the_same(server, requests, tmp_path):
    profile = profiles(sqlite_settings(tmp_path))["lake"]
    for status, retryable in ((503, True), (400, False)):
        server.status, server.code = status, ""
        for client in ("pyarrow head", "pyarrow list"):
            assert storage_fault(profile, fail(requests[client])).retryable is retryable
    # Of this machine, nothing passes by itself.
    local = OSError(
        28, "No space left on device", "/timeout/AWS Error SLOW_DOWN during x operation"
    )
    assert not storage_fault(profile, local).retryable
    assert storage_fault(profile, TimeoutError("no answer")).retryable
