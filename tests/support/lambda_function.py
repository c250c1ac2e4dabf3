"""Events of AWS Lambda as recorded, with any body, and the function that answers them."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

from google.rpc.status_pb2 import Status

from neve.direct.aws_lambda import Function
from neve.signals import Signal

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_RECORDED = Path(__file__).parent / "lambda_events"
KINDS = ("function_url", "http_api", "rest_api", "load_balancer")


def event(
    kind: str = "function_url",
    body: bytes = b"",
    *,
    signal: Signal = Signal.LOGS,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return a recorded event with another body, signal, method and further headers.

    The body is text where AWS hands it over as text: JSON without compression.
    """
    text = (_RECORDED / f"{kind}.json").read_text()
    made = json.loads(text.replace("v1/logs", f"v1/{signal.value}"))
    if "httpMethod" in made:
        made["httpMethod"] = method
    else:
        made["requestContext"]["http"]["method"] = method
    wanted = headers or {}
    for name, value in wanted.items():
        _set_header(made, name, value)
    is_text = wanted.get("content-type") == JSON and "content-encoding" not in wanted
    made["body"] = body.decode() if is_text else base64.b64encode(body).decode()
    made["isBase64Encoded"] = not is_text
    return made


def _set_header(made: dict[str, Any], name: str, value: str) -> None:
    for key, shaped in (("headers", value), ("multiValueHeaders", [value])):
        if key in made:
            made[key] = {k: v for k, v in made[key].items() if k.lower() != name}
            # As REST APIs do: names as the client wrote them.
            made[key][name.title()] = shaped


def changed(**keys: Any) -> dict[str, Any]:
    """Return an event of a function URL with some keys replaced."""
    return copy.deepcopy(event()) | keys


class Context:
    """What Lambda tells a function: how long it may still run."""

    aws_request_id = "8476a536-e9f4-11e8-9739-2dfe598c3fcd"

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds) or [30.0]

    def get_remaining_time_in_millis(self) -> int:
        """Return the next of the given times, and the last one for ever."""
        left = self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]
        return int(left * 1000)


class Answer:
    """What the function returned, as a client sees it."""

    def __init__(self, returned: dict[str, Any]) -> None:
        json.dumps(returned)
        lists = returned.get("multiValueHeaders", {})
        self.headers = returned.get("headers") or {name: value[0] for name, value in lists.items()}
        self.status = returned["statusCode"]
        body = returned["body"]
        self.body = base64.b64decode(body) if returned["isBase64Encoded"] else body.encode()

    @property
    def message(self) -> str:
        """What went wrong, in either content type."""
        if self.headers["content-type"] == JSON:
            return json.loads(self.body)["message"]
        return Status.FromString(self.body).message


def ask(function: Function, made: Any, context: Any = None) -> Answer:
    """Have a function answer an event."""
    return Answer(function(made, context or Context()))
