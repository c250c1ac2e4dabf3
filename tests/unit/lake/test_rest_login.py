"""A table of a REST catalog that is kept for long: the login to its store is renewed in time."""

import json
import time
from dataclasses import dataclass, field

import pytest

import neve
from neve.lake.json_table import json_table
from tests.support.lakes import rest_settings
from tests.support.proxy import Response, json_response, running_proxy
from tests.support.servers import S3Server
from tests.support.table_documents import TableHistory


@dataclass
class Server:
    """A catalog of one table that hands out a new login with each answer that has metadata."""

    history: TableHistory
    logins: int = 0
    statuses: list = field(default_factory=list)

    def __call__(self, request, _forward):
        if request.path.endswith("/config"):
            return json_response(200, {"defaults": {}, "overrides": {}})
        if request.path.endswith("/namespaces"):
            return json_response(200, {"namespaces": []})
        etag = f'"{self.history.next_id}"'
        if request.method == "POST":
            self.history.append()
            return self._answer()
        if request.headers.get("If-None-Match") == etag:
            self.statuses.append(304)
            return Response(304, {"ETag": etag})
        self.logins += 1
        self.statuses.append(200)
        return self._answer({"s3.session-token": f"login {self.logins}"})

    def _answer(self, config=None):
        metadata = self.history.metadata()
        answer = {
            "metadata-location": metadata.metadata_location,
            "metadata": json.loads(json.dumps(metadata.document)),
            "config": config or {},
        }
        headers = {"ETag": f'"{self.history.next_id}"'}
        response = json_response(200, answer)
        return Response(200, {**response.headers, **headers}, response.body)


@pytest.fixture
def server():
    history = TableHistory("s3://lake/orders")
    history.append()
    return Server(history)


@pytest.fixture
def later(monkeypatch):
    """Let time pass."""
    real, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + passed[0])

    def pass_seconds(seconds):
        passed[0] += seconds

    return pass_seconds


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_table_that_nobody_else_changes_gets_a_new_login(server, later, is_busy):
    """A server answers 304 also to the ETag of our own last commit."""
    with running_proxy(0, [server]) as proxy:
        settings = rest_settings(proxy.uri, S3Server("http://127.0.0.1:1", "lake"))
        with neve.open(settings) as lake:
            table = json_table(lake.profile, lake.catalog(), ("sales", "orders"))
            table.refresh()
            for _ in range(10):
                if is_busy:
                    table.commit("main", [], "a commit")
                table.refresh()
                later(60)
            assert server.statuses.count(304) > 5
            # Of a login of an hour, and of the shortest there is.
            later(900)
            table.refresh()
            assert table.io.properties["s3.session-token"] == f"login {server.logins}"
            assert server.statuses[-1] == 200


def test_metadata_is_read_once_after_a_commit_whose_answer_has_no_etag(server, monkeypatch):
    """The specification names none there: the next answer gives it."""
    make, made = server.history.metadata, {}

    def one_file_of_each_version():
        if server.history.next_id not in made:
            made[server.history.next_id] = make()
        return made[server.history.next_id]

    monkeypatch.setattr(server.history, "metadata", one_file_of_each_version)

    def without_etag_of_commits(request, forward):
        answer = server(request, forward)
        return Response(200, {}, answer.body) if request.method == "POST" else answer

    with running_proxy(0, [without_etag_of_commits]) as proxy:
        settings = rest_settings(proxy.uri, S3Server("http://127.0.0.1:1", "lake"))
        with neve.open(settings) as lake:
            table = json_table(lake.profile, lake.catalog(), ("sales", "orders"))
            table.refresh()
            table.commit("main", [], "a commit")
            committed = table.metadata
            for _ in range(3):
                table.refresh()
            assert table.renewed().metadata is committed
            assert server.statuses == [200, 200, 304, 304, 304]
            server.history.append()
            table.refresh()
            assert server.statuses[-1] == 200
            assert table.metadata.metadata_location != committed.metadata_location


def test_metadata_of_a_server_without_etags_stays_the_same_object(server, monkeypatch):
    """So that nothing is made of it again; the server has sent it, all the same."""
    later, present = server.history.metadata(), server.history.metadata()

    def without_etag(request, forward):
        answer = server(request, forward)
        headers = {name: value for name, value in answer.headers.items() if name != "ETag"}
        return Response(answer.status, headers, answer.body)

    with running_proxy(0, [without_etag]) as proxy:
        settings = rest_settings(proxy.uri, S3Server("http://127.0.0.1:1", "lake"))
        with neve.open(settings) as lake:
            monkeypatch.setattr(server.history, "metadata", lambda: present)
            table = json_table(lake.profile, lake.catalog(), ("sales", "orders"))
            table.refresh()
            first = table.metadata
            again = table.renewed()
            assert again.metadata is first
            assert again.io.properties["s3.session-token"] == "login 2"
            monkeypatch.setattr(server.history, "metadata", lambda: later)
            changed = again.renewed()
            assert again.metadata is first
            assert changed.metadata.metadata_location == later.metadata_location
            assert server.statuses == [200, 200, 200]
