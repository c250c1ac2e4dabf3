"""`neve serve` takes new tokens and certificates while it runs, and drops no connection."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import ssl
from contextlib import closing, contextmanager
from dataclasses import replace

import grpc
import pytest
import yaml

from neve.buffer.disk import DiskStore
from neve.signals import Signal
from tests.support.buffer_stores import payloads
from tests.support.certificates import make_certificates
from tests.support.command import neve_serve
from tests.support.otlp_bodies import protobuf
from tests.support.wait import until

OLD, NEW = "the-old-token-of-shop", "the-new-token-of-shop"
LOGS = Signal.LOGS


@pytest.fixture
def serving(tmp_path):
    with neve_serve(tmp_path, {"receive": {"tokens": [{"name": "shop", "token": OLD}]}}) as running:
        yield running


def connect(serving):
    return closing(http.client.HTTPConnection(serving.http, timeout=10))


def post(connection, token, body=b""):
    headers = {"content-type": "application/x-protobuf", "authorization": f"Bearer {token}"}
    connection.request("POST", LOGS.http_path, body, headers)
    response = connection.getresponse()
    response.read()
    return response.status


def export(channel, token, body=b""):
    """Return the gRPC status of a request."""
    call = channel.unary_unary(LOGS.grpc_method)
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        call(body, timeout=10, metadata=metadata)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def rewrite(serving, receive):
    """Change the `receive` section of neve.yaml."""
    settings = yaml.safe_load(serving.config.read_text())
    settings["receive"] |= receive
    serving.config.write_text(yaml.safe_dump(settings))


def hang_up(serving):
    os.kill(serving.process.pid, signal.SIGHUP)


def logged(serving, text):
    until(lambda: text in serving.process.log.read_text())


@pytest.mark.parametrize("notice", [hang_up, lambda _: None], ids=["SIGHUP", "the file changes"])
def test_a_token_is_rotated_on_open_connections(serving, notice):
    with connect(serving) as connection, grpc.insecure_channel(serving.grpc) as channel:
        connection.connect()
        socket_before = connection.sock
        assert (post(connection, OLD), post(connection, NEW)) == (200, 401)
        assert export(channel, OLD) is grpc.StatusCode.OK
        # Both, while clients change over; then the new one alone.
        both = [{"name": "shop", "token": token} for token in (OLD, NEW)]
        rewrite(serving, {"tokens": both})
        notice(serving)
        until(lambda: post(connection, NEW) == 200, seconds=30)
        assert post(connection, OLD) == 200
        rewrite(serving, {"tokens": both[1:]})
        notice(serving)
        until(lambda: post(connection, OLD) == 401, seconds=30)
        assert post(connection, NEW) == 200
        assert connection.sock is socket_before, "the connection was not dropped"
        assert export(channel, OLD) is grpc.StatusCode.UNAUTHENTICATED
        assert export(channel, NEW) is grpc.StatusCode.OK
    assert serving.process.stop() == 0


def test_all_workers_take_the_new_token(tmp_path):
    receive = {"workers": 2, "tokens": [OLD]}
    with neve_serve(tmp_path, {"receive": receive}) as serving:

        def statuses(token):
            """The answers on enough connections that each worker gets some of them."""
            answers = set()
            for _ in range(20):
                with connect(serving) as connection:
                    answers.add(post(connection, token))
            return answers

        assert statuses(OLD) == {200}
        rewrite(serving, {"tokens": [NEW]})
        hang_up(serving)
        until(lambda: statuses(OLD) == {401}, seconds=30)
        assert statuses(NEW) == {200}
        assert "needs a restart" not in serving.process.log.read_text()
        assert serving.process.stop(deadline_seconds=30) == 0


def test_a_retry_with_the_next_token_is_stored_once(serving):
    body = protobuf(LOGS, "sent again")
    with connect(serving) as connection:
        assert post(connection, OLD, body) == 200
        rewrite(serving, {"tokens": [{"name": "shop", "token": NEW}]})
        hang_up(serving)
        until(lambda: post(connection, NEW, body) == 200)
    assert serving.process.stop() == 0
    assert payloads(DiskStore(serving.buffer), LOGS.value) == [body]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("receive: {tokens: [", "malformed YAML at line 1"),
        ("receive: {tokens: ['']}", "receive.tokens.0: the token is empty"),
        # What an editor leaves for a moment before it writes.
        ("", "receive.tokens is empty; only a restart lets everybody in"),
        ("recieve: {}", "did you mean receive?"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_said_and_the_old_one_stays(
    serving, content, reason
):
    serving.config.write_text(content)
    hang_up(serving)
    logged(serving, reason)
    [line] = [line for line in serving.process.log.read_text().splitlines() if reason in line]
    assert "ERROR" in line
    assert "the previous one stays" in line
    with connect(serving) as connection:
        assert (post(connection, OLD), post(connection, "")) == (200, 401)


def test_what_needs_a_restart_is_named_and_the_tokens_hold_at_once(serving):
    tokens = [{"name": "shop", "token": NEW, "max_bytes_per_second": 10}]
    rewrite(serving, {"tokens": tokens, "max_request_bytes": 1000})
    hang_up(serving)
    logged(serving, "a change of receive.max_request_bytes needs a restart")
    with connect(serving) as connection:
        assert post(connection, OLD) == 401
        assert post(connection, NEW, protobuf(LOGS, "x" * 2000)) == 200
        # The rate is new, too, and that request was over it.
        assert post(connection, NEW) == 503


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    return [make_certificates(tmp_path_factory.mktemp("authority")) for _ in range(2)]


def install(authority, directory):
    """Put an authority's certificate of the server, its key and itself where neve.yaml says."""
    for source, name in (
        (authority.server_cert, "server.pem"),
        (authority.server_key, "server.key"),
        (authority.ca_cert, "clients.pem"),
    ):
        shutil.copy(source, directory / name)


