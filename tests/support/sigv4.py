"""Check AWS Signature Version 4 from the bytes that arrived, the way AWS does.

Written from the specification and not with the signer of a client, whose mistakes it would share.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

if TYPE_CHECKING:
    from tests.support.proxy import Request

_ALGORITHM = "AWS4-HMAC-SHA256"
_AUTHORIZATION = re.compile(
    rf"{_ALGORITHM} "
    r"Credential=(?P<key>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"
    r", *SignedHeaders=(?P<headers>[a-z0-9;-]+), *Signature=(?P<signature>[0-9a-f]{64})"
)
_CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Verifier:
    """Who may sign, for which service and where."""

    access_key: str
    secret_key: str
    region: str
    service: str

    def fault(self, request: Request) -> str | None:
        """Return why a request is not properly signed; None when it is."""
        found = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
        if not found:
            return "the request is not signed"
        if (found["service"], found["region"]) != (self.service, self.region):
            return f"signed for {found['service']} in {found['region']}"
        if found["key"] != self.access_key:
            return "the access key is not known"
        signed = found["headers"].split(";")
        if not {"host", "x-amz-date"} <= set(signed):
            return "host and x-amz-date must be signed"
        time = request.headers.get("X-Amz-Date", "")
        if not time.startswith(found["date"]) or not _is_now(time):
            return "the request is too old or from the future"
        expected = self._signature(_canonical(request, signed), time)
        if not hmac.compare_digest(expected, found["signature"]):
            return "the signature does not match"
        return None

    def _signature(self, canonical: str, time: str) -> str:
        scope = [time[:8], self.region, self.service, "aws4_request"]
        key = f"AWS4{self.secret_key}".encode()
        for word in scope:
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = "\n".join([_ALGORITHM, time, "/".join(scope), digest])
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _canonical(request: Request, signed: list[str]) -> str:
    # Every service but S3 wants the path, encoded as it was sent, encoded once more.
    path = quote(request.path, safe="/-_.~")
    pairs = parse_qsl(urlsplit(request.target).query, keep_blank_values=True)
    query = "&".join(
        f"{name}={value}"
        for name, value in sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in pairs)
    )
    headers = "".join(f"{name}:{_header(request, name)}\n" for name in signed)
    # Of the body that arrived, whatever a header says its hash is.
    digest = hashlib.sha256(request.body).hexdigest()
    return "\n".join([request.method, path, query, headers, ";".join(signed), digest])


def _header(request: Request, name: str) -> str:
    return ",".join(" ".join(value.split()) for value in request.headers.get_all(name, []))


def _is_now(time: str) -> bool:
    try:
        then = datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return False
    return abs(datetime.now(timezone.utc) - then) < _CLOCK_SKEW
