"""The receiver as child processes of this one, which share its ports."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from neve.config.address import Address, parse_address
from neve.observe.summing import MetricSums, Scrape
from neve.receive.ports import reserve, warn_if_anyone_can_send
from neve.receive.spec import receive_spec
from neve.service.supervise import RUN, Supervisor

if TYPE_CHECKING:
    from neve.config import Settings

ASK_SECONDS = 5.0
# The workers' own metrics and health: on any free port of this machine, for this process to ask.
OBSERVE = {"NEVE_OBSERVE__HTTP": "127.0.0.1:0"}
# Each worker measures the whole buffer.
SHARED_GAUGES = ("neve_buffer_bytes",)


@dataclass(frozen=True)
class Ports:
    """Where a receiver listens; None while it does not."""

    http: str | None
    grpc: str | None


@dataclass(frozen=True)
class _Answer:
    """What a worker said; no status where it did not answer."""

    run: int
    status: int | None
    body: bytes


class Workers:
    """Keeps the processes of a receiver running, and answers for all of them."""

    def __init__(
        self,
        supervisors: Sequence[Supervisor],
        reserved: Sequence[socket.socket] = (),
    ) -> None:
        """Take over processes that are not started yet.

        Args:
            reserved: what holds their ports, closed with the last of them.
        """
        self._supervisors = tuple(supervisors)
        self._reserved = tuple(reserved)
        self._sums = MetricSums(SHARED_GAUGES)
        # A scrape is served on a thread of its own.
        self._adding_up = threading.Lock()

    @property
    def is_up(self) -> bool:
        """Say whether every process runs."""
        return all(supervisor.is_up for supervisor in self._supervisors)

    @property
    def restarts(self) -> int:
        return sum(supervisor.restarts for supervisor in self._supervisors)

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [pid for supervisor in self._supervisors if (pid := supervisor.pid)]

    @property
    def ports(self) -> Ports:
        """Where they listen, as one that runs has said it."""
        for supervisor in self._supervisors:
            announced = supervisor.announced
            if announced is not None:
                return Ports(announced["http"], announced["grpc"])
        return Ports(None, None)

    def start(self) -> None:
        """Start all, and wait until each is ready or has ended for the first time.

        Raises:
            ConfigError: the configuration is refused; none runs then.
        """
        try:
            first, *others = self._supervisors
            # What is wrong with the configuration is said by one of them, not by each.
            first.launch()
            first.wait_until_tried()
            for supervisor in others:
                supervisor.launch()
            for supervisor in others:
                supervisor.wait_until_tried()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask all to end, side by side, and wait for them. Idempotent."""
        with ThreadPoolExecutor(len(self._supervisors)) as pool:
            list(pool.map(Supervisor.stop, self._supervisors))
        for held in self._reserved:
            held.close()

    def reload(self) -> None:
        """Have all read tokens and certificates again."""
        for supervisor in self._supervisors:
            supervisor.reload()

    def metrics(self) -> bytes:
        """Return the sums of what the processes count."""
        scrapes = {
            number: Scrape(answer.run, answer.body)
            for number, answer in enumerate(self._ask("/metrics"))
            if answer.status == HTTPStatus.OK
        }
        with self._adding_up:
            return self._sums.add_up(scrapes)

    @property
    def trouble(self) -> str | None:
        """Why not every process takes requests; None when all do."""
        answers = self._ask("/readyz")
        down = sum(answer.status is None for answer in answers)
        if down:
            which = f"{down} of {len(answers)} workers of " if len(answers) > 1 else ""
            return f"{which}the receiver {'are' if down > 1 else 'is'} down"
        reasons = {
            json.loads(answer.body)["reason"]: None
            for answer in answers
            if answer.status != HTTPStatus.OK
        }
        return f"the receiver takes nothing: {'; '.join(reasons)}" if reasons else None

    def _ask(self, path: str) -> list[_Answer]:
        """Ask all side by side: one that hangs does not keep the others from answering."""
        with ThreadPoolExecutor(len(self._supervisors)) as pool:
            return list(pool.map(lambda supervisor: _ask(supervisor, path), self._supervisors))


def _ask(supervisor: Supervisor, path: str) -> _Answer:
    announced = supervisor.announced
    if announced is None:
        return _Answer(0, None, b"")
    address = parse_address(announced["observe"])
    connection = HTTPConnection(address.host, address.port, timeout=ASK_SECONDS)
    with closing(connection):
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return _Answer(announced[RUN], answer.status, answer.read())
        except (OSError, HTTPException):
            return _Answer(announced[RUN], None, b"")


def supervised_workers(arguments: Sequence[str], settings: Settings) -> Workers:
    """Return `neve serve` as children of this process, as many as `receive.workers` says.

    Args:
        arguments: the global options they are to be called with.

    Raises:
        ConfigError: an address cannot be listened on.
    """
    command = [sys.executable, "-m", "neve", *arguments, "serve"]
    # A supervisor adds the descriptor.
    if settings.receive.workers == 1:
        return Workers([Supervisor("receiver", [*command, "--supervised"], OBSERVE)])
    warn_if_anyone_can_send(receive_spec(settings))
    http, grpc = parse_address(settings.receive.http), parse_address(settings.receive.grpc)
    held_http = reserve(http)
    try:
        held_grpc = reserve(grpc)
    except BaseException:
        held_http.close()
        raise
    environment = {
        **OBSERVE,
        "NEVE_RECEIVE__HTTP": str(Address(http.host, held_http.getsockname()[1])),
        "NEVE_RECEIVE__GRPC": str(Address(grpc.host, held_grpc.getsockname()[1])),
    }
    supervisors = [
        Supervisor(
            f"receiver's worker {number}",
            [*command, "--share-ports", "--supervised"],
            environment,
        )
        for number in range(1, settings.receive.workers + 1)
    ]
    return Workers(supervisors, [held_http, held_grpc])
