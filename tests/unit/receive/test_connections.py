"""The bound on connections, and the limit it is derived from."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys

import pytest

from neve.limits import MAX_CONNECTIONS, MAX_TLS_CONNECTIONS, RESERVED_DESCRIPTORS
from neve.receive.connections import Connections, connection_limit, keep_ticking
from neve.receive.counters import Counters
from neve.receive.listener import Listener


@pytest.mark.parametrize(
    ("descriptors", "tls", "expected"),
    [
        (1 << 20, False, MAX_CONNECTIONS),
        (1 << 20, True, MAX_TLS_CONNECTIONS),
        (1024, True, 1024 - RESERVED_DESCRIPTORS),
        (128, False, 128 - RESERVED_DESCRIPTORS),
        (64, False, 32),
    ],
)
def test_connections_leave_descriptors_for_the_rest(descriptors, tls, expected):
    assert connection_limit(descriptors, tls=tls) == expected


def test_a_connection_too_many_is_refused_and_counted():
    counters = Counters()
    connections = Connections(counters, max_open=2)
    assert [connections.admit() for _ in range(3)] == [True, True, False]
    assert counters.refused_requests == {"too_many_connections": 1}
    connections.closed()
    assert connections.admit()


def test_the_limit_is_raised_as_far_as_the_system_allows():
    code = (
        "import resource; from neve.receive.connections import raise_descriptor_limit as up; up();"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = 2000 if hard == resource.RLIM_INFINITY else min(hard, 2000)

    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, allowed))

    shown = subprocess.run(
        [sys.executable, "-c", code], preexec_fn=lower, check=True, capture_output=True, text=True
    )
    assert shown.stdout.split() == [str(allowed)] * 2


def test_a_listener_counts_connections_before_their_protocol_is_made():
    class Silent(asyncio.Protocol):
        def connection_made(self, transport):
            connection = transport.get_extra_info("socket")
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            made.append(transport)

        def connection_lost(self, exc):
            connections.closed()

    made = []
    counters = Counters()
    connections = Connections(counters, max_open=2)

    async def scenario():
        listening = socket.create_server(("127.0.0.1", 0))
        address = listening.getsockname()
        listener = Listener(listening, Silent, connections)
        opened = [await asyncio.open_connection(*address) for _ in range(2)]
        reader, writer = await asyncio.open_connection(*address)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        writer.close()
        assert counters.refused_requests == {"too_many_connections": 1}
        assert len(made) == 2
        for _, opened_writer in opened:
            opened_writer.close()
        while connections.open:
            await asyncio.sleep(0.001)
        listener.close()
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection(*address)

    asyncio.run(scenario())


def test_a_connection_that_cannot_be_opened_is_counted_out():
    def fail():
        raise KeyError("a defect")

    connections = Connections(Counters(), max_open=1)

    async def scenario():
        listening = socket.create_server(("127.0.0.1", 0))
        listener = Listener(listening, fail, connections)
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
        assert connections.open == 0
        listener.close()

    asyncio.run(scenario())


class Clockwork:
    """A connection that may break when it is told the time."""

    def __init__(self, *, is_broken):
        self.is_broken = is_broken
        self.ticks = self.aborts = 0

    def tick(self, _now):
        self.ticks += 1
        if self.is_broken:
            raise KeyError("a defect")

    def abort(self):
        self.aborts += 1


def test_a_connection_that_breaks_its_clock_costs_no_other_its_turn():
    broken, sound = Clockwork(is_broken=True), Clockwork(is_broken=False)

    async def tick_twice():
        clock = asyncio.create_task(keep_ticking([broken, sound], 0))
        while sound.ticks < 2:
            await asyncio.sleep(0)
        clock.cancel()

    asyncio.run(tick_twice())
    assert broken.aborts == broken.ticks >= 2
    assert sound.aborts == 0
