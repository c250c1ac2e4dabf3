"""`neve init` and `neve config`."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from neve import failpoints
from neve.errors import EXIT_FAILED, ConfigError
from neve.masking import SecretMask

app = typer.Typer(help="Show the configuration, or test it.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Show the configuration, or test it."""


def init(
    context: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented neve.yaml with every key in it. Atomic: the whole file, or none."""
    from neve.config.load import DEFAULT_FILE
    from neve.config.reference import template

    path = Path(context.obj.config or DEFAULT_FILE)
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already", hint="keep it, or replace it with --force")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(template(), encoding="utf-8")
        failpoints.reach("init.written")
        scratch.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", hint="name another place with --config"
        ) from error
    context.obj.output.record({"written": str(path)})
    option = f" --config {path}" if str(path) != DEFAULT_FILE else ""
    context.obj.output.say(
        f"Next: uncomment what you need in it, then run: neve{option} config check\n"
        f"It works as it is, too: neve{option} run"
    )


@app.command()
def show(context: typer.Context) -> None:
    """Show every setting, its value and where it came from; secrets stay hidden."""
    from neve.config.reference import shown_values

    rows = [
        {"key": key, "value": value, "source": source}
        for key, value, source in shown_values(context.obj.load())
    ]
    context.obj.output.rows(("key", "value", "source"), rows)


@app.command()
def check(context: typer.Context) -> None:
    """Check audits and promotions, then talk to the catalogs, the storage and Spark."""
    call = context.obj
    settings = call.load().settings
    from neve.config.reference import secrets_to_mask
    from neve.consolidate.check import audit_checks, check_tables
    from neve.direct.check import checks as direct_checks
    from neve.lake.probe import checks
    from neve.merge.check import checks as mirror_checks
    from neve.observe.failures import failure_of

    check_tables(settings)
    mask = SecretMask(secrets_to_mask(settings))
    rows = []
    probes = chain(
        checks(settings, call.output.progress),
        direct_checks(settings),
        audit_checks(settings, call.open),
        mirror_checks(settings, call.open),
    )
    for what, probe in probes:
        with call.output.working(f"checking {what}"):
            try:
                rows.append({"check": what, "result": "ok", "detail": probe(), "hint": None})
            except Exception as error:  # noqa: BLE001 - the other checks have their turn
                failure = failure_of(error, f"config check {what}")
                rows.append(
                    {
                        "check": what,
                        "result": failure.code.value,
                        "detail": mask(failure.message),
                        "hint": failure.hint and mask(failure.hint),
                    }
                )
    call.output.rows(("check", "result", "detail", "hint"), rows)
    if any(row["result"] != "ok" for row in rows):
        raise typer.Exit(EXIT_FAILED)
