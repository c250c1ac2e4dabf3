"""One gRPC connection, spoken to by h2's client: no socket, no buffer, a clock of its own."""

from __future__ import annotations

import asyncio
import gzip
import struct

import pyarrow as pa
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from neve import limits
from neve.buffer.payload import Codec
from neve.errors import UnavailableError
from neve.receive.spec import TokenSpec
from neve.signals import Signal
from tests.support.grpc_client import (
    DEADLINE_EXCEEDED,
    EXHAUSTED,
    INVALID,
    OK,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    GrpcClient,
    Receiving,
    framed,
    in_loop,
)
from tests.support.otlp_bodies import protobuf

BODY = protobuf(Signal.LOGS, "unit", 3)


def retry_seconds(answer):
    info = RetryInfo()
    assert answer.details.details[0].Unpack(info)
    return info.retry_delay.seconds


@pytest.mark.parametrize("signal", list(Signal))
@in_loop
async def test_an_export_is_stored_and_answered(signal):
    receiving = Receiving()
    client = GrpcClient(receiving)
    body = protobuf(signal, "x", 3)
    answer = await client.call(framed(body), signal.grpc_method)
    assert answer.headers == {":status": "200", "content-type": "application/grpc"}
    assert (answer.body, answer.trailers) == (framed(b""), {"grpc-status": "0"})
    assert receiving.sink.payloads == [body]
    assert receiving.handler.budget.used_bytes == 0
    assert len(receiving.calls) == 0


@pytest.mark.parametrize(
    ("encoding", "packed", "codec"),
    [
        ("gzip", gzip.compress(BODY), Codec.GZIP),
        ("zstd", pa.Codec("zstd").compress(BODY, asbytes=True), Codec.ZSTD),
    ],
)
@in_loop
async def test_compressed_messages_are_kept_as_they_came(encoding, packed, codec):
    receiving = Receiving()
    client = GrpcClient(receiving)
    answer = await client.call(framed(packed, compressed=True), grpc_encoding=encoding)
    assert answer.status == OK
    [(_, request)] = receiving.sink.requests
    assert (request.payload, request.codec) == (packed, codec)
    # Each message says by itself whether it is compressed.
    assert (await client.call(framed(BODY), grpc_encoding=encoding)).status == OK


@pytest.mark.parametrize(
    ("sent", "headers", "status"),
    [
        (b"", {}, INVALID),
        (framed(BODY)[:-1], {}, INVALID),
        (framed(BODY)[:4], {}, INVALID),
        (framed(BODY) * 2, {}, INVALID),
        (framed(b"\xff not protobuf"), {}, INVALID),
        (b"\x02" + framed(BODY)[1:], {}, INVALID),
        (framed(gzip.compress(BODY), compressed=True), {}, INVALID),
        (framed(b"no gzip", compressed=True), {"grpc_encoding": "gzip"}, INVALID),
        (framed(BODY), {"grpc_encoding": "snappy"}, UNIMPLEMENTED),
        (framed(BODY), {"path": "/x.Y/Export"}, UNIMPLEMENTED),
    ],
)
@in_loop
async def test_what_cannot_succeed_says_so(sent, headers, status):
    receiving = Receiving()
    client = GrpcClient(receiving)
    answer = await client.call(sent, **headers)
    assert (answer.status, answer.details.code) == (status, status)
    assert answer.message == answer.details.message
    assert answer.ended
    if status == UNIMPLEMENTED:
        assert answer.headers["grpc-accept-encoding"] == "identity,gzip,zstd"
    assert receiving.sink.requests == []
    assert sum(receiving.refused.values()) == 1
    # The connection goes on.
    assert (await client.call(framed(BODY))).status == OK
    assert receiving.handler.budget.used_bytes == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "application/json"}, "415"),
        ({"content_type": None}, "415"),
        ({"content_type": "application/grpc+json"}, "415"),
        ({"method": "GET"}, "405"),
    ],
)
@in_loop
async def test_what_is_not_grpc_gets_an_http_status(headers, status):
    receiving = Receiving()
    client = GrpcClient(receiving)
    answer = await client.call(framed(BODY), **headers)
    assert answer.headers == {":status": status}
    assert sum(receiving.refused.values()) == 1
    assert (await client.call(framed(BODY), content_type="application/grpc+proto")).status == OK


