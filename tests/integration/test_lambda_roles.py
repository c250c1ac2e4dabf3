"""Events of a function URL into S3 Tables' stand-in and into S3, within what the roles allow."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import unquote, urlsplit

import pytest

from neve.direct.aws_lambda import Function
from neve.lake.catalog import load_table, open_catalog
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.signals import Signal
from tests.support.lakes import plain_settings, s3tables_settings
from tests.support.lambda_function import ask, event
from tests.support.otlp_bodies import protobuf
from tests.support.proxy import running_proxy
from tests.support.templates import DIRECTORY, allowed_actions, read_template

NAMESPACE = "/v1/[^/]+/namespaces/[^/]+"
# Which actions an operation of the REST protocol needs, by the documentation of S3 Tables.
ACTIONS = {
    "GET /v1/config": {"GetTableBucket"},
    "GET /v1/[^/]+/namespaces": {"ListNamespaces"},
    "POST /v1/[^/]+/namespaces": {"CreateNamespace"},
    f"(GET|HEAD) {NAMESPACE}": {"GetNamespace"},
    f"GET {NAMESPACE}/tables": {"ListTables"},
    f"POST {NAMESPACE}/tables": {"CreateTable", "PutTableData"},
    f"GET {NAMESPACE}/tables/[^/]+": {"GetTableMetadataLocation", "GetTableData"},
    f"HEAD {NAMESPACE}/tables/[^/]+": {"GetTable"},
    f"POST {NAMESPACE}/tables/[^/]+": {
        "UpdateTableMetadataLocation",
        "PutTableData",
        "GetTableData",
    },
}


# And an operation on S3, with an object's key.
S3_ACTIONS = {"PUT": "s3:PutObject", "GET": "s3:GetObject", "HEAD": "s3:GetObject"}


@pytest.fixture
def operations():
    return []


@pytest.fixture
def record(operations):
    def record(request, forward):
        operations.append(f"{request.method} {request.path}")
        return forward(request)

    return record


@pytest.fixture
def settings(rest_catalog, s3, s3tables_gate, record):
    with running_proxy(rest_catalog.port, [record, s3tables_gate]) as proxy:
        settings = s3tables_settings(proxy.uri, s3)
        telemetry = settings.telemetry.model_copy(update={"namespace": "from_lambda"})
        yield settings.model_copy(update={"telemetry": telemetry})


def test_an_event_lands_in_s3_tables_with_the_actions_of_the_role(settings, operations):
    function = Function(lambda: settings)
    for number in range(2):
        body = protobuf(Signal.TRACES, f"request {number}", records=3)
        assert ask(function, event("function_url", body, signal=Signal.TRACES)).status == 200
    used = list(operations)
    profile = profile_named(settings, DEFAULT_CATALOG)
    table = load_table(profile, open_catalog(profile), ("from_lambda", "traces"))
    assert len(table.scan().to_arrow()) == 6
    needed = set().union(*(_actions(operation) for operation in used))
    allowed = allowed_actions(read_template(DIRECTORY / "s3-tables.yaml"))
    assert {f"s3tables:{action}" for action in needed} <= allowed
    # What the role may do beyond that is for a namespace that is there, and for other operations
    # that ask whether something exists.
    unused = {action for action in allowed if action.startswith("s3tables:")}
    unused -= {f"s3tables:{action}" for action in needed}
    assert unused <= {"s3tables:GetNamespace", "s3tables:GetTable", "s3tables:ListTables"}


def _actions(operation: str) -> set[str]:
    [actions] = [needed for pattern, needed in ACTIONS.items() if re.fullmatch(pattern, operation)]
    return actions


def test_an_event_lands_in_s3_with_the_actions_of_the_role(s3, record, operations, tmp_path):
    port = urlsplit(s3.endpoint).port
    with running_proxy(port, [record]) as proxy:
        recorded = replace(s3, endpoint=proxy.uri)
        storage = s3tables_settings(proxy.uri, recorded).storage
        plain = plain_settings(tmp_path)
        catalog = plain.catalog.model_copy(update={"warehouse": f"s3://{s3.bucket}/telemetry"})
        settings = plain.model_copy(update={"catalog": catalog, "storage": storage})
        function = Function(lambda: settings)
        body = protobuf(Signal.TRACES, "plain", records=3)
        assert ask(function, event("function_url", body, signal=Signal.TRACES)).status == 200
    template = read_template(DIRECTORY / "s3.yaml")
    allowed = allowed_actions(template)
    for operation in operations:
        method, _, path = unquote(operation).partition(" ")
        assert path.startswith(f"/{s3.bucket}/telemetry/otel/traces/day=")
        assert S3_ACTIONS[method] in allowed
    assert [operation[:4] for operation in operations].count("PUT ") == 1
