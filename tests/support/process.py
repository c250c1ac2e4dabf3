"""Child processes of the tests: started on free ports, awaited by condition, stopped by id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.support.wait import until

DEADLINE_SECONDS = 60
_STOP_SECONDS = 10
_LOG_LINES = 40


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Process:
    """A server as a child process, with its log in a file."""

    def __init__(
        self,
        name: str,
        command: Iterable[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        output: Path | None = None,
    ) -> None:
        """Start it.

        Args:
            output: a file of its own for what it prints; without one the log has that too.
        """
        self.name = name
        self.log = log
        with log.open("ab") as log_file, (output or log).open("ab") as output_file:
            self._child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output_file,
                stderr=log_file,
                env={**os.environ, **(environment or {})},
                cwd="/",  # a server run as another user may not enter ours
                user=user,
                group=user,
                extra_groups=[] if user else None,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop their servers
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_until(
        self, ready: Callable[[], bool], deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        """Return when `ready` says so; show the log when the server ends or time runs out."""
        try:
            until(lambda: self._ended() or ready(), seconds=deadline_seconds)
            assert not self._ended(), "it ended"
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"{self.name} does not come up, {error}:\n{self.tail()}") from None

    def _ended(self) -> bool:
        return self._child.poll() is not None

    def stop(
        self, request: signal.Signals = signal.SIGTERM, deadline_seconds: float = _STOP_SECONDS
    ) -> int:
        """Ask it to end, and make it when it does not; return its exit status."""
        self._child.send_signal(request)
        try:
            return self._child.wait(deadline_seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def wait(self, deadline_seconds: float = _STOP_SECONDS) -> int:
        """Return its exit status once it ends, by itself or as it was asked to."""
        return self._child.wait(deadline_seconds)

    def kill(self) -> int:
        self._child.kill()
        return self._child.wait()

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
