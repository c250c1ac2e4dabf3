"""Copies between the buckets of real servers that fail, lie, or are asked twice."""

from __future__ import annotations

import itertools
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from neve.errors import Code, CorruptionError, StorageError, UnsupportedError
from neve.lake import store_faults
from neve.lake.stored_files import PART_BYTES
from neve.move.copy import CopyJob, copy_files
from neve.move.rate_limit import RateLimit
from tests.support.file_stores import local_store, s3_store
from tests.support.process import Process, accepts_connections, free_port
from tests.support.proxy import DroppedConnection, Response, running_proxy
from tests.support.servers import S3Server, running_s3

LARGE = PART_BYTES + 7


@pytest.fixture(scope="module")
def second_s3(tmp_path_factory):
    """Another server, with another login."""
    with running_s3(tmp_path_factory.mktemp("second")) as server:
        yield server


@pytest.fixture(scope="module")
def source(s3, tmp_path_factory):
    """A store, a prefix in it, and what lies below: small files and a large one."""
    directory = tmp_path_factory.mktemp("source")
    prefix = f"s3a://{s3.bucket}/{directory.name}"
    contents = {f"{number} ü%2F+": b"%d" % number * 99 for number in range(25)}
    contents["large"] = (bytes(range(251)) * (LARGE // 251 + 1))[:LARGE]
    (directory / "large").write_bytes(contents["large"])
    with s3_store(s3) as store, local_store() as files:
        for name in list(contents)[:-1]:
            store.write_new(f"{prefix}/{name}", contents[name])
        store.copy_in(files, str(directory / "large"), f"{prefix}/large")
        yield store, prefix, contents


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(store_faults, "FIRST_WAIT_SECONDS", 0.01)


class EveryTenth:
    """A gate that fails every tenth request, before or after it was carried out."""

    def __init__(self) -> None:
        self._count = itertools.count(1)
        self._ways = itertools.cycle([self._refuse, self._lose_answer, self._throttle])
        self._lock = threading.Lock()
        self.failed = 0

    def __call__(self, request, forward):
        with self._lock:
            way = next(self._ways) if next(self._count) % 10 == 0 else None
            self.failed += way is not None
        return way(request, forward) if way else forward(request)

    def _refuse(self, request, forward):
        return Response(500, body=b"<Error><Code>InternalError</Code></Error>")

    def _throttle(self, request, forward):
        return Response(503, body=b"<Error><Code>SlowDown</Code></Error>")

    def _lose_answer(self, request, forward):
        forward(request)
        raise DroppedConnection


def proxied(server: S3Server, *gates):
    return running_proxy(urlsplit(server.endpoint).port, gates)


def copy(jobs, source, target, noted=None):
    done = {} if noted is None else noted
    return copy_files(
        jobs,
        source,
        target,
        done=lambda job, copied: done.__setitem__(job.target, copied.checksum),
        already=dict(done),
        files_at_once=8,
        limit=RateLimit(None),
    )


def jobs_to(bucket, name, prefix, contents):
    return [
        CopyJob(f"{prefix}/{file}", f"s3://{bucket}/{name}/{file}", len(content))
        for file, content in contents.items()
    ]


def test_two_servers_that_fail_every_tenth_request(s3, second_s3, source, tmp_path):
    _, prefix, contents = source
    jobs = jobs_to(second_s3.bucket, tmp_path.name, prefix, contents)
    gates = EveryTenth(), EveryTenth()
    with (
        proxied(s3, gates[0]) as near,
        proxied(second_s3, gates[1]) as far,
        s3_store(s3, near.uri) as near_store,
        s3_store(second_s3, far.uri) as far_store,
    ):
        noted = {}
        assert copy(jobs, near_store, far_store, noted).files == len(contents)
        again = copy(jobs, near_store, far_store)
    assert again.existing_files == len(contents)
    assert min(gate.failed for gate in gates) >= 3
    with s3_store(second_s3) as target:
        listed = target.list_sizes(f"s3://{second_s3.bucket}/{tmp_path.name}")
        assert listed == {job.target: job.size for job in jobs}
        for job in jobs:
            assert target.read(job.target) == contents[job.target.rpartition("/")[2]]
            assert target.checksum(job.target) == noted[job.target]


def test_inside_one_store_no_bytes_pass_through_here(s3, source, tmp_path):
    _, prefix, contents = source
    sent = []

    def count(request, forward):
        answer = forward(request)
        sent.append(len(request.body) + (len(answer.body) if request.method == "GET" else 0))
        return answer

    with proxied(s3, count) as proxy, s3_store(s3, proxy.uri) as store:
        job = CopyJob(f"{prefix}/large", f"s3://{s3.bucket}/{tmp_path.name}/copy ü%2F+", None)
        assert copy([job], store, store).bytes == len(contents["large"])
        assert sum(sent) < 10_000
        assert store.read(job.target) == contents["large"]
        assert copy([job], store, store).existing_files == 1


@pytest.mark.parametrize("inside", [False, True])
def test_an_upload_whose_last_answer_is_lost_is_complete(s3, second_s3, source, tmp_path, inside):
    _, prefix, contents = source
    lost = []

    def lose(request, forward):
        if request.method != "POST" or "uploadId" not in request.query:
            return forward(request)
        # This server answers again as before, others do not know the upload any more.
        if request.target in lost:
            return Response(404, body=b"<Error><Code>NoSuchUpload</Code></Error>")
        answer = forward(request)
        if lost:
            return answer
        lost.append(request.target)
        raise DroppedConnection

    server = s3 if inside else second_s3
    with (
        proxied(server, lose) as proxy,
        s3_store(server, proxy.uri) as target,
        s3_store(s3, proxy.uri if inside else None) as near,
    ):
        path = f"s3://{server.bucket}/{tmp_path.name}/x"
        assert target.copy_in(near, f"{prefix}/large", path).existed
        assert len(lost) == 1
        assert target.read(path) == contents["large"]


def test_two_copies_at_once_make_one_file(s3, second_s3, source, tmp_path):
    store, prefix, contents = source
    jobs = jobs_to(second_s3.bucket, tmp_path.name, prefix, contents)
    with s3_store(second_s3) as target:
        results = []
        threads = [
            threading.Thread(target=lambda: results.append(copy(jobs, store, target)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [result.files for result in results] == [len(jobs)] * 2
        assert target.read(jobs[-1].target) == contents["large"]


def test_a_damaged_source_is_refused(s3, source, tmp_path):
    """Its ETag says what was written once."""
    _, prefix, _ = source

    def damage(request, forward):
        answer = forward(request)
        if request.method == "GET" and "/7" in request.path:
            return replace(answer, body=b"x" + answer.body[1:])
        return answer

    with (
        proxied(s3, damage) as proxy,
        s3_store(s3, proxy.uri) as damaged,
        local_store() as target,
    ):
        damaged.read(f"{prefix}/8 ü%2F+")
        with pytest.raises(CorruptionError, match=r"7 ü%2F\+ has other bytes"):
            target.copy_in(damaged, f"{prefix}/7 ü%2F+", str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("name", ["7 ü%2F+", "large"])
def test_what_is_damaged_on_its_way_is_sent_again(second_s3, source, tmp_path, name):
    store, prefix, contents = source
    damaged = []

    def damage(request, forward):
        if request.method == "PUT" and len(damaged) < 2:
            damaged.append(request)
            return forward(replace(request, body=b"x" + request.body[1:]))
        return forward(request)

    with proxied(second_s3, damage) as proxy, s3_store(second_s3, proxy.uri) as target:
        path = f"s3://{second_s3.bucket}/{tmp_path.name}/x"
        target.copy_in(store, f"{prefix}/{name}", path)
        assert len(damaged) == 2
        assert target.read(path) == contents[name]


def test_tags_that_are_no_checksums_are_settled_by_reading(second_s3, source, tmp_path):
    """As those of objects that KMS encrypts."""
    store, prefix, contents = source
    reads = []

    def hide(request, forward):
        answer = forward(request)
        reads.extend([request.path] * (request.method == "GET"))
        headers = {name: value for name, value in answer.headers.items() if name != "Etag"}
        return replace(answer, headers={**headers, "ETag": f'"{"0" * 32}"'})

    with proxied(second_s3, hide) as proxy, s3_store(second_s3, proxy.uri) as target:
        for name in ("7 ü%2F+", "8 ü%2F+"):
            path = f"s3://{second_s3.bucket}/{tmp_path.name}/{name}"
            target.copy_in(store, f"{prefix}/{name}", path)
        assert len(reads) == 1
        assert target.read(path) == contents["8 ü%2F+"]


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(400, "ExpiredToken", "credentials have expired"), (403, "AccessDenied", "was refused")],
)
def test_a_refusal_is_told_at_once_without_secrets(s3, source, tmp_path, status, code, words):
    _, prefix, _ = source
    asked = []

    def refuse(request, forward):
        asked.append(request)
        body = (
            f"<Error><Code>{code}</Code><Message>No.</Message><AWSAccessKeyId>KEY</AWSAccessKeyId>"
        )
        return Response(status, {"Content-Type": "application/xml"}, body.encode() + b"</Error>")

    with (
        proxied(s3, refuse) as proxy,
        s3_store(s3, proxy.uri) as store,
        local_store() as target,
        pytest.raises(StorageError, match=words) as error,
    ):
        target.copy_in(store, f"{prefix}/7 ü%2F+", str(tmp_path / "x"))
    assert error.value.code is Code.REFUSED
    assert len(asked) == 1
    assert not [word for word in ("KEY", s3.access_key, s3.secret_key) if word in str(error.value)]


def test_a_server_that_ignores_the_condition_is_refused(tmp_path):
    port = free_port()
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    rclone = Path(sys.executable).with_name("rclone")
    options = ("--addr", f"127.0.0.1:{port}", "--auth-key", "key,secretsecret")
    server = Process(
        "rclone", [rclone, "serve", "s3", *options, tmp_path / "root"], tmp_path / "rclone.log"
    )
    try:
        server.wait_until(lambda: accepts_connections(port))
        endpoint = S3Server(f"http://127.0.0.1:{port}", "bucket", "key", "secretsecret")
        with s3_store(endpoint) as store:
            with pytest.raises(UnsupportedError, match="ignores If-None-Match"):
                store.check_conditional_put("s3://bucket/t")
            assert store.list_sizes("s3://bucket/t") == {}
    finally:
        server.stop()


def test_a_server_that_is_not_there_is_said_so(tmp_path):
    nowhere = S3Server(f"http://127.0.0.1:{free_port()}", "bucket")
    with s3_store(nowhere) as store, pytest.raises(StorageError, match="s3://bucket/x") as error:
        store.read("s3://bucket/x")
    assert error.value.retryable
    assert error.value.hint
