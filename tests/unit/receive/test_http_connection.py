"""One HTTP connection: requests sent together, cut, mutated, and what must not follow them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.receive import http_connection
from neve.receive.http_connection import END_OF_HEAD, without_upgrade
from neve.receive.request_handler import RequestHandler
from neve.receive.spec import ReceiveSpec
from neve.signals import Signal
from tests.support.http_exchange import Connection, exchange, parse_answer, request_bytes
from tests.support.otlp_bodies import protobuf
from tests.support.sinks import ListSink

PROTOBUF = "application/x-protobuf"
SMALL = ReceiveSpec(max_request_bytes=1000)
VALID = protobuf(Signal.LOGS, records=3)


@pytest.fixture
def sink():
    return ListSink()


def stripped(header: bytes, body: bytes = b"") -> bytes:
    data = header + END_OF_HEAD + body
    return without_upgrade(data, len(header))


def test_the_offer_to_change_protocols_is_taken_out():
    header = b"POST / HTTP/1.1\r\nHost: h\r\nUPGRADE : h2c\r\nConnection: Upgrade"
    expected = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\r\nbody"
    assert stripped(header, b"body") == expected


def test_nothing_else_is():
    header = b"POST /upgrade HTTP/1.1\r\nX-Upgrade: yes\r\nUpgrade-Insecure-Requests: 1"
    body = b"\r\nUpgrade: h2c\r\n"
    assert stripped(header, body) == header + END_OF_HEAD + body


def run_connection(handler, *chunks):
    """Send bytes on one connection; return what was answered and whether it was closed."""

    async def run():
        connection = Connection(handler)
        await connection.send(*chunks)
        written, is_closed = connection.transport.written, connection.transport.is_closed
        await connection.end()
        return written, is_closed

    try:
        return asyncio.run(run())
    finally:
        handler.close()


def test_a_connection_whose_request_cannot_be_answered_is_cut(sink, monkeypatch, caplog):
    def fail(*_, **__):
        raise KeyError("a defect")

    monkeypatch.setattr(http_connection, "encode", fail)
    written, is_closed = run_connection(
        RequestHandler(SMALL, sink),
        *request_bytes("POST", "/v1/logs", {"content-type": PROTOBUF}, [VALID]),
    )
    assert (written, is_closed) == (b"", True)
    assert "cannot be answered" in caplog.text


def answers(written):
    found = []
    while answer := parse_answer(written):
        found.append(answer)
        written = answer.rest
    return found


def test_what_follows_a_last_answer_is_not_kept(sink):
    handler = RequestHandler(ReceiveSpec(), sink)
    refused = b"POST /nope HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx"
    behind = b"".join(request_bytes("POST", "/v1/logs", {"content-type": PROTOBUF}, [VALID]))
    written, _ = run_connection(handler, refused + behind)
    assert [answer.status for answer in answers(written)] == [404]
    assert sink.requests == []
    assert handler.budget.used_bytes == 0
    assert not handler.budget._arriving


def test_requests_sent_together_are_answered_in_their_order_and_bounded(sink):
    handler = RequestHandler(ReceiveSpec(), sink)
    bodies = [protobuf(Signal.LOGS, f"request {number}") for number in range(40)]
    sent = [
        b"".join(request_bytes("POST", "/v1/logs", {"content-type": PROTOBUF}, [body]))
        for body in bodies
    ]
    written, is_closed = run_connection(handler, b"".join(sent))
    assert [answer.status for answer in answers(written)] == [200] * 16
    assert answers(written)[-1].headers["connection"] == "close"
    assert is_closed
    # What was answered is stored, and nothing else is.
    assert sink.payloads == bodies[:16]
    assert handler.budget.used_bytes == 0


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["without an end", "with one"])
def test_a_head_has_16_kib(sink, end):
    handler = RequestHandler(ReceiveSpec(), sink)
    head = b"GET /healthz HTTP/1.1\r\nX: "
    written, _ = run_connection(handler, head + b"x" * (17 << 10) + end)
    assert [answer.status for answer in answers(written)] == [400]


def test_a_target_may_be_a_whole_address(sink):
    handler = RequestHandler(ReceiveSpec(), sink)
    headers = {"content-type": PROTOBUF}
    assert exchange(handler, "POST", "http://neve/v1/logs?x=y", headers, [VALID]).status == 200


REQUESTS = [
    b"".join(request_bytes("POST", "/v1/logs", {"content-type": PROTOBUF}, chunks))
    for chunks in ([VALID], [VALID[:5], VALID[5:]], [b"\xff"])
]


@given(
    pieces=st.lists(st.sampled_from(REQUESTS) | st.binary(max_size=60), max_size=4),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
)
def test_any_bytes_are_answered_or_cut_and_leave_nothing_behind(pieces, cuts, flips):
    sent = bytearray(b"".join(pieces))
    for place, value in flips:
        if place < len(sent):
            sent[place] = value
    places = sorted({0, *(cut for cut in cuts if cut < len(sent)), len(sent)})
    handler = RequestHandler(SMALL, ListSink())

    async def run():
        connection = Connection(handler)
        await connection.send(*(bytes(sent[a:b]) for a, b in pairwise(places)))
        await connection.end()
        return connection.transport.written

    rest = asyncio.run(run())
    handler.close()
    while answer := parse_answer(rest):
        assert answer.status in (100, 200, 400, 404, 405, 413, 415)
        rest = answer.rest
    assert handler.budget.used_bytes == 0
    assert handler.counters.connections["http"] == 0
