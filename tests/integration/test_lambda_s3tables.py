"""An event of a function URL into the stand-in for S3 Tables, with no more than its role may do."""

from __future__ import annotations

import re

import pytest

from neve.direct.aws_lambda import Function
from neve.lake.catalog import load_table, open_catalog
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.signals import Signal
from tests.support.lakes import s3tables_settings
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


@pytest.fixture
def operations():
    return []


@pytest.fixture
def settings(rest_catalog, s3, s3tables_gate, operations):
    def record(request, forward):
        operations.append(f"{request.method} {request.path}")
        return forward(request)

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
