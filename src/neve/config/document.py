"""neve.yaml as plain values, with the line of every key and `${VAR}` expanded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from neve.errors import ConfigError

KeyPath = tuple[str, ...]

# $${VAR} is a literal ${VAR}; a name left open is caught as malformed below.
_REFERENCE = re.compile(r"\$?\$\{(?P<name>[^}:]*)(?::-(?P<default>[^}]*))?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Document:
    """The values of one file and where each stands in it."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    references: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, key: KeyPath) -> str | None:
        """Say where `key`, or the nearest thing around it, stands: `neve.yaml:12`."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.lines:
                return f"{self.path.name}:{self.lines[key[:length]]}"
        return None

    def sections(self) -> set[KeyPath]:
        """Return the keys that have other keys, and not the entries of a list, below them."""
        return {key[:-1] for key in self.lines if not key[-1].isdigit()}


def read_document(path: Path, environment: Mapping[str, str]) -> Document:
    """Read a YAML file into plain values, or say which line is wrong."""
    document = Document(path)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "unknown place"
        raise ConfigError(
            f"{path}: malformed YAML at {place}: {error.problem or error.context}",
            hint="check the indentation and quotes there",
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a YAML text file", hint="save it as UTF-8 text") from error
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}",
            hint="name another file with --config, or write one with: neve init",
        ) from error
    if root is None:
        return document
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            f"{path}: the top level must be a mapping of sections",
            hint="write one with: neve init",
        )
    document.values = _Reader(document, environment).mapping(root, ())
    return document


class _Reader:
    """Turns nodes into values, keeping lines; aliases and merge keys have no use here."""

    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self.document = document
        self.environment = environment
        self.constructor = yaml.SafeLoader("")
        self.open_nodes: set[int] = set()

    def mapping(self, node: yaml.MappingNode, key: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name = str(self.constructor.construct_object(key_node))
            inner, line = (*key, name), key_node.start_mark.line + 1
            if name in values:
                raise ConfigError(
                    f"{self.document.path}:{line}: {'.'.join(inner)} is set twice",
                    hint="keep one of the two",
                )
            self.document.lines[inner] = line
            values[name] = self.value(value_node, inner)
        return values

    def value(self, node: yaml.Node, key: KeyPath) -> Any:
        if id(node) in self.open_nodes:
            raise ConfigError(
                f"{self.document.path}: {'.'.join(key)} contains itself",
                hint="write the value out instead of an alias",
            )
        self.open_nodes.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, key)
            if isinstance(node, yaml.SequenceNode):
                return [self.entry(item, (*key, str(at))) for at, item in enumerate(node.value)]
            value = self.constructor.construct_object(node)
            return self.expand(value, key) if isinstance(value, str) else value
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(
                f"{self.document.path}:{node.start_mark.line + 1}: {'.'.join(key)} "
                "has a value that cannot be read",
                hint="put quotes around it if it is meant as text",
            ) from error
        finally:
            self.open_nodes.discard(id(node))

    def entry(self, node: yaml.Node, key: KeyPath) -> Any:
        self.document.lines[key] = node.start_mark.line + 1
        return self.value(node, key)

    def expand(self, text: str, key: KeyPath) -> str:
        def replacement(reference: re.Match[str]) -> str:
            if reference[0].startswith("$$"):
                return reference[0][1:]
            name, default = reference["name"], reference["default"]
            if not _NAME.fullmatch(name):
                raise self.problem(key, f"holds {reference[0]}, which names no variable")
            self.document.references[key] = f"${{{name}}}"
            if name in self.environment:
                return self.environment[name]
            if default is None:
                raise self.problem(key, f"needs the environment variable {name}, which is not set")
            return default

        return _REFERENCE.sub(replacement, text)

    def problem(self, key: KeyPath, what: str) -> ConfigError:
        line = self.document.lines.get(key)
        place = f"{self.document.path}:{line}" if line else str(self.document.path)
        return ConfigError(
            f"{place}: {'.'.join(key)} {what}",
            hint="set it, write ${NAME:-default}, or $${NAME} for the text itself",
        )
