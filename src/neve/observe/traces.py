"""Spans around the steps of Neve's own work; none, and no cost, unless a receiver is configured.

Attributes are names, counts and ids, never row values. What an exception says may hold one, so a
span that failed has the exception's code and not its message.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from neve.config import Settings

Attribute = str | int | float | bool


class Span(Protocol):
    """A step that is being done."""

    def set(self, **attributes: Attribute) -> None:
        """Say more of it, such as counts that are known at its end."""


class Tracer(Protocol):
    """Who makes spans and sends them."""

    def span(
        self, name: str, attributes: Mapping[str, Attribute]
    ) -> AbstractContextManager[Span]: ...

    def close(self) -> None:
        """Send what was not sent yet."""


class _Nothing:
    """The span of a process that sends none."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set(self, **attributes: Attribute) -> None:
        pass


_NOTHING = _Nothing()
_tracer: Tracer | None = None


def span(name: str, **attributes: Attribute) -> AbstractContextManager[Span]:
    """Return a span for as long as a block runs, inside the one this thread is in."""
    return _NOTHING if _tracer is None else _tracer.span(name, attributes)


def start(settings: Settings) -> None:
    """Send spans from now on, if the settings say where. Idempotent; `stop` sends the last."""
    global _tracer
    if _tracer is None and settings.observe.otlp_endpoint:
        from neve.observe.otlp import OtlpTracer

        _tracer = OtlpTracer(settings)


def stop() -> None:
    """Send what is left and no more, waiting seconds at most. Idempotent."""
    global _tracer
    stopped, _tracer = _tracer, None
    if stopped is not None:
        stopped.close()
