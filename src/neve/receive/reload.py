"""Tokens and certificates that are replaced while the receiver runs.

They are read again on SIGHUP, and when neve.yaml or a certificate's file changes. What cannot be
used is logged, and the previous ones stay. A reload never opens a receiver: the last token and
client_ca are removed by a restart only. So a file that is empty while it is being written lets
nobody in.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from neve.config.reference import changed_keys
from neve.errors import ConfigError, NeveError
from neve.receive.spec import ReceiveSpec, receive_spec, token_specs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from neve.config import Loaded

logger = logging.getLogger(__name__)

# Not inotify, which network file systems and mounted Secrets do not serve.
LOOK_SECONDS = 2.0
# The keys that hold without a restart.
RELOADED_KEYS = frozenset(
    {
        "receive.tokens",
        "receive.allow_weak_tokens",
        "receive.tls.cert",
        "receive.tls.key",
        "receive.tls.client_ca",
    }
)

# Of each file when it was changed, its inode and its size; None where it is missing.
Stamps = dict[Path, tuple[int, int, int] | None]


@dataclass(frozen=True)
class ReloadSource:
    """Where a receiver's settings come from."""

    # What it was started with.
    started: Loaded
    load: Callable[[], Loaded]


class Reloadable(Protocol):
    """What is told the new settings: `neve.receive.server.Receiver`."""

    @property
    def spec(self) -> ReceiveSpec:
        """What it runs with."""

    def use_credentials(self, spec: ReceiveSpec) -> None:
        """Use the tokens and certificates of `spec`: all of them or, with a ConfigError, none."""


@asynccontextmanager
async def reloading(receiver: Reloadable, source: ReloadSource | None) -> AsyncIterator[None]:
    """Keep a receiver's tokens and certificates as their files have them while the block runs."""
    if source is None:
        yield
        return
    reloader = Reloader(receiver, source)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reloader.asked.set)
    watching = asyncio.create_task(reloader.watch())
    try:
        yield
    finally:
        # SIGHUP is still handled, by nobody: a receiver that stops must not be killed by it.
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


class Reloader:
    """Looks for changes, and has the receiver use them."""

    def __init__(self, receiver: Reloadable, source: ReloadSource) -> None:
        self.asked = asyncio.Event()
        self._receiver = receiver
        self._source = source
        self._files = _files(source.started)
        # Of no file: the first reload is of what has changed since the process was started.
        self._read: Stamps = {}
        self._previous: Stamps = {}

    async def watch(self) -> None:
        """Look every few seconds, and when that is asked for, until this is cancelled."""
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.asked.wait(), LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                # A defect of ours must not end the looks for the life of the process.
                logger.exception("looking for a new configuration failed")

    async def look(self) -> None:
        """Reload when that was asked for, or the files have changed since they were read."""
        stamps = await asyncio.to_thread(_stamps, self._files)
        # A file that differs from the look before may still be being written.
        is_settled = stamps == self._previous
        self._previous = stamps
        if self.asked.is_set() or (is_settled and stamps != self._read):
            self.asked.clear()
            await self._reload(stamps)

    async def _reload(self, stamps: Stamps) -> None:
        """Read everything again, and use what can be used; what cannot is logged."""
        self._read = stamps
        try:
            loaded = await asyncio.to_thread(self._source.load)
            if await asyncio.to_thread(_stamps, stamps) != stamps:
                # It was written while it was read: the next looks read it again.
                self._read = {}
                return
            self._files = _files(loaded)
            spec = self._spec(loaded)
            _check_still_closed(self._receiver.spec, spec)
            self._receiver.use_credentials(spec)
        except NeveError as error:
            # Without the exception: a traceback of a configuration may quote it.
            logger.error(  # noqa: TRY400
                "the configuration was not reloaded, and the previous one stays: %s", error
            )
            return
        logger.info("tokens and certificates were read again; tokens: %d", len(spec.tokens))
        keys = changed_keys(self._source.started.settings, loaded.settings) - RELOADED_KEYS
        if keys:
            logger.warning("a change of %s needs a restart", ", ".join(sorted(keys)))

    def _spec(self, loaded: Loaded) -> ReceiveSpec:
        # As many workers as there are, whatever the file says by now: that needs a restart.
        workers = self._source.started.settings.receive.workers
        tokens = token_specs(loaded.settings.receive, workers)
        return replace(receive_spec(loaded.settings), tokens=tokens)


def _check_still_closed(before: ReceiveSpec, after: ReceiveSpec) -> None:
    if before.tokens and not after.tokens:
        raise ConfigError("receive.tokens is empty; only a restart lets everybody in")
    if before.tls and after.tls and before.tls.client_ca and not after.tls.client_ca:
        raise ConfigError("receive.tls.client_ca is unset; only a restart lets all clients in")


def _files(loaded: Loaded) -> tuple[Path, ...]:
    tls = loaded.settings.receive.tls
    certificates = (tls.cert, tls.key, tls.client_ca) if tls else ()
    return tuple(Path(file) for file in (loaded.path, *certificates) if file)


def _stamps(files: Iterable[Path]) -> Stamps:
    return {file: _stamp(file) for file in files}


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