@in_loop
async def test_messages_in_pieces_of_any_size():
    receiving = Receiving()
    client = GrpcClient(receiving)
    stream_id = client.begin()
    sent = framed(BODY)
    for start in range(0, len(sent), 3):
        client.send(stream_id, sent[start : start + 3])
        # As it arrives, not as it is announced.
        assert receiving.handler.budget.used_bytes == min(start + 3, len(sent))
    client.h2.end_stream(stream_id)
    assert (await client.answer(stream_id)).status == OK
    assert receiving.sink.payloads == [BODY]
    assert receiving.handler.budget.used_bytes == 0


@pytest.mark.parametrize("step", [1, 3, 10, 1000])
@in_loop
async def test_padding_is_not_part_of_a_message(step):
    receiving = Receiving()
    client = GrpcClient(receiving)
    stream_id = client.begin()
    client.exchange()
    sent = framed(BODY)
    client.h2.send_data(stream_id, sent[:7], pad_length=9)
    client.h2.send_data(stream_id, sent[7:30], pad_length=0)
    client.h2.send_data(stream_id, b"", pad_length=3)
    client.h2.send_data(stream_id, sent[30:], pad_length=255, end_stream=True)
    data = client.h2.data_to_send()
    for start in range(0, len(data), step):
        client.connection.data_received(data[start : start + step])
    assert (await client.answer(stream_id)).status == OK
    assert receiving.sink.payloads == [BODY]


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\2\0\x08\0\0\0\1\5x",  # more padding than there is
        b"\0\0\1\0\0\0\0\0\3x",  # of a call that has not begun
        b"\0\0\1\0\0\0\0\0\0x",  # of the connection
        b"\0\0\1\0\0\0\0\0\2x",  # of a call of ours
    ],
)
@in_loop
async def test_data_against_the_rules_ends_the_connection(frame):
    receiving = Receiving()
    client = GrpcClient(receiving)
    client.begin()
    client.exchange()
    client.connection.data_received(frame)
    client.read()
    assert [code for _, code in client.goaways] == [ErrorCodes.PROTOCOL_ERROR]
    assert await client.closed()
    assert receiving.refused == {"protocol_error": 1}


@in_loop
async def test_data_after_the_end_of_a_message_is_not_kept():
    receiving = Receiving()
    receiving.sink.answers_at_once = False
    client = GrpcClient(receiving)
    stream_id = client.begin()
    client.h2.send_data(stream_id, framed(BODY), end_stream=True)
    client.exchange()
    client.connection.data_received(b"\0\0\1\0\0" + stream_id.to_bytes(4, "big") + b"x")
    assert receiving.handler.budget.used_bytes == len(framed(BODY))


@in_loop
async def test_long_messages_are_credited():
    receiving = Receiving()
    client = GrpcClient(receiving)
    body = protobuf(Signal.LOGS, "x" * 1000, 9_000)
    assert len(body) > 2 * limits.CONNECTION_WINDOW_BYTES
    stream_id = client.begin()
    client.send(stream_id, framed(body), end=True)
    assert (await client.answer(stream_id)).status == OK
    assert receiving.sink.payloads == [body]
    # Of calls that are refused, too.
    for _ in range(30):
        stream_id = client.begin("/unknown/Method")
        client.h2.send_data(stream_id, bytes(200_000))
        await client.answer(stream_id)


@in_loop
async def test_a_message_announced_too_long_is_refused_before_it_arrives():
    receiving = Receiving(max_request_bytes=1000)
    client = GrpcClient(receiving)
    stream_id = client.begin()
    client.send(stream_id, struct.pack(">BI", 0, 1001))
    answer = await client.answer(stream_id)
    assert (answer.status, receiving.refused) == (EXHAUSTED, {"too_large": 1})
    assert receiving.handler.budget.used_bytes == 0
    assert answer.reset == ErrorCodes.NO_ERROR


@in_loop
async def test_a_token_is_checked_before_any_byte_is_kept():
    receiving = Receiving(tokens=(TokenSpec("right"),))
    client = GrpcClient(receiving)
    # White space around a header is no reason to end the connection with all of its calls.
    headers_without_token = ({}, *({"authorization": f"Bearer{x}"} for x in ("", " ", " wrong ")))
    for headers in headers_without_token:
        stream_id = client.begin(**headers)
        answer = await client.answer(stream_id)
        assert answer.status == UNAUTHENTICATED
    assert receiving.refused == {"refused": 4}
    assert (await client.call(framed(BODY), authorization="Bearer right ")).status == OK


