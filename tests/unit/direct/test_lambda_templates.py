"""The CloudFormation templates: valid, and in agreement with the program."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from neve.config import load
from neve.direct.spec import direct_spec
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from tests.support.templates import TEMPLATES, TOKEN, allowed_actions, read_template, resolved

ARN = "arn:aws:s3tables:eu-central-1:123456789012:bucket/neve-123456789012"
VALUES = {
    "AWS::StackName": "neve",
    "AWS::Region": "eu-central-1",
    "TableBucket.TableBucketARN": ARN,
    "Bucket": "neve-bucket",
    "Token": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:Token",
    "Namespace": "otel",
}


def test_both_pass_cfn_lint():
    assert [path.name for path in TEMPLATES] == ["s3-tables.yaml", "s3.yaml"]
    cfn_lint = Path(sys.executable).with_name("cfn-lint")
    command = [str(cfn_lint), *map(str, TEMPLATES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_the_function_is_configured_by_known_settings(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    function = read_template(path)["Resources"]["Function"]["Properties"]
    variables = function["Environment"]["Variables"]
    for name, value in variables.items():
        monkeypatch.setenv(name, resolved(value, VALUES))
    loaded = load()
    # Each variable sets something, and nothing else does.
    assert set(loaded.sources.values()) == set(variables)
    settings = loaded.settings
    [token] = settings.receive.tokens
    assert token.token.get_secret_value() == TOKEN
    profile = profile_named(settings, DEFAULT_CATALOG)
    assert profile.settings.type == ("s3tables" if path.stem == "s3-tables" else "none")
    assert profile.settings.warehouse in (ARN, "s3://neve-bucket/telemetry")
    assert direct_spec(settings).namespace == "otel"
    # One request to a server that does not answer leaves time to answer in.
    template = read_template(path)
    seconds = template["Parameters"]["TimeoutSeconds"]["Default"]
    assert settings.storage.timeout_seconds + settings.storage.connect_timeout_seconds < seconds / 2


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_the_handler_exists(path):
    handler = read_template(path)["Resources"]["Function"]["Properties"]["Handler"]
    module, _, name = handler.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


def test_the_roles_may_not_do_more_than_write():
    s3_tables, s3 = (allowed_actions(read_template(path)) for path in TEMPLATES)
    for action in s3_tables | s3:
        assert "*" not in action
        assert not action.partition(":")[2].startswith(("Delete", "Rename"))
    assert {action.partition(":")[0] for action in s3_tables} == {"s3tables", "logs"}
    assert {action.partition(":")[0] for action in s3} == {"s3", "logs"}
