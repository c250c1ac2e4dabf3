"""The CloudFormation templates of deploy/aws, read without CloudFormation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

DIRECTORY = Path(__file__).parents[2] / "deploy" / "aws"
TEMPLATES = tuple(sorted(DIRECTORY.glob("*.yaml")))
TOKEN = "t" * 48


class _Loader(yaml.SafeLoader):
    """Keeps CloudFormation's functions as one-key objects: `!Ref Token` is {"Ref": "Token"}."""


def _function(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        return {suffix: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {suffix: loader.construct_sequence(node, deep=True)}
    return {suffix: loader.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _function)


def read_template(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(), _Loader)


def resolved(value: Any, values: dict[str, str]) -> str:
    """Return a text as CloudFormation would make it, with the given values of what it names."""
    if isinstance(value, str):
        return value
    [(function, argument)] = value.items()
    if function in ("Ref", "GetAtt"):
        return values[argument]
    assert function == "Sub", function
    text = re.sub(r"\$\{([^}]+)\}", lambda name: values[name[1]], argument)
    return re.sub(r"\{\{resolve:secretsmanager:[^}]+\}\}", TOKEN, text)


def allowed_actions(template: dict[str, Any]) -> set[str]:
    """Return what the function's role may do."""
    actions: set[str] = set()
    for policy in template["Resources"]["Role"]["Properties"]["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            named = statement["Action"]
            actions.update([named] if isinstance(named, str) else named)
    return actions
