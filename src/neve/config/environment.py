"""Settings in the environment: NEVE_SECTION__KEY.

Not every variable that begins with NEVE_ is a setting. Beside a Service called `neve` Kubernetes
sets NEVE_PORT, NEVE_SERVICE_HOST and others, which have one `_` where settings have two.
"""

from __future__ import annotations

import os
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from neve.config.cache import CACHE_VARIABLE
from neve.config.document import KeyPath
from neve.config.settings import Settings
from neve.config.spelling import nearest
from neve.errors import ConfigError
from neve.failpoints import ENVIRONMENT_VARIABLE as FAILPOINT_VARIABLE

PREFIX = "NEVE_"
DELIMITER = "__"
CONFIG_VARIABLE = "NEVE_CONFIG"
_OTHER_VARIABLES = (CONFIG_VARIABLE, CACHE_VARIABLE, FAILPOINT_VARIABLE)
# How alike a name must be to a section's to be taken for a misspelt one.
_MISSPELT = 0.75


class _Environment(Settings, BaseSettings):
    """The same keys as environment variables."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=DELIMITER, env_ignore_empty=False
    )


def read_environment() -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """Return the values that the environment sets, and the variable of each key.

    Raises:
        ConfigError: a variable is meant as a setting, and is none.
    """
    variables = {key: name for name in os.environ if (key := _key(name))}
    try:
        values = EnvSettingsSource(_Environment)()
    except SettingsError as error:
        raise ConfigError(
            f"environment: {error}", hint="lists and mappings are written as JSON there"
        ) from error
    return values, variables


def _key(variable: str) -> KeyPath | None:
    """Return the key that a variable sets; None for a variable that is not a setting."""
    name = variable.upper()
    if not name.startswith(PREFIX) or name in _OTHER_VARIABLES:
        return None
    key = tuple(part.lower() for part in name.removeprefix(PREFIX).split(DELIMITER))
    if key[0] in Settings.model_fields:
        if len(key) > 1 and not _has_keys(key[0]):
            raise _unknown(variable, PREFIX + key[0].upper())
        return key
    # A misspelt NEVE_RECEIVE__TOKENS that is silently ignored would let everybody in.
    section = nearest(key[0], Settings.model_fields, _MISSPELT) if len(key) > 1 else None
    if section:
        meant = PREFIX + DELIMITER.join((section, *key[1:])).upper()
        raise _unknown(variable, meant)
    return None


def _has_keys(section: str) -> bool:
    return not isinstance(Settings.model_fields[section].default, str)


def _unknown(variable: str, meant: str) -> ConfigError:
    return ConfigError(
        f"environment variable {variable} is no setting; did you mean {meant}?",
        hint="unset it; docs/configuration.md explains every key",
    )
