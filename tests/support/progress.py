"""Say how far a long run of tests is: `pytest -p tests.support.progress`.

A line a minute: how many tests are done, since when, and about how long the rest will take. Tests
take from a tenth of a second to minutes, so the estimate weighs each by what it took last time
(pytest's cache has it), and those without a last time by the average.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

_DURATIONS = "neve/durations"
_EVERY_SECONDS = 60


class Progress:
    """The tests of this run, and how long each took, now and last time."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last: dict[str, float] = config.cache.get(_DURATIONS, {}) if config.cache else {}
        self._took: dict[str, float] = {}
        self._pending: list[str] = []
        self._began = self._told = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._pending = [item.nodeid for item in session.items]
        self._began = self._told = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] = self._took.get(report.nodeid, 0.0) + report.duration

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._pending.remove(nodeid)
        if time.monotonic() - self._told >= _EVERY_SECONDS:
            self._told = time.monotonic()
            terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            # Below the dots, of which the line has perhaps some.
            terminal.write_line(f"\n{self.line(self._told - self._began)}")

    def pytest_sessionfinish(self) -> None:
        if self._config.cache:
            self._config.cache.set(_DURATIONS, self._last | self._took)

    def line(self, elapsed_seconds: float) -> str:
        """Say how far it is."""
        done = len(self._took)
        known = {nodeid: self._last[nodeid] for nodeid in self._took if nodeid in self._last}
        # A machine that is slower today is slower for the rest, too.
        pace = sum(self._took[nodeid] for nodeid in known) / (sum(known.values()) or 1) or 1
        average = sum(self._took.values()) / (done or 1)
        left = sum(
            pace * self._last[nodeid] if nodeid in self._last else average
            for nodeid in self._pending
        )
        return (
            f"[{done}/{done + len(self._pending)}] {elapsed_seconds / 60:.0f} min, "
            f"about {left / 60:.0f} min left"
        )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Progress(config), "neve-progress")
