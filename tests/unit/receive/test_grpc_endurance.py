"""What a gRPC connection puts up with, and for how long: idleness, age, floods, any bytes."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest
from h2 import events
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hyperframe.frame import ContinuationFrame, HeadersFrame, PingFrame, SettingsFrame

from neve import limits
from neve.signals import Signal
from tests.support.grpc_client import (
    LOGS,
    OK,
    GrpcClient,
    Receiving,
    framed,
    in_loop,
)
from tests.support.otlp_bodies import protobuf

BODY = protobuf(Signal.LOGS, "unit", 3)


@in_loop
async def test_a_client_without_a_window_gets_its_answer_later_or_never():
    receiving = Receiving(request_timeout_seconds=30)
    client = GrpcClient(receiving)
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2})
    client.exchange()
    first, second = client.begin(), client.begin()
    for stream_id in (first, second):
        client.h2.send_data(stream_id, framed(BODY), end_stream=True)
    client.exchange()
    await asyncio.sleep(0.01)
    client.read()
    assert client.answers[first].body == client.answers[second].body == framed(b"")[:2]
    client.h2.increment_flow_control_window(10, first)
    answer = await client.answer(first)
    assert (answer.body, answer.status) == (framed(b""), OK)
    receiving.tick(31)
    assert (await client.answer(second)).reset == ErrorCodes.CANCEL


@in_loop
async def test_a_client_that_does_not_read_is_not_read_from():
    receiving = Receiving()
    client = GrpcClient(receiving)
    client.connection.pause_writing()
    assert client.transport.is_reading_paused
    client.connection.resume_writing()
    assert not client.transport.is_reading_paused
    client.connection.pause_writing()
    client.transport.peer_reads = False
    receiving.tick(limits.PING_TIMEOUT_SECONDS + 1)
    assert await client.closed()


def pings(client):
    return [event for event in client.events if isinstance(event, events.PingReceived)]


@in_loop
async def test_a_silent_client_is_asked_whether_it_lives():
    receiving = Receiving()
    alive, dead = GrpcClient(receiving), GrpcClient(receiving)
    receiving.tick(limits.PING_SECONDS + 1)
    alive.read()
    assert len(pings(alive)) == 1
    alive.exchange()
    receiving.tick(limits.PING_TIMEOUT_SECONDS + 1)
    assert await dead.closed()
    assert not await alive.closed()
    assert receiving.refused == {"unresponsive": 1}


@in_loop
async def test_a_client_may_ping():
    client = GrpcClient(Receiving())
    for _ in range(limits.FRAME_BURST // 2):
        client.h2.ping(b"12345678")
    client.exchange()
    acks = [event for event in client.events if isinstance(event, events.PingAckReceived)]
    assert len(acks) == limits.FRAME_BURST // 2
    assert (await client.call(framed(BODY))).status == OK


@in_loop
async def test_an_idle_connection_is_closed():
    receiving = Receiving()
    client = GrpcClient(receiving)
    for _ in range(6):
        receiving.tick(limits.IDLE_SECONDS / 6)
        client.read()
        client.exchange()
    assert not client.goaways
    receiving.tick(1)
    client.read()
    assert client.goaways == [(2**31 - 1, ErrorCodes.NO_ERROR)]
    client.exchange()
    assert client.goaways[1] == (0, ErrorCodes.NO_ERROR)
    assert await client.closed()


@in_loop
async def test_an_old_connection_finishes_its_calls_and_closes():
    receiving = Receiving(request_timeout_seconds=1e9)
    client = GrpcClient(receiving)
    first = client.begin()
    client.send(first, framed(BODY)[:-1])
    client.connection._times._leave_at = receiving.clock.now + 10
    receiving.tick(11)
    # On its way when the client reads that it should go.
    second = client.begin()
    client.h2.send_data(second, framed(BODY), end_stream=True)
    client.exchange()
    assert client.goaways == [(2**31 - 1, ErrorCodes.NO_ERROR)]
    assert (await client.answer(second)).status == OK
    # The PING was answered: the calls up to here, and no others.
    client.exchange()
    assert client.goaways[1:] == [(second, ErrorCodes.NO_ERROR)]
    third = client.begin()
    assert (await client.answer(third)).reset == ErrorCodes.REFUSED_STREAM
    assert not await client.closed()
    client.send(first, framed(BODY)[-1:], end=True)
    assert (await client.answer(first)).status == OK
    assert await client.closed()


@in_loop
async def test_an_old_connection_does_not_live_for_ever():
    receiving = Receiving(request_timeout_seconds=1e9)
    client = GrpcClient(receiving)
    client.begin()
    client.exchange()
    client.connection.leave(5)
    receiving.tick(6)
    assert await client.closed()


@in_loop
async def test_a_client_that_leaves_gets_its_answers():
    receiving = Receiving()
    client = GrpcClient(receiving)
    stream_id = client.begin()
    client.exchange()
    # GOAWAY, as grpc-go sends it when its channel is closed.
    client.connection.data_received(b"\0\0\x08\x07\0\0\0\0\0" + bytes(8))
    client.send(stream_id, framed(BODY), end=True)
    assert (await client.answer(stream_id)).status == OK


def flood(frames):
    return b"".join(frame.serialize() for frame in frames)


def continuations():
    yield HeadersFrame(1, data=b"\0" * 10)
    for _ in range(100):
        yield ContinuationFrame(1, data=b"\0" * 10_000)


def settings():
    for _ in range(limits.FRAME_BURST + 10):
        yield SettingsFrame(0, settings={SettingCodes.INITIAL_WINDOW_SIZE: 100})


def ping_flood():
    for _ in range(limits.FRAME_BURST + 10):
        yield PingFrame(0, opaque_data=b"12345678")


@pytest.mark.parametrize(
    ("frames", "reason"),
    [(continuations, "headers_too_large"), (settings, "flood"), (ping_flood, "flood")],
)
@in_loop
async def test_floods_end_the_connection(frames, reason):
    receiving = Receiving()
    client = GrpcClient(receiving)
    client.connection.data_received(flood(frames()))
    client.read()
    assert [code for _, code in client.goaways] == [ErrorCodes.ENHANCE_YOUR_CALM]
    assert await client.closed()
    assert receiving.refused == {reason: 1}


@in_loop
async def test_rapid_resets_end_the_connection():
    receiving = Receiving()
    client = GrpcClient(receiving)
    opened = 0
    while not client.transport.is_closing():
        stream_id = client.begin()
        client.h2.reset_stream(stream_id)
        client.exchange()
        opened += 1
    assert opened <= limits.FRAME_BURST / limits.RESET_FRAMES + 1
    assert receiving.refused == {"flood": 1}
    assert await client.closed()
    assert (receiving.handler.budget.used_bytes, len(receiving.calls)) == (0, 0)


@in_loop
async def test_fragments_end_the_connection():
    receiving = Receiving()
    client = GrpcClient(receiving)
    stream_id = client.begin()
    client.send(stream_id, struct.pack(">BI", 0, 1_000_000))
    for _ in range(limits.FRAME_BURST):
        client.send(stream_id, b"\0")
    assert receiving.refused == {"flood": 1}
    assert await client.closed()
    assert receiving.handler.budget.used_bytes == 0


@in_loop
async def test_honest_calls_with_many_frames_go_on_for_ever():
    receiving = Receiving()
    client = GrpcClient(receiving)
    for number in range(limits.FRAME_BURST):
        client.h2.ping(b"bdp-ping")
        client.h2.increment_flow_control_window(10)
        assert (await client.call(framed(protobuf(Signal.LOGS, f"{number}")))).status == OK


@in_loop
async def test_a_frame_too_large_is_refused_before_it_is_held():
    receiving = Receiving()
    client = GrpcClient(receiving)
    client.connection.data_received((limits.FRAME_BYTES + 1).to_bytes(3, "big") + b"\0\0\0\0\0\1")
    client.read()
    assert [code for _, code in client.goaways] == [ErrorCodes.FRAME_SIZE_ERROR]
    assert receiving.refused == {"frame_too_large": 1}


@in_loop
async def test_headers_too_large_end_the_connection():
    receiving = Receiving()
    client = GrpcClient(receiving)
    client.begin(x="x" * limits.HEADER_LIST_BYTES)
    client.exchange()
    assert [code for _, code in client.goaways] == [ErrorCodes.ENHANCE_YOUR_CALM]
    assert await client.closed()


@in_loop
async def test_our_table_of_headers_stays_small_whatever_the_client_allows():
    client = GrpcClient(Receiving())
    client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: 2**32 - 1})
    client.exchange()
    assert client.connection._h2.encoder.header_table_size == limits.HEADER_TABLE_BYTES
    assert (await client.call(framed(BODY))).status == OK


@pytest.mark.parametrize("step", [1, 1000])
@in_loop
async def test_http1_is_told_about_the_other_port(step):
    receiving = Receiving()
    client = GrpcClient(receiving, greet=False)
    request = b"POST /v1/logs HTTP/1.1\r\nHost: h\r\n\r\n"
    for start in range(0, len(request), step):
        client.connection.data_received(request[start : start + step])
    written = bytes(client.transport.written)
    assert written.startswith(b"HTTP/1.1 503 ")
    assert b"receive.http" in written
    assert await client.closed()
    assert receiving.refused == {"not_http2": 1}


@in_loop
async def test_a_connection_that_says_nothing_is_closed():
    receiving = Receiving()
    client = GrpcClient(receiving, greet=False)
    receiving.tick(limits.HANDSHAKE_SECONDS - 1)
    assert not await client.closed()
    receiving.tick(2)
    assert await client.closed()


@in_loop
async def test_a_peer_that_does_not_read_cannot_keep_a_connection_open():
    receiving = Receiving()
    client = GrpcClient(receiving)
    client.transport.peer_reads = False
    client.connection.data_received(b"\xff" * 100)
    assert client.transport.is_closing()
    assert not await client.closed()
    receiving.tick(limits.CLOSE_SECONDS + 1)
    assert await client.closed()


def conversation():
    """Return the bytes of an honest client: four calls, some in pieces."""
    client = GrpcClient(Receiving(), greet=False)
    client.h2.initiate_connection()
    client.h2.ping(b"12345678")
    for size in (1, 100, 5000, 20_000):
        stream_id = client.begin(authorization="Bearer t", grpc_encoding="identity")
        sent = framed(protobuf(Signal.LOGS, "x" * size))
        client.h2.send_data(stream_id, sent[:10])
        for start in range(10, len(sent), 16_000):
            client.h2.send_data(stream_id, sent[start : start + 16_000])
        client.h2.end_stream(stream_id)
    client.h2.increment_flow_control_window(1000)
    return client.h2.data_to_send()


def mutated(honest, chance):
    data = bytearray(honest)
    for _ in range(chance.randrange(1, 6)):
        start = chance.randrange(len(data))
        end = min(len(data), start + chance.randrange(40))
        piece = chance.choice(
            [b"", chance.randbytes(chance.randrange(20)), bytes(data[start:end]) * 2]
        )
        data[start:end] = piece
    return bytes(data)


FEW, MANY = 400, 20_000


@pytest.mark.parametrize("rounds", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
@in_loop
async def test_any_bytes_leave_nothing_behind(rounds, caplog):
    chance = random.Random(11)
    honest = conversation()
    receiving = Receiving(max_request_bytes=100_000)
    for number in range(rounds):
        data = mutated(honest, chance) if number % 4 else chance.randbytes(200)
        if number % 4 == 1:
            data = honest[:24] + chance.randbytes(300)
        client = GrpcClient(receiving, greet=False)
        step = chance.choice([7, 500, 1 << 20])
        for start in range(0, len(data), step):
            client.connection.data_received(data[start : start + step])
        receiving.tick(0.1)
        await asyncio.sleep(0)
        client.transport.abort()
        # Those already complete are being stored.
        while len(receiving.calls):
            await asyncio.sleep(0)
        assert await client.closed()
        assert receiving.handler.budget.used_bytes == 0
        assert receiving.connections.open == 0
    assert "Traceback" not in caplog.text
    assert receiving.sink.requests, "some were whole"


@in_loop
async def test_the_conversation_itself_is_honest():
    receiving = Receiving(max_request_bytes=100_000)
    client = GrpcClient(receiving, greet=False)
    client.connection.data_received(conversation())
    while len(receiving.calls):
        await asyncio.sleep(0)
    assert len(receiving.sink.requests) == 4
    assert receiving.refused == {}


def test_the_method_is_otlps():
    assert LOGS == "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
