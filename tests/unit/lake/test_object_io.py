"""A file that must be new, written by a request that was sent twice. A fake store."""

import pytest
from pyiceberg.io import load_file_io

from neve.lake.profile import s3_file_io
from tests.support.proxy import Response, running_proxy


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_file_that_is_there_at_the_second_attempt_is_ours_if_it_has_our_bytes(
    monkeypatch, is_ours
):
    monkeypatch.setattr("neve.lake.store_faults.FIRST_WAIT_SECONDS", 0)
    location, puts = "s3://lake/t/metadata/v1.json", []

    def answer(request, _forward):
        if request.method == "PUT":
            puts.append(request.headers["If-None-Match"])
            return Response(503 if len(puts) == 1 else 412, {}, b"")
        headers = {"Last-Modified": "Thu, 19 Nov 2026 23:00:00 GMT", "ETag": '"x"'}
        return Response(200, headers, b"ours" if is_ours else b"theirs")

    with running_proxy(0, [answer]) as proxy:
        properties = {
            "s3.endpoint": proxy.uri,
            "s3.access-key-id": "id",
            "s3.secret-access-key": "key",
            "s3.region": "us-east-1",
        }
        stream = load_file_io({**s3_file_io(location), **properties}).new_output(location).create()
        stream.write(b"ours")
        if is_ours:
            stream.close()
        else:
            with pytest.raises(FileExistsError):
                stream.close()
    assert puts == ["*", "*"]
