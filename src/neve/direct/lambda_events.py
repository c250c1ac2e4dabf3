"""The events by which AWS Lambda hands over HTTP requests, and the answers it takes.

Function URLs and HTTP APIs send payloads of version 2.0, REST APIs those of version 1.0; an
application load balancer's are like the latter. Whatever an event holds was sent by a stranger:
each value is checked for its type.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.errors import MalformedError
from neve.otlp import answer
from neve.otlp.http import SIGNALS, Head, Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neve.signals import Signal

_BINARY_HINT = (
    "API Gateway hands over binary bodies as text unless it is told otherwise: "
    "add */* to the binary media types of the API"
)


@dataclass(frozen=True)
class LambdaRequest:
    """An HTTP request as an event has it.

    Args:
        body: as it came, in base64 or not.
        takes_lists: whether the answer's headers are lists of values.
    """

    head: Head
    body: str
    is_base64: bool
    takes_lists: bool = False

    @property
    def signal(self) -> Signal | None:
        """What the path is for; None: nothing.

        Before the path of OTLP stands the stage or the base path of an API, if it has one.
        """
        return next((SIGNALS[path] for path in SIGNALS if self.head.path.endswith(path)), None)

    def read_body(self) -> bytes:
        """Return the bytes that were sent. Raises MalformedError."""
        if not self.is_base64:
            return self.body.encode(errors="surrogatepass")
        try:
            return base64.b64decode(self.body, validate=True)
        except ValueError as error:
            raise MalformedError(f"the body is not in base64: {error}") from error

    def explain(self, error: MalformedError) -> MalformedError:
        """Return an error with what is the usual reason, where binary data came as text."""
        is_binary = not self.head.is_json or self.head.text(b"content-encoding")
        if self.is_base64 or not self.body or not is_binary or error.hint:
            return error
        return MalformedError(error.message, hint=_BINARY_HINT, field=error.field)


def read_event(event: Any) -> LambdaRequest:
    """Return the HTTP request that an event is. Raises MalformedError: it is none."""
    if not isinstance(event, dict):
        raise MalformedError("the event is no object")
    context = _object(event, "requestContext")
    is_first_version = "httpMethod" in event
    method = event.get("httpMethod") if is_first_version else _object(context, "http").get("method")
    path = event.get("path") if is_first_version else event.get("rawPath")
    if not isinstance(method, str) or not isinstance(path, str):
        raise MalformedError(
            "the event has no method or no path",
            hint="invoke the function by its URL or by API Gateway",
        )
    body = event.get("body")
    if body is not None and not isinstance(body, str):
        raise MalformedError("the body of the event is no text")
    return LambdaRequest(
        Head(_bytes(method), _bytes(path), dict(_headers(event))),
        body or "",
        is_base64=event.get("isBase64Encoded") is True,
        takes_lists="elb" in context and "multiValueHeaders" in event,
    )


def write_response(response: Response, *, takes_lists: bool = False) -> dict[str, Any]:
    """Return an answer as both versions of payloads take it; protobuf in base64."""
    headers = {"content-type": response.content_type} | {
        name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers
    }
    is_binary = response.content_type == answer.PROTOBUF
    body = base64.b64encode(response.body).decode() if is_binary else response.body.decode()
    return {
        "statusCode": int(response.status),
        **(
            {"multiValueHeaders": {name: [value] for name, value in headers.items()}}
            if takes_lists
            else {"headers": headers}
        ),
        "body": body,
        "isBase64Encoded": is_binary,
    }


def _headers(event: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    """Yield names, in lower case, and values; later ones count."""
    for name, values in _object(event, "multiValueHeaders").items():
        for value in values if isinstance(values, list) else ():
            if isinstance(value, str):
                yield _bytes(name.lower()), _bytes(value)
    for name, value in _object(event, "headers").items():
        if isinstance(value, str):
            yield _bytes(name.lower()), _bytes(value)


def _object(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _bytes(text: str) -> bytes:
    return text.encode("latin-1", errors="replace")
