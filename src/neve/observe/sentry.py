"""Failures to Sentry: what failed and where in the code, and nothing that anybody stored.

What an exception says may hold a cell's value or a password, ours by way of Spark's. So no message
leaves the process, nor local variables, source lines or arguments: the log has them. What is sent
is put together anew from what is known to be harmless, whatever the SDK gathers.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neve.errors import Code, ConfigError, NeveError
from neve.masking import SecretMask

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

    from neve.config import Settings

logger = logging.getLogger(__name__)

# What fails is tried again, for hours if need be: one event now and then is enough to know.
REPEAT_SECONDS = 300.0
# For sending the last events at the end of the process.
FLUSH_SECONDS = 3.0

_SENT_KEYS = (
    "event_id",
    "timestamp",
    "level",
    "platform",
    "release",
    "environment",
    "server_name",
    "sdk",
    "tags",
    "exception",
)
_EXCEPTION_KEYS = ("type", "module", "mechanism")
_FRAME_KEYS = ("filename", "abs_path", "function", "module", "lineno", "in_app")
# How Spark's own messages begin; what follows may quote a cell.
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")


class Reporter:
    """Sends failures, through a client of its own: an application's Sentry is left alone."""

    def __init__(self, settings: Settings, dsn: str) -> None:
        import sentry_sdk
        from sentry_sdk.utils import BadDsn

        from neve.config.reference import secrets_to_mask
        from neve.observe.metrics import common_labels

        labels = common_labels(settings)
        self._service = labels["project"]
        self._mask = SecretMask(secrets_to_mask(settings))
        self._sent: dict[tuple[str, str, str], float] = {}
        try:
            self._client = sentry_sdk.Client(
                dsn=dsn,
                release=labels["version"],
                environment=labels["environment"],
                default_integrations=False,
                auto_enabling_integrations=False,
                auto_session_tracking=False,
                include_local_variables=False,
                include_source_context=False,
                # Personal data is off unless asked for.
                send_client_reports=False,
                max_request_body_size="never",
                max_breadcrumbs=0,
                spotlight=False,
                before_send=self._before_send,
            )
        except BadDsn as error:
            raise ConfigError(
                "observe.sentry.dsn is no DSN of Sentry",
                hint="copy it from the project's settings in Sentry: https://key@host/number",
            ) from error

    def capture(self, error: BaseException, part: str, table: str | None) -> None:
        """Hand a failure over for sending, unless it was of late. At most once."""
        from sentry_sdk.utils import event_from_exception

        code = (error.code if isinstance(error, NeveError) else Code.INTERNAL).value
        if self._is_news((part, table or "", f"{code} {type(error).__name__}")):
            event, hint = event_from_exception(error, self._client.options)
            event["tags"] = {"service": self._service, "part": part, "code": code}
            if table is not None:
                event["tags"]["table"] = table
            self._client.capture_event(event, hint)

    def close(self) -> None:
        self._client.close(timeout=FLUSH_SECONDS)

    def _is_news(self, failure: tuple[str, str, str]) -> bool:
        now = time.monotonic()
        if now - self._sent.get(failure, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._sent[failure] = now
        return True

    def _before_send(self, event: Event, _hint: Hint) -> Event:
        """Put the event together anew from what may be sent."""
        kept: dict[str, Any] = _only(_SENT_KEYS, event)
        found = kept.get("exception", {}).get("values", [])
        kept["exception"] = {"values": [_described(one) for one in found]}
        scrubbed: Event = self._scrubbed(kept)
        return scrubbed

    def _scrubbed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._scrubbed(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._scrubbed(inner) for inner in value]
        return self._mask(value) if isinstance(value, str) else value


def _only(keys: tuple[str, ...], mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: mapping[key] for key in keys if key in mapping}


def _described(exception: Mapping[str, Any]) -> dict[str, Any]:
    """Return an exception of an event without its message, but for the name Spark gives it."""
    kept = _only(_EXCEPTION_KEYS, exception)
    if (exception.get("module") or "").startswith("pyspark."):
        condition = _CONDITION.match(exception.get("value") or "")
        kept["value"] = condition[1] if condition else ""
    frames = (exception.get("stacktrace") or {}).get("frames", [])
    kept["stacktrace"] = {"frames": [_only(_FRAME_KEYS, frame) for frame in frames]}
    return kept


_reporter: Reporter | None = None


def start(settings: Settings) -> None:
    """Send failures from now on, if the settings say where. Idempotent; `stop` sends the last.

    Raises:
        ConfigError: the DSN is none.
    """
    global _reporter
    dsn = settings.observe.sentry.dsn
    if _reporter is None and dsn is not None and dsn.get_secret_value():
        _reporter = Reporter(settings, dsn.get_secret_value())


def stop() -> None:
    """Send what is left and no more, waiting seconds at most. Idempotent."""
    global _reporter
    stopped, _reporter = _reporter, None
    if stopped is not None:
        stopped.close()


def capture(error: BaseException, part: str, table: str | None = None) -> None:
    """Tell Sentry of a failure, if it is configured; the same one again only after minutes.

    Args:
        part: what failed, such as merge or consolidate.
        table: the table it was about.
    """
    if _reporter is None:
        return
    try:
        _reporter.capture(error, part, table)
    except Exception:
        # Whoever reports a failure is about to go on after it.
        logger.exception("Sentry was not told of a failure")
