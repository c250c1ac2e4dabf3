"""What people see of the settings tree: the values with their sources, a template, a page."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from neve.config.document import KeyPath
from neve.config.load import Loaded
from neve.config.section import ShownBytes, plain_type
from neve.config.settings import Settings
from neve.masking import HIDDEN, SECRET_NAME, mask_logins

_SIZE_NAME = re.compile(r"_bytes(_per_second)?$")
_DURATION_NAME = re.compile(
    r"_seconds$|interval$|_retention$|^(retain|keep_(hourly|daily)|reader_grace|orphan_age|after)$"
)
_WORD = re.compile(r"\w+")

# Values for the template where the default says nothing.
_EXAMPLES = {
    ("catalog", "uri"): "sqlite:///.neve/catalog.db",
    ("catalog", "warehouse"): ".neve/warehouse",
    ("catalog", "token"): "${CATALOG_TOKEN}",
    ("catalog", "credential"): "${CATALOG_CREDENTIAL}",
    ("catalog", "properties"): "{header.x-tenant: shop}",
    ("catalogs",): '{prod: {type: rest, uri: "https://catalog.example.com"}}',
    ("storage", "endpoint"): "http://127.0.0.1:9000",
    ("storage", "region"): "eu-central-1",
    ("storage", "access_key_id"): "${AWS_ACCESS_KEY_ID}",
    ("storage", "secret_access_key"): "${AWS_SECRET_ACCESS_KEY}",
    ("spark", "shared_paths"): "[/mnt/lake]",
    ("merge", "tables"): (
        "[{namespace: shop, changelog_table: orders_log, mirror_table: orders, "
        "primary_keys: [id], sequence_column: [seq]}]"
    ),
    ("spark", "conf"): "{spark.driver.memory: 2g}",
    ("audits",): ("{otel.logs: [{name: has_service, check: not_null, column: service_name}]}"),
    ("telemetry", "promote"): "[{attribute: http.route, from: record, type: string}]",
    ("receive", "tokens"): '[{name: shop, token: "${OTLP_TOKEN}"}]',
    ("receive", "tls"): "{cert: server.pem, key: server.key}",
    ("observe", "http"): "127.0.0.1:9464",
    ("observe", "otlp_endpoint"): "http://127.0.0.1:4318",
    ("observe", "sentry"): '{dsn: "${SENTRY_DSN}"}',
    ("upkeep", "tables"): "{otel.*: {delete_rows_after: 30d}}",
    ("receive", "cors_origins"): '["https://app.example.com"]',
}


def shown_values(loaded: Loaded) -> list[tuple[str, Any, str]]:
    """Return (key, value, source) for every setting, with secrets hidden."""
    return [
        (".".join(key), _shown(key[-1], _masked(key, value)), loaded.source(key))
        for key, value in _leaves(loaded.settings, ())
    ]


def secrets(settings: Settings) -> frozenset[str]:
    """Return every secret of a configuration, for keeping them out of messages."""
    texts: set[str] = set()
    for key, value in _leaves(settings, ()):
        texts.update(_secret_texts(value))
        if isinstance(value, str) and "://" in value:
            texts.update(_address_secrets(value))
        if isinstance(value, str) and _masked(key, value) == HIDDEN:
            # Such as `Bearer TOKEN` in a header.
            texts |= {value, value.rpartition(" ")[2]}
    return frozenset(text for text in texts if text)


def _address_secrets(address: str) -> Iterator[str]:
    parts = urlsplit(address)
    password = parts.password or ""
    yield from (password, unquote(password))
    for name, value in parse_qsl(parts.query):
        if SECRET_NAME.search(name):
            yield from (value, quote(value))


def secrets_to_mask(settings: Settings) -> frozenset[str]:
    """Return the secrets that are hidden wherever they occur in a text.

    Not those that are also a word of what everybody may see, such as the password `postgres` of
    the user `postgres`: stars in place of such a word would tell what the secret is.
    """
    words = {
        word.lower()
        for key, value in _leaves(settings, ())
        for text in (*key, str(_masked(key, value)))
        for word in (text, *_WORD.findall(text))
    }
    return frozenset(secret for secret in secrets(settings) if secret.lower() not in words)


def changed_keys(before: Settings, after: Settings) -> frozenset[str]:
    """Return the keys that two configurations do not have alike."""
    old, new = (dict(_leaves(settings, ())) for settings in (before, after))
    missing = object()
    return frozenset(
        ".".join(key)
        for key in old.keys() | new.keys()
        if old.get(key, missing) != new.get(key, missing)
    )


def _secret_texts(value: Any) -> Iterator[str]:
    """Yield the secrets in a value, a list or a section of a list."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, (tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _secret_texts(item)