@in_loop
async def test_without_room_a_call_is_refused_at_once_and_its_bytes_are_dropped():
    receiving = Receiving(max_in_flight_bytes=100_000)
    holder, client = GrpcClient(receiving), GrpcClient(receiving)
    held = holder.begin()
    holder.send(held, framed(bytes(90_000))[:80_000])
    assert receiving.handler.budget.used_bytes == 80_000

    stream_id = client.begin()
    client.h2.send_data(stream_id, framed(bytes(40_000))[:16_000])
    client.h2.send_data(stream_id, bytes(16_000))
    answer = await client.answer(stream_id)
    assert (answer.status, retry_seconds(answer)) == (UNAVAILABLE, 2)
    assert receiving.refused == {"busy": 1}
    assert receiving.handler.budget.used_bytes == 80_000
    # What a client sends before it reads the answer is taken off the wire for ever.
    for _ in range(100):
        stream_id = client.begin()
        client.h2.send_data(stream_id, framed(bytes(40_000))[:16_000])
        client.h2.send_data(stream_id, bytes(16_000))
        assert (await client.answer(stream_id)).status == UNAVAILABLE
    assert receiving.handler.budget.used_bytes == 80_000

    holder.h2.reset_stream(held)
    holder.exchange()
    assert receiving.handler.budget.used_bytes == 0


@in_loop
async def test_a_stalled_message_makes_room_for_others():
    receiving = Receiving(max_in_flight_bytes=200_000)
    slow, fast, client = (GrpcClient(receiving) for _ in range(3))
    stalled, moving = slow.begin(), fast.begin()
    slow.send(stalled, framed(bytes(200_000))[:95_000])
    fast.send(moving, framed(bytes(200_000))[:30_000])
    receiving.clock.now += limits.STALL_SECONDS
    fast.send(moving, bytes(65_536))
    answer = await client.call(framed(BODY * 400))
    assert answer.status == OK
    evicted = await slow.answer(stalled)
    assert (evicted.status, retry_seconds(evicted)) == (DEADLINE_EXCEEDED, 2)
    assert receiving.refused == {"too_slow": 1}
    # The one that makes progress goes on.
    assert not fast.answers.get(moving)
    assert receiving.handler.budget.used_bytes == 95_536


@in_loop
async def test_a_stalled_message_makes_room_for_requests_over_http():
    receiving = Receiving(max_in_flight_bytes=200_000)
    client = GrpcClient(receiving)
    client.send(client.begin(), framed(bytes(200_000))[:150_000])
    share = receiving.handler.budget.share(lambda: None, receiving.clock.now)
    with pytest.raises(UnavailableError):
        share.receive(100_000, receiving.clock.now)
    receiving.clock.now += limits.STALL_SECONDS
    share.receive(100_000, receiving.clock.now)
    share.close()
    assert receiving.refused == {"too_slow": 1}
    assert receiving.handler.budget.used_bytes == 0


@in_loop
async def test_a_message_does_not_make_room_for_itself():
    receiving = Receiving(max_in_flight_bytes=200_000)
    slow, other = GrpcClient(receiving), GrpcClient(receiving)
    other.send(other.begin(), framed(bytes(200_000))[:100_000])
    stream_id = slow.begin()
    slow.send(stream_id, framed(bytes(200_000))[:60_000])
    receiving.clock.now += limits.STALL_SECONDS
    slow.send(stream_id, bytes(60_000))
    assert receiving.refused == {"too_slow": 1}
    assert receiving.handler.budget.used_bytes == 120_000


@in_loop
async def test_a_message_has_a_deadline():
    receiving = Receiving(request_timeout_seconds=30)
    client = GrpcClient(receiving)
    early = client.begin()
    client.send(early, framed(bytes(5000))[:4000])
    receiving.tick(20)
    late = client.begin()
    client.send(late, framed(BODY)[:10])
    receiving.tick(11)
    answer = await client.answer(early)
    assert (answer.status, retry_seconds(answer)) == (DEADLINE_EXCEEDED, 2)
    assert receiving.handler.budget.used_bytes == 10
    assert receiving.refused == {"too_slow": 1}
    # Bytes that were on their way are dropped; the other call and the connection go on.
    client.send(late, framed(BODY)[10:], end=True)
    assert (await client.answer(late)).status == OK


