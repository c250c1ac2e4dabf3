"""Gates for the REST catalog: the ways a client must prove who it is, and S3 Tables' limits."""

from __future__ import annotations

import hmac
import json
import re
import secrets
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, quote

from tests.support.proxy import Forward, Request, Response, error_response, json_response
from tests.support.sigv4 import Verifier

# What the REST endpoint of S3 Tables answers, by its documentation; names have one level.
S3_TABLES_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/tables/rename",
)
_NAME = "[a-z0-9_]+"


@dataclass(frozen=True)
class BearerToken:
    """Let only those through who show the token."""

    token: str

    def __call__(self, request: Request, forward: Forward) -> Response:
        shown = request.headers.get("Authorization", "")
        if not hmac.compare_digest(shown.encode(), f"Bearer {self.token}".encode()):
            return error_response(401, "NotAuthorizedException", "the token is not valid")
        return forward(request)


@dataclass
class ClientCredentials:
    """Hand out tokens for OAuth2 client credentials, and let only those through who show one."""

    client: str
    secret: str
    issued: list[str] = field(default_factory=list)

    def __call__(self, request: Request, forward: Forward) -> Response:
        if (request.method, request.path) == ("POST", "/v1/oauth/tokens"):
            return self._issue(parse_qs(request.body.decode()))
        shown = request.headers.get("Authorization", "")
        if shown not in {f"Bearer {token}" for token in self.issued}:
            return error_response(401, "NotAuthorizedException", "the token is not valid")
        return forward(request)

    def _issue(self, form: dict[str, list[str]]) -> Response:
        wanted = {"client_id": [self.client], "client_secret": [self.secret]}
        if form.get("grant_type") != ["client_credentials"]:
            return json_response(400, {"error": "unsupported_grant_type"})
        if any(form.get(key) != value for key, value in wanted.items()):
            refusal = {"error": "invalid_client", "error_description": "the client is not known"}
            return json_response(401, refusal)
        self.issued.append(secrets.token_urlsafe())
        return json_response(
            200,
            {"access_token": self.issued[-1], "token_type": "bearer", "expires_in": 3600}
            | {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"},
        )


@dataclass
class S3Tables:
    """Act like S3 Tables in front of a catalog that can do more."""

    verifier: Verifier
    arn: str
    refused: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return quote(self.arn, safe="")

    def __call__(self, request: Request, forward: Forward) -> Response:
        if fault := self.verifier.fault(request):
            return error_response(403, "ForbiddenException", fault)
        if (request.method, request.path) == ("GET", "/v1/config"):
            return self._config(request, forward)
        if lack := self._lack(request):
            self.refused.append(f"{request.method} {request.target}: {lack}")
            return error_response(400, "UnsupportedOperationException", lack)
        return forward(replace(request, target=request.target.replace(f"/{self.prefix}", "", 1)))

    def _config(self, request: Request, forward: Forward) -> Response:
        if request.query.get("warehouse") != [self.arn]:
            return error_response(404, "NotFoundException", "the table bucket does not exist")
        answer = forward(request)
        document = json.loads(answer.body)
        document["overrides"] = {"prefix": self.prefix}
        document["endpoints"] = list(S3_TABLES_ENDPOINTS)
        return json_response(answer.status, document)

    def _lack(self, request: Request) -> str | None:
        if not any(self._matches(endpoint, request) for endpoint in S3_TABLES_ENDPOINTS):
            return "there is no such operation, or a name has other than a-z, 0-9 and _"
        if "parent" in request.query:
            return "namespaces have one level"
        if request.method == "DELETE" and "/tables/" in request.path:
            purged = request.query.get("purgeRequested", [""])[0].lower() == "true"
            return None if purged else "tables are dropped with purge only"
        if request.method == "POST" and request.path.endswith(("/namespaces", "/tables")):
            return _cannot_create(json.loads(request.body))
        return None

    def _matches(self, endpoint: str, request: Request) -> bool:
        method, _, template = endpoint.partition(" ")
        known = template.replace("{prefix}", re.escape(self.prefix))
        pattern = re.sub(r"\{(namespace|table)\}", _NAME, known)
        return request.method == method and re.fullmatch(pattern, request.path) is not None


def _cannot_create(body: dict[str, object]) -> str | None:
    if len(body.get("namespace", ["one"])) != 1:
        return "namespaces have one level"
    if body.get("stage-create"):
        return "stage-create is not supported, so neither is CREATE TABLE AS SELECT"
    return None


def registers_over(request: Request, forward: Forward) -> Response:
    """Register a table in the place of another one: Iceberg's own server does not."""
    document = json.loads(request.body) if request.path.endswith("/register") else {}
    if not document.pop("overwrite", False):
        return forward(request)
    table = request.target.removesuffix("/register") + f"/tables/{document['name']}"
    forward(replace(request, method="DELETE", target=table, body=b""))
    return forward(replace(request, body=json.dumps(document).encode()))