def template() -> str:
    """Return a neve.yaml in which every key stands, commented out, with a word on it."""
    lines = [
        "# Neve's configuration. Everything is optional: what stands here commented out is",
        "# the default or an example. Every key is also an environment variable, such as",
        "# NEVE_CATALOG__URI, and ${VAR} or ${VAR:-default} expands inside values.",
    ]
    for name, info in Settings.model_fields.items():
        section = _section(info)
        lines += ["", *_commented(section.__doc__ if section else info.description)]
        if section is None:
            lines.append(f"# {name}: {_example((name,), info)}")
            continue
        lines.append(f"{name}:")
        for key, inner in section.model_fields.items():
            lines += _commented(inner.description, "  ")
            lines.append(f"  # {key}: {_example((name, key), inner)}")
    return "\n".join(lines) + "\n"


def reference_page() -> str:
    """Return the tables of docs/configuration.md."""
    lines = []
    for name, info in Settings.model_fields.items():
        section = _section(info)
        entry = None if section else _entry(info.annotation)
        lines += [
            f"### `{name}`",
            "",
            _sentence(section.__doc__ if section else info.description),
            "",
        ]
        if section:
            lines += _rows(section) + _rows_of_lists(section)
        elif entry:
            lines += _rows(entry)
        else:
            lines += [f"Default: `{info.default}`.", ""]
    return "\n".join(lines)


def _rows(section: type[BaseModel]) -> list[str]:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, info in _keys(section):
        default = _shown(key, _default(info))
        shown = "" if default is None else f"`{_yaml(default)}`"
        rows.append(f"| `{key}` | {_type(key, info)} | {shown} | {info.description} |")
    return [*rows, ""]


def _keys(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the keys of a section, and those of sections inside it by their whole name."""
    for key, info in section.model_fields.items():
        if inner := _section(info):
            yield from _keys(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{info.alias or key}", info


def _rows_of_lists(section: type[BaseModel]) -> list[str]:
    """Return a table for each key that lists sections."""
    lines = []
    for key, info in section.model_fields.items():
        entry = _entry(info.annotation)
        if entry and typing.get_origin(info.annotation) in (tuple, dict):
            lines += [f"Each entry of `{key}`:", "", *_rows(entry)]
    return lines


_TYPE_NAMES: dict[Any, str] = {
    SecretStr: "secret",
    str: "text",
    bool: "true or false",
    int: "number",
    float: "number",
}


def _type(key: str, info: FieldInfo) -> str:
    if _SIZE_NAME.search(key):
        return "size"
    if _DURATION_NAME.search(key):
        return "duration"
    options = [item for item in typing.get_args(info.annotation) if item is not type(None)]
    if options and all(isinstance(item, str) for item in options):
        return ", ".join(f"`{item}`" for item in options)
    kind: Any = plain_type(options[0] if len(options) == 1 else info.annotation)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "section"
    if typing.get_origin(info.annotation) is tuple:
        return "list"
    return _TYPE_NAMES.get(kind, "mapping")


def _leaves(value: Any, key: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, tuple):
        value = tuple(_plain(item) for item in value)
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*key, name))
    else:
        yield key, value


def _plain(item: Any) -> Any:
    """Return a section as it is written in the file."""
    is_section = isinstance(item, BaseModel)
    return item.model_dump(by_alias=True, exclude_unset=True) if is_section else item


def _masked(key: KeyPath, value: Any) -> Any:
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, tuple):
        return tuple(_masked(key, item) for item in value)
    if isinstance(value, dict):
        return {name: _masked((*key, name), item) for name, item in value.items()}
    if isinstance(value, str) and {"properties", "conf"} & set(key) and SECRET_NAME.search(key[-1]):
        return HIDDEN
    return mask_logins(value) if isinstance(value, str) else value


def _shown(name: str, value: Any) -> Any:
    """Return a value as it is printed: a size with its unit."""
    return ShownBytes(value) if isinstance(value, int) and _SIZE_NAME.search(name) else value


def _entry(annotation: Any) -> type[BaseModel] | None:
    """Return what a mapping maps to, or lists, if that is a section."""
    while arguments := [item for item in typing.get_args(annotation) if item is not Ellipsis]:
        annotation = plain_type(arguments[-1])
    return (
        annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    )


def _section(info: FieldInfo) -> type[BaseModel] | None:
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _example(key: KeyPath, info: FieldInfo) -> str:
    if key in _EXAMPLES:
        return _EXAMPLES[key]
    return _yaml(_shown(key[-1], _default(info)))


def _default(info: FieldInfo) -> Any:
    if info.is_required():
        return None
    return info.get_default(call_default_factory=True, validated_data={})


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]"
    return "" if value is None else str(value)


def _commented(text: str | None, indent: str = "") -> list[str]:
    return [f"{indent}# {_sentence(text)}"]


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())
