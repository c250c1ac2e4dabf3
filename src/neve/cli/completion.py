"""What the shell offers on TAB: tables, mirrors, namespaces and held batches, from a cache.

A TAB must never be slow. Names come from a file that is at most a minute old. Without one, another
process fills it; the shell waits a second for it, and is offered nothing if that is not enough.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import typer

_FRESH_SECONDS = 60.0
_WAIT_SECONDS = 1.0
_POLL_SECONDS = 0.02
# A fill that takes longer is ended.
_FILL_SECONDS = 20
# What else than the file decides which lake is meant. None is a secret, once logins are removed.
_VARIABLES = (
    "NEVE_CATALOG__TYPE",
    "NEVE_CATALOG__URI",
    "NEVE_CATALOG__WAREHOUSE",
    "NEVE_TELEMETRY__NAMESPACE",
)
_LOGIN = re.compile(r"//[^/@]*@")
_FILL = "import sys; from neve.cli.completion import fill; fill(*sys.argv[1:])"

Names = dict[str, Any]


def complete_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the tables of the lake."""
    return _beginning(_names(context).get("tables", ()), incomplete)


def complete_namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the namespaces that have tables."""
    from neve.lake.identifier import name_of, parse_identifier

    tables: list[str] = _names(context).get("tables", [])
    return _beginning({name_of(parse_identifier(table)[:-1]) for table in tables}, incomplete)


def complete_mirrors(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the configured mirrors."""
    return _beginning(_names(context).get("mirrors", ()), incomplete)


def complete_held_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the tables that have staged or held batches."""
    return _beginning(_names(context).get("batches", ()), incomplete)


def complete_batches(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the batches of the table that was named before."""
    batches: dict[str, list[str]] = _names(context).get("batches", {})
    return _beginning(batches.get(str(context.params.get("table")), ()), incomplete)


def fill(file: str, config: str = "") -> None:
    """Read the lake and write the cache file. Runs in a process of its own, which it may end."""
    import signal

    signal.alarm(_FILL_SECONDS)
    path = Path(file)
    # Names are nobody else's business, though none of them is a secret.
    os.umask(0o077)
    # Also tells others that this process is at it.
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.touch()
    try:
        temporary.write_text(json.dumps(_read_names(config or None)))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_names(config: str | None) -> Names:
    import neve
    from neve.config import load
    from neve.lake.identifier import name_of
    from neve.publish.staged_list import list_staged

    settings = load(config).settings
    mirrors = [f"{table.namespace}.{table.mirror_table}" for table in settings.merge.tables]
    batches: dict[str, list[str]] = {}
    with neve.open(settings, progress=lambda _: None) as lake:
        if not lake.profile.has_catalog:
            return {"tables": [], "mirrors": mirrors, "batches": {}}
        tables = [name_of(name) for name in lake.reader().list_tables()]
        for batch in list_staged(lake, on_failure=lambda *_: None):
            batches.setdefault(batch.table, []).append(batch.batch_id)
    return {"tables": tables, "mirrors": mirrors, "batches": batches}


def _names(context: typer.Context) -> Names:
    """Return what is in the cache, filled if need be; nothing if that takes too long or fails."""
    config = context.find_root().params.get("config") or os.environ.get("NEVE_CONFIG") or ""
    with suppress(OSError, ValueError):
        path = _cache_file(config)
        if not _is_fresh(path):
            _fill_in_background(path, config)
        names: Names = json.loads(path.read_text())
        return names
    return {}


def _cache_file(config: str) -> Path:
    from neve.config import cache_directory

    file = Path(config or "neve.yaml").absolute()
    changed = file.stat().st_mtime_ns if file.exists() else 0
    values = [_LOGIN.sub("//", os.environ.get(name, "")) for name in _VARIABLES]
    key = json.dumps([str(file), changed, *values])
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return cache_directory() / "completion" / f"{name}.json"


def _is_fresh(path: Path) -> bool:
    return path.exists() and time.time() - path.stat().st_mtime < _FRESH_SECONDS


def _fill_in_background(path: Path, config: str) -> None:
    """Start a process that fills the cache, and wait a moment for it.

    What is stale is removed: it must not be offered, nor stay for ever.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in path.parent.iterdir():
        if not _is_fresh(old):
            old.unlink(missing_ok=True)
    if list(path.parent.glob(f"{path.stem}.*")):
        has_ended = path.exists  # another process is at it
    else:
        has_ended = partial(_has_ended, _start_fill(path, config))
    deadline = time.monotonic() + _WAIT_SECONDS
    while not has_ended() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _start_fill(path: Path, config: str) -> int:
    """Start a process that outlives this one and that Ctrl-C does not reach; return its id."""
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    command = [sys.executable, "-c", _FILL, str(path), config]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=nothing, setpgroup=0)


def _has_ended(process_id: int) -> bool:
    return os.waitpid(process_id, os.WNOHANG)[0] == process_id


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