@in_loop
async def test_a_stored_message_has_no_deadline_of_ours():
    receiving = Receiving(request_timeout_seconds=30)
    receiving.sink.answers_at_once = False
    client = GrpcClient(receiving)
    stream_id = client.begin()
    client.h2.send_data(stream_id, framed(BODY), end_stream=True)
    client.exchange()
    await asyncio.sleep(0)
    receiving.tick(31)
    client.read()
    assert not client.answers.get(stream_id)


@pytest.mark.parametrize("where", ["sink", "senders"])
@in_loop
async def test_a_defect_of_ours_is_unavailable_and_logged(where, caplog, monkeypatch):
    receiving = Receiving()
    client = GrpcClient(receiving)
    if where == "sink":
        receiving.sink.error = RuntimeError("a defect")
    else:
        monkeypatch.setattr(receiving.handler.senders, "identify", lambda: None)
    answer = await client.call(framed(BODY))
    assert (answer.status, answer.message) == (UNAVAILABLE, "internal error")
    assert retry_seconds(answer) == 2
    assert "a gRPC call failed" in caplog.text
    assert receiving.refused == {"unavailable": 1}
    assert receiving.handler.budget.used_bytes == 0


@in_loop
async def test_an_error_with_any_text_can_be_read():
    receiving = Receiving()
    receiving.sink.error = UnavailableError("100 % näher\n", hint="wait")
    answer = await GrpcClient(receiving).call(framed(BODY))
    assert answer.headers["grpc-message"] == "100 %25 n%C3%A4her%0A (wait)"
    assert answer.details.message == answer.message == "100 % näher\n (wait)"


@in_loop
async def test_a_reset_call_gives_its_bytes_back():
    receiving = Receiving()
    client = GrpcClient(receiving)
    stream_id = client.begin()
    client.send(stream_id, framed(BODY)[:-1])
    client.h2.reset_stream(stream_id)
    client.exchange()
    assert (receiving.handler.budget.used_bytes, len(receiving.calls)) == (0, 0)


@in_loop
async def test_a_lost_connection_gives_its_bytes_back():
    receiving = Receiving()
    client = GrpcClient(receiving)
    client.send(client.begin(), framed(BODY)[:-1])
    client.transport.abort()
    assert await client.closed()
    assert (receiving.handler.budget.used_bytes, len(receiving.calls)) == (0, 0)
    assert receiving.connections.open == 0


@in_loop
async def test_calls_on_a_connection_are_bounded_and_can_be_sent_again():
    receiving = Receiving()
    client = GrpcClient(receiving)
    assert client.h2.remote_settings.max_concurrent_streams == limits.CALLS_PER_CONNECTION
    # As a client does that has not read our SETTINGS yet.
    client.h2.remote_settings._settings[SettingCodes.MAX_CONCURRENT_STREAMS][0] = 10_000
    streams = [client.begin() for _ in range(limits.CALLS_PER_CONNECTION + 1)]
    answer = await client.answer(streams[-1])
    assert answer.reset == ErrorCodes.REFUSED_STREAM
    assert receiving.refused == {"too_many_calls": 1}
    client.send(streams[0], framed(BODY), end=True)
    assert (await client.answer(streams[0])).status == OK
    assert (await client.call(framed(BODY))).status == OK


@in_loop
async def test_calls_in_all_are_bounded():
    receiving = Receiving(max_calls=3)
    clients = [GrpcClient(receiving) for _ in range(4)]
    streams = [client.begin() for client in clients]
    for client in clients:
        client.exchange()
    answer = await clients[3].answer(streams[3])
    assert (answer.status, retry_seconds(answer)) == (UNAVAILABLE, 2)
    assert receiving.refused == {"too_many_calls": 1}


@in_loop
async def test_a_call_that_is_reset_counts_until_it_is_stored():
    receiving = Receiving(max_calls=1)
    receiving.sink.answers_at_once = False
    client = GrpcClient(receiving)
    stream_id = client.begin()
    client.h2.send_data(stream_id, framed(BODY), end_stream=True)
    client.exchange()
    await asyncio.sleep(0)
    client.h2.reset_stream(stream_id)
    client.exchange()
    assert receiving.handler.budget.used_bytes == len(BODY)
    assert (await client.call(framed(BODY))).status == UNAVAILABLE


@in_loop
async def test_connections_are_counted_while_they_are_open():
    receiving = Receiving()
    client = GrpcClient(receiving)
    assert receiving.handler.counters.connections["grpc"] == 1
    client.connection.connection_lost(None)
    assert receiving.handler.counters.connections["grpc"] == 0
