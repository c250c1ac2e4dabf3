"""From file and environment to settings, remembering where each value came from."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from neve.config.document import Document, KeyPath, read_document
from neve.config.environment import CONFIG_VARIABLE, read_environment
from neve.config.paths import DIRECTORY
from neve.config.section import plain_type
from neve.config.settings import Settings
from neve.config.spelling import nearest
from neve.errors import ConfigError

DEFAULT_FILE = "neve.yaml"


@dataclass(frozen=True)
class Loaded:
    """Settings together with where each value came from."""

    settings: Settings
    path: Path | None
    sources: Mapping[KeyPath, str] = field(default_factory=dict)

    def source(self, key: KeyPath) -> str:
        for length in range(len(key), 0, -1):
            if key[:length] in self.sources:
                return self.sources[key[:length]]
        return "default"


def load(path: str | Path | None = None) -> Loaded:
    """Read settings from `path`, else $NEVE_CONFIG, else ./neve.yaml, else the defaults.

    The environment wins over the file. Reads only; nothing is contacted.
    """
    file = _find_file(path)
    document = read_document(file, os.environ) if file else Document(Path(DEFAULT_FILE))
    from_environment, variables = read_environment()
    values = _merge(document.values, from_environment)
    sources = _sources(document, from_environment, variables)
    for name, info in Settings.model_fields.items():
        if values.get(name) is None and not isinstance(info.default, str):
            # A section left empty in the file means its defaults; and defaults hold relative
            # paths, which only validation resolves.
            values[name] = {}
    directory = file.parent.resolve() if file else Path.cwd()
    try:
        settings = Settings.model_validate(values, context={DIRECTORY: directory})
    except ValidationError as error:
        raise _explain(error, document, variables) from error
    return Loaded(settings, file, sources)


def _find_file(path: str | Path | None) -> Path | None:
    named = path or os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named).expanduser()
    default = Path(DEFAULT_FILE)
    return default if default.exists() else None


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if nested else value
    return merged


def _sources(
    document: Document, from_environment: Mapping[str, Any], variables: Mapping[KeyPath, str]
) -> dict[KeyPath, str]:
    """Return where each key was set; what a section leaves out is a default."""
    sources = {
        key: _file_source(document, key)
        for key in document.lines.keys() - document.sections()
        if not _is_empty_section(key, _value(document.values, key))
    }
    for key, variable in variables.items():
        for leaf, value in _leaves(_value(from_environment, key), key):
            if not _is_empty_section(leaf, value):
                sources[leaf] = variable
    return sources


def _leaves(value: Any, key: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*key, name))
    else:
        yield key, value


def _value(values: Any, key: KeyPath) -> Any:
    for part in key:
        if isinstance(values, dict):
            values = values.get(part)
        elif isinstance(values, list) and part.isdigit():
            values = values[int(part)]
        else:
            return None
    return values


def _is_empty_section(key: KeyPath, value: Any) -> bool:
    return value in (None, {}) and bool(_known_names(key))


def _file_source(document: Document, key: KeyPath) -> str:
    place = document.place(key) or document.path.name
    reference = document.references.get(key)
    return f"{place} ({reference})" if reference else place


def _explain(
    error: ValidationError, document: Document, variables: Mapping[KeyPath, str]
) -> ConfigError:
    problems = [_problem(item, document, variables) for item in error.errors(include_input=False)]
    return ConfigError("; ".join(problems), hint="docs/configuration.md explains every key")


def _problem(item: ErrorDetails, document: Document, variables: Mapping[KeyPath, str]) -> str:
    key = tuple(str(part) for part in item["loc"])
    name = ".".join(key)
    variable = next(
        (variables[key[:n]] for n in range(len(key), 0, -1) if key[:n] in variables), ""
    )
    place = variable or document.place(key) or str(document.path)
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key {name}; {_known_keys(key)}"
    message = item["msg"].removeprefix("Value error, ")
    return f"{place}: {name}: {message}" if name else f"{place}: {message}"


def _known_keys(unknown: KeyPath) -> str:
    """Name the key that was probably meant, or those there are."""
    names = _known_names(unknown[:-1])
    meant = nearest(unknown[-1], names)
    return f"did you mean {meant}?" if meant else f"there are {', '.join(names)}"


def _known_names(key: KeyPath) -> list[str]:
    """List the keys that may stand below `key`."""
    model: Any = Settings
    for part in key:
        if part.isdigit():
            continue  # a place in a list, whose entries are all alike
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[part].annotation if part in model.model_fields else None
        elif typing.get_origin(model) is dict:
            model = typing.get_args(model)[1]
        model = _section_type(model)
    fields = model.model_fields if _is_section(model) else {}
    return [info.alias or name for name, info in fields.items()]


def _section_type(annotation: Any) -> Any:
    arguments = (plain_type(argument) for argument in typing.get_args(annotation))
    options = [option for option in arguments if _is_section(option)]
    return options[0] if options and typing.get_origin(annotation) is not dict else annotation


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
