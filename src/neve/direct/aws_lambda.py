"""OTLP/HTTP on AWS Lambda: an event comes in, and its rows are in their tables when it is answered.

At least once: a client that sends a request again whose answer was lost stores it twice. What may
pass is answered with 503, on which clients keep their data; nothing is ever answered with 500.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from neve.config import load
from neve.config.reference import secrets_to_mask
from neve.direct.deadline import STEP_SECONDS, Deadline
from neve.direct.lambda_events import read_event, write_response
from neve.direct.lambda_log import log_as_json, log_request_id
from neve.direct.writer import Writer
from neve.errors import Code, MalformedError, NeveError, RequestError, UnavailableError
from neve.lake.timeouts import bounded_by
from neve.masking import SecretMask
from neve.observe.embedded_metrics import EmbeddedMetrics
from neve.otlp import answer, http
from neve.otlp.bearer_tokens import BearerTokens
from neve.otlp.encoding import codec_name, size_limit, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.config import Settings
    from neve.direct.lambda_events import LambdaRequest
    from neve.direct.results import RequestResult
    from neve.otlp.http import Response
    from neve.signals import Signal

logger = logging.getLogger(__name__)

# Kept back, to write the answer in: no request to a catalog lasts into it.
ANSWER_SECONDS = 0.5
RETRY_AFTER_SECONDS = 2
# After these, the next request connects anew.
_CONNECTION_FAILURES = frozenset({Code.UNREACHABLE, Code.REFUSED, Code.CERTIFICATE})


@dataclass(frozen=True)
class Service:
    """What a container keeps from one request to the next."""

    writer: Writer
    # By token, the name of the sender.
    tokens: BearerTokens[str]

    @classmethod
    def open(cls, settings: Settings) -> Service:
        """Connect to the catalog, or to the storage. Raises NeveError."""
        _warn_of_local_directories(settings)
        settings = _without_exporter(settings)
        metrics = EmbeddedMetrics(
            sys.stdout, project=settings.project, environment=settings.environment
        )
        owners = {
            entry.token.get_secret_value(): entry.name or "" for entry in settings.receive.tokens
        }
        return cls(Writer.open(settings, observer=metrics), BearerTokens(owners, ""))


class Function:
    """Answers events. May be called by several threads."""

    def __init__(self, load_settings: Callable[[], Settings]) -> None:
        self._load_settings = load_settings
        self._lock = threading.Lock()
        self._service: Service | None = None

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        """Answer an event. Whatever it holds, this raises nothing."""
        try:
            request = read_event(event)
        except MalformedError as error:
            logger.warning("an event was refused: %s", error)
            return write_response(http.not_http(str(error), is_json=True))
        return write_response(self._respond(request, context), takes_lists=request.takes_lists)

    def _respond(self, request: LambdaRequest, context: Any) -> Response:
        is_json = request.head.is_json
        try:
            if request.signal is None:
                return http.not_found(request.head)
            if request.head.method != b"POST":
                return http.not_allowed(request.head, "POST")
            remaining = _remaining_seconds(context)
            if remaining is None:
                return self._export(request, request.signal, None)
            with bounded_by(lambda: remaining() - ANSWER_SECONDS):
                deadline = Deadline(lambda: remaining() - ANSWER_SECONDS - STEP_SECONDS)
                return self._export(request, request.signal, deadline)
        except NeveError as error:
            return http.refusal(error, RETRY_AFTER_SECONDS, is_json=is_json)
        except Exception:
            logger.exception("a request failed")
            defect = UnavailableError("internal error")
            return http.refusal(defect, RETRY_AFTER_SECONDS, is_json=is_json)

    def _export(
        self, request: LambdaRequest, signal: Signal, deadline: Deadline | None
    ) -> Response:
        """Store a request. Raises NeveError: nothing was acknowledged."""
        if deadline:
            deadline.require("connecting")
        service = self._open()
        head = request.head
        # The sender first: whoever may not send learns nothing else.
        sender = service.tokens.identify(head.text(b"authorization"))
        encoding = head.text(b"content-encoding") or ""
        codec_name(encoding)
        head.require_otlp()
        limit = size_limit(service.writer.spec.max_request_bytes, json=head.is_json)
        try:
            body = unpack(request.read_body(), encoding, limit)
            result = service.writer.write_request(
                signal, body, json=head.is_json, sender=sender, deadline=deadline
            )
        except MalformedError as error:
            raise request.explain(error) from error
        except (RequestError, UnavailableError):
            raise
        except NeveError as error:
            logger.error("a request of %s was not stored: %s", signal.value, error)  # noqa: TRY400 - what happened is in the error
            raise self._failure(service, error) from error
        self._require_kept(service, result)
        message = answer.success(signal, rejected=result.rejected, reason=result.warning)
        return http.success(message, is_json=head.is_json)

    def _require_kept(self, service: Service, result: RequestResult) -> None:
        """Refuse to acknowledge what no table has; the writer has logged it. Raises NeveError."""
        if result.error is not None:
            raise self._failure(service, result.error)

    def _failure(self, service: Service, error: NeveError) -> UnavailableError:
        """Return what the sender is told: the kind of failure.

        Not the message, which names tables and addresses. And always an error that may pass: a
        catalog that refuses us is no reason for a client to drop its data.
        """
        if error.code in _CONNECTION_FAILURES:
            self._forget(service)
        return UnavailableError(f"the request could not be stored: {error.code.value}")

    def _open(self) -> Service:
        """Return the service, opened on first use and after a failure. Raises UnavailableError."""
        with self._lock:
            if self._service is None:
                try:
                    self._service = Service.open(self._load_settings())
                except NeveError as error:
                    logger.error("the function cannot start: %s", error)  # noqa: TRY400 - a traceback may quote the configuration
                    raise UnavailableError(
                        f"the function cannot start: {error.code.value}"
                    ) from error
            return self._service

    def _forget(self, service: Service) -> None:
        with self._lock:
            if self._service is service:
                self._service = None
        service.writer.close()


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """Answer an event of a function URL, of API Gateway or of a load balancer."""
    log_request_id(getattr(context, "aws_request_id", None))
    return _function()(event, context)


@cache
def _function() -> Function:
    log_as_json(SecretMask())
    return Function(_load_settings)


def _load_settings() -> Settings:
    settings = load().settings
    log_as_json(SecretMask(secrets_to_mask(settings)))
    return settings


def _remaining_seconds(context: Any) -> Callable[[], float] | None:
    """Return the clock that says when Lambda stops the function; None outside of Lambda."""
    millis = getattr(context, "get_remaining_time_in_millis", None)
    return None if millis is None else lambda: float(millis()) / 1000


def _without_exporter(settings: Settings) -> Settings:
    """Return settings that export no metrics: a function does not run between requests."""
    if not settings.observe.otlp_endpoint:
        return settings
    logger.warning("observe.otlp_endpoint is not used: commits are metrics of CloudWatch")
    observe = settings.observe.model_copy(update={"otlp_endpoint": None})
    return settings.model_copy(update={"observe": observe})


def _warn_of_local_directories(settings: Settings) -> None:
    warehouse = settings.catalog.warehouse or ""
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ and warehouse.startswith("/"):
        logger.warning(
            "catalog.warehouse is the directory %s: unless it is mounted, Lambda removes it "
            "together with the container",
            warehouse,
        )
