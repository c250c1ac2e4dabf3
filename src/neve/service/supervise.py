"""A child process that is kept running."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neve.errors import EXIT_STATUS, Code, ConfigError
from neve.service.log import say

logger = logging.getLogger(__name__)

# The descriptor, whatever `sys.stderr` is.
STANDARD_ERROR = 2
# How often a child that is not ready yet is looked at.
LOOK_SECONDS = 0.2
# Under what `announced` has how often the child was started before.
RUN = "run"


@dataclass(frozen=True)
class Backoff:
    """How long to wait before the child is started again: twice as long each time."""

    first_seconds: float = 0.5
    most_seconds: float = 30.0
    # A child that ran this long was well, and its end is the first again.
    well_after_seconds: float = 60.0
    # What it has to end in after it was asked to, before it is killed.
    grace_seconds: float = 15.0


class Supervisor:
    """Runs a command, and runs it again when it ends.

    The child says that it is ready with one line of JSON, on a pipe whose descriptor is its last
    argument: whatever a library prints goes to standard error. Its standard input is a pipe that
    nothing is written to: it ends with this process, however that ends.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        backoff: Backoff | None = None,
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = list(command)
        self._environment = dict(environment)
        self._backoff = backoff or Backoff()
        self._announced: dict[str, Any] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        # Guards that no child is started once stopping has begun.
        self._starting = threading.Lock()
        self._refused = False
        # Set when the first child is ready or has ended.
        self._tried = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"neve-{name}", daemon=True)

    @property
    def announced(self) -> Mapping[str, Any] | None:
        """What the child said when it was ready, and the number of its run; None while down."""
        return self._announced

    @property
    def is_up(self) -> bool:
        return self._announced is not None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child and self._child.poll() is None else None

    def launch(self) -> None:
        """Start the child without waiting for it."""
        self._thread.start()

    def wait_until_tried(self) -> None:
        """Wait until the child is ready, or has ended for the first time.

        Raises:
            ConfigError: it refused its configuration, and always would.
        """
        self._tried.wait()
        if self._refused:
            raise ConfigError(
                f"the {self.name} cannot start with this configuration",
                hint=f"what the {self.name} says stands above",
            )

    def reload(self) -> None:
        """Have the child read its configuration again; a child that starts does so anyway."""
        child = self._child
        if child is not None and self.is_up:
            child.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Ask the child to end, wait for it, and kill it if it does not. Idempotent."""
        with self._starting:
            self._stopping.set()
            child = self._child
        if child is not None:
            child.terminate()
            self._thread.join(self._backoff.grace_seconds)
            child.kill()
            self._thread.join()

    def _run(self) -> None:
        try:
            self._keep_running()
        finally:
            self._tried.set()

    def _keep_running(self) -> None:
        pause = self._backoff.first_seconds
        while started_child := self._start_child():
            started = time.monotonic()
            status = self._follow(*started_child)
            if status == EXIT_STATUS[Code.CONFIG] and not self._tried.is_set():
                self._refused = True
            self._tried.set()
            if self._refused or self._stopping.is_set():
                return
            if time.monotonic() - started >= self._backoff.well_after_seconds:
                pause = self._backoff.first_seconds
            logger.warning(
                "the %s ended with status %d, and starts again in %.1f s", self.name, status, pause
            )
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, self._backoff.most_seconds)
            self.restarts += 1

    def _start_child(self) -> tuple[subprocess.Popen[bytes], int] | None:
        """Start a child; return it and what it announces itself on, unless stopping has begun."""
        with self._starting:
            if self._stopping.is_set():
                return None
            announcement, announce = os.pipe()
            try:
                self._child = subprocess.Popen(
                    [*self._command, str(announce)],
                    env={**os.environ, **self._environment},
                    stdin=subprocess.PIPE,
                    stdout=STANDARD_ERROR,
                    pass_fds=[announce],
                    # Ctrl-C is for this process, which then stops the child in its turn.
                    start_new_session=True,
                )
            except BaseException:
                os.close(announcement)
                raise
            finally:
                os.close(announce)
            return self._child, announcement

    def _follow(self, child: subprocess.Popen[bytes], announcement: int) -> int:
        """Wait for a child to be ready, then to end; return its exit status."""
        with child, os.fdopen(announcement, encoding="utf-8") as pipe:

            def has_news(seconds: float) -> bool:
                return bool(select.select([pipe], [], [], seconds)[0])

            # What it has forked may keep the pipe open for longer than it lives.
            while child.poll() is None and not has_news(LOOK_SECONDS):
                pass
            # Nothing, if it ends before.
            if has_news(0) and (line := pipe.readline()):
                self._announced = {**json.loads(line), RUN: self.restarts}
                self._tried.set()
                if self.restarts:
                    say("restarted", f"the {self.name} is up again", restarts=self.restarts)
            child.wait()
        self._announced = None
        return child.returncode


def announce(descriptor: int, where: Mapping[str, Any]) -> None:
    """Tell the supervisor that this process, its child, is ready. Once."""
    with os.fdopen(descriptor, "w", encoding="utf-8") as pipe:
        pipe.write(json.dumps(where) + "\n")
