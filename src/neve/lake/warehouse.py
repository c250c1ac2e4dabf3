"""What is made in a warehouse must be where its name says, for every engine."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from neve.errors import ConfigError, UnsupportedError
from neve.lake.paths import require_usable_places, unusable_part
from neve.lake.profile import CatalogProfile


def require_usable_warehouse(profile: CatalogProfile) -> None:
    """Refuse a warehouse in which files would be made in another place than it names.

    Raises:
        ConfigError: an engine takes part of the name for something else; or as
            `require_one_spelling`.
    """
    require_one_spelling(profile)
    location, key = profile.warehouse, f"{profile.section}.warehouse"
    if not location or not (location.startswith("file:") or "://" in location):
        # A name that a server knows.
        return
    try:
        require_usable_places(location)
    except UnsupportedError as error:
        raise ConfigError(f"{key}: {error.message}", hint=error.hint) from error
    if profile.sqlite_file and "?" in str(profile.sqlite_file):
        raise ConfigError(
            f"{profile.section}.uri: Java's driver ends the file's name {profile.sqlite_file} at ?",
            hint="choose a directory without it",
        )


def require_one_spelling(profile: CatalogProfile) -> None:
    """Refuse a local warehouse if the lake is in a directory of another spelling.

    Raises:
        ConfigError: earlier versions made the lake under the name as in a URL; or the name is
            written as in a URL, and the directory is not.
    """
    directory, key = profile.local_warehouse, f"{profile.section}.warehouse"
    if directory is None:
        return
    encoded = Path(directory.as_uri().removeprefix("file://"))
    if _is_another_lake(encoded, directory):
        old, new = shlex.quote(str(encoded)), shlex.quote(str(directory))
        # Tables name their files by absolute paths.
        parent = shlex.quote(str(directory.parent))
        move = f"move them: mkdir -p {parent} && mv -T {old} {new} && ln -s {new} {old}"
        stay = f"set {key} to {encoded}"
        raise ConfigError(
            f"the tables of {key} {str(directory)!a} are in {encoded}, where earlier versions "
            "put them",
            hint=stay if unusable_part(str(directory)) else f"{move}, or {stay}",
        )
    is_address = profile.warehouse == profile.settings.warehouse
    if is_address and (meant := _decoded(directory)):
        raise ConfigError(
            f"{key} names {directory}, letter by letter, which does not exist, and {meant} does",
            hint=f"write spaces and other letters as they are: {meant}",
        )


def _is_another_lake(encoded: Path, directory: Path) -> bool:
    """Tell whether the directory of a name as in a URL has files, and is not the named one."""
    if encoded == directory or os.path.realpath(encoded) == os.path.realpath(directory):
        return False
    try:
        return any(encoded.iterdir())
    except OSError:
        return False


def _decoded(directory: Path) -> Path | None:
    """Return the directory that is there, where its name was written as in a URL."""
    with suppress(OSError):
        for each in (directory, *directory.parents):
            decoded = Path(unquote(str(each)))
            if each.exists():
                return None
            if decoded.exists():
                return decoded / unquote(str(directory.relative_to(each)))
    return None