def tls_connection(serving, authority, *, shows_certificate=False):
    context = ssl.create_default_context(cafile=authority.ca_cert)
    if shows_certificate:
        context.load_cert_chain(authority.client_cert, authority.client_key)
    port = int(serving.http.rpartition(":")[2])
    return closing(http.client.HTTPSConnection("localhost", port, context=context, timeout=10))


def accepts_https(serving, authority, **options):
    try:
        with tls_connection(serving, authority, **options) as connection:
            return post(connection, "") == 200
    except (ssl.SSLError, ConnectionError):
        return False


def accepts_grpc(serving, authority, *, shows_certificate=False):
    files = (authority.ca_cert, authority.client_key, authority.client_cert)
    contents = [file.read_bytes() for file in files]
    credentials = grpc.ssl_channel_credentials(*contents[: 3 if shows_certificate else 1])
    port = serving.grpc.rpartition(":")[2]
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        return export(channel, "") is grpc.StatusCode.OK


@contextmanager
def serving_tls(directory, **tls):
    paths = {"cert": "server.pem", "key": "server.key", **tls}
    with neve_serve(directory, {"receive": {"tls": paths}}) as running:
        yield running


def test_a_new_certificate_is_shown_on_both_ports(tmp_path, authorities):
    old, new = authorities
    install(old, tmp_path)
    with serving_tls(tmp_path) as serving, tls_connection(serving, old) as connection:
        assert post(connection, "") == 200
        socket_before = connection.sock
        assert accepts_grpc(serving, old)
        install(new, tmp_path)
        until(lambda: accepts_https(serving, new), seconds=30)
        assert not accepts_https(serving, old)
        assert accepts_grpc(serving, new)
        assert not accepts_grpc(serving, old)
        assert post(connection, "") == 200
        assert connection.sock is socket_before, "the connection was not dropped"


def test_a_certificate_that_does_not_fit_its_key_is_not_used(tmp_path, authorities):
    old, new = authorities
    install(old, tmp_path)
    with serving_tls(tmp_path) as serving:
        shutil.copy(new.server_key, tmp_path / "server.key")
        hang_up(serving)
        logged(serving, "receive.tls cannot be used")
        assert accepts_https(serving, old)
        assert accepts_grpc(serving, old)


def test_a_new_client_ca_lets_in_its_own_clients_only(tmp_path, authorities):
    old, new = authorities
    install(old, tmp_path)
    with serving_tls(tmp_path, client_ca="clients.pem") as serving:
        assert accepts_https(serving, old, shows_certificate=True)
        assert accepts_grpc(serving, old, shows_certificate=True)
        install(new, tmp_path)
        hang_up(serving)
        until(lambda: accepts_https(serving, new, shows_certificate=True))
        assert accepts_grpc(serving, new, shows_certificate=True)
        for accepts in (accepts_https, accepts_grpc):
            assert not accepts(serving, new)
            assert not accepts(
                serving,
                replace(new, client_cert=old.client_cert, client_key=old.client_key),
                shows_certificate=True,
            )
        rewrite(serving, {"tls": {"cert": "server.pem", "key": "server.key"}})
        hang_up(serving)
        logged(serving, "only a restart lets all clients in")
        assert not accepts_https(serving, new)
