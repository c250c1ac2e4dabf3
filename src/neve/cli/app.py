"""The `neve` command: global options, exit statuses, and nothing that takes long to import."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer
from typer.exceptions import TyperException

import neve
from neve import failpoints
from neve.cli import (
    buffering,
    catalog,
    changes,
    configuration,
    consolidation,
    debug,
    demo,
    follow,
    health,
    indexing,
    maintaining,
    merging,
    moving,
    reading,
    receive,
    recovering,
    rewriting,
    service,
    shell,
    sql,
    staged,
)
from neve.cli.examples import add_examples
from neve.cli.output import JsonOutput, Output, TextOutput
from neve.errors import EXIT_INTERRUPTED, EXIT_STATUS, EmptyLakeError, NeveError, UsageError
from neve.observe import sentry, traces
from neve.service import log

if TYPE_CHECKING:
    from neve.api import OpenLake
    from neve.config import Loaded

logger = logging.getLogger(__name__)

_FLAGS = {"--json", "-v", "-vv", "-vvv", "--verbose"}
_VALUED = {"--config", "-c"}
_REPEAT_SECONDS = 0.05


@dataclass
class Call:
    """What the global options said; commands get it as their context's object."""

    output: Output
    config: str | None = None
    is_json: bool = False
    verbosity: int = 0
    command: str = "neve"
    # What is removed at the end of the command.
    scratch: ExitStack = field(default_factory=ExitStack)

    def global_options(self) -> list[str]:
        """Return the options that make another process read what this one reads."""
        config = ["--config", self.config] if self.config else []
        json = ["--json"] if self.is_json else []
        return [*config, *json, *["-v"] * self.verbosity]

    def load(self) -> Loaded:
        """Read the configuration, and keep its secrets out of all that follows."""
        from neve.config import load
        from neve.config.reference import secrets_to_mask

        loaded = load(self.config)
        self.output.hide(secrets_to_mask(loaded.settings))
        return loaded

    def open(self, *, reads: bool = False) -> OpenLake:
        """Open the lake.

        Args:
            reads: for a command that changes nothing. An embedded lake that does not exist is not
                made, and looks like an empty one.
        """
        settings = self.load().settings
        traces.start(settings)
        sentry.start(settings)
        if reads and reading.lacks_catalog(settings):
            directory = self.scratch.enter_context(TemporaryDirectory(prefix="neve-empty-"))
            settings = reading.with_empty_catalogs(settings, Path(directory))
        return neve.open(settings, progress=self.output.progress)

    def name_lake(self) -> str:
        """Say which lake was looked at: people are often in the wrong directory."""
        return f"it has no tables yet: {reading.name_lake(self.load())}"


app = typer.Typer(
    name="neve",
    help="Loose data in, clean Apache Iceberg tables out: exactly once, audited, at any version.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("init")(configuration.init)
app.add_typer(configuration.app, name="config")
app.command("serve")(receive.serve)
app.add_typer(buffering.app, name="buffer")
app.command("run")(service.run)
app.command("consolidate")(consolidation.consolidate)
app.add_typer(staged.app, name="staged")
app.command("merge")(merging.merge)
app.add_typer(indexing.app, name="index")
app.add_typer(follow.app, name="follow")
app.command("tables")(catalog.tables)
app.command("describe")(catalog.describe)
app.command("health")(health.health)
app.command("maintain")(maintaining.maintain)
app.command("sql")(sql.sql)
app.command("shell")(shell.shell)
app.command("changes")(changes.changes)
app.command("move")(moving.move)
app.command("rewrite")(rewriting.rewrite)
app.command("recover")(recovering.recover)
app.add_typer(debug.app, name="debug")


def _print_version(context: typer.Context, value: bool) -> None:
    if not value:
        return
    from neve.cli.versions import version_lines, versions

    if isinstance(context.obj.output, JsonOutput):
        context.obj.output.record(versions())
    else:
        sys.stdout.write("\n".join(version_lines()) + "\n")
    raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    config: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option("--config", "-c", metavar="PATH", help="Configuration file [neve.yaml]."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more.")] = 0,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show what is inside, and exit.",
        ),
    ] = False,
) -> None:
    """Take the options that every command knows; they may stand before or after its name."""
    failpoints.check_environment()
    call: Call = context.obj
    call.config = config
    call.verbosity = verbose
    call.command = context.invoked_subcommand or call.command
    call.is_json = json
    call.output = JsonOutput() if json else call.output
    log.configure(verbose, log.PlainFormatter(call.output.redact, tracebacks=verbose > 1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    _prepare_streams()
    _repeat_lost_interrupts()
    status = run(list(sys.argv[1:] if arguments is None else arguments))
    if status == EXIT_INTERRUPTED:
        _exit_now(status)
    sys.exit(status)


def _prepare_streams() -> None:
    """Have streams that take every text.

    Closed ones (`>&-`) become the null device; characters that an encoding lacks are escaped.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _exit_now(status: int) -> NoReturn:
    """End at once: Python's own end takes seconds while Spark's tasks still run."""
    # Whoever should read standard output may have stopped, and would make the flush wait for ever.
    with suppress(OSError, ValueError):
        if not sys.stdout.isatty():
            os.set_blocking(sys.stdout.fileno(), False)
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(status)


def run(arguments: list[str]) -> int:
    """Run the command line; return the exit status; -vv shows tracebacks."""
    arguments = hoist_global_options(arguments)
    # Known before anything is parsed: --version prints while the options are read.
    call = Call(JsonOutput() if _wants_json(arguments) else TextOutput())
    try:
        command = typer.main.get_command(app)
        add_examples(command)
        status = command(arguments, prog_name="neve", standalone_mode=False, obj=call)
    except NeveError as error:
        logger.debug("failed", exc_info=error)
        if isinstance(error, EmptyLakeError):
            error = EmptyLakeError(error.message, hint=call.name_lake())
        call.output.error(error)
        # What was typed or configured wrong is told to whoever did it.
        if error.code not in EXIT_STATUS:
            sentry.capture(error, call.command)
        return error.exit_status
    except TyperException as error:
        return _explain_usage(error, call.output)
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except Exception as error:
        sentry.capture(error, call.command)
        raise
    finally:
        call.scratch.close()
        traces.stop()
        sentry.stop()
    if status == EXIT_INTERRUPTED:
        sys.stderr.write("neve: interrupted\n")
    return status if isinstance(status, int) else 0


def _explain_usage(error: TyperException, output: Output) -> int:
    """Print what was typed wrong, or the help of a command that only has others below it."""
    context: typer.Context | None = getattr(error, "ctx", None)
    # Typer's class of this error is in a private module.
    if context is not None and type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(context.get_help() + "\n")
        return 0
    command = context.command_path if context is not None else "neve"
    output.error(UsageError(error.format_message(), hint=f"see: {command} --help"))
    return error.exit_code


def _repeat_lost_interrupts() -> None:
    """Raise a Ctrl-C again that came where Python cannot raise.

    In a finalizer, of which py4j has many, or in a hook of a fork, Python reports an interrupt as
    ignored and goes on. The alarm that repeats it rings in a moment, when that place is left.
    """
    report = sys.unraisablehook

    def repeat(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, _REPEAT_SECONDS)
        else:
            report(unraisable)

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.unraisablehook = repeat


def hoist_global_options(arguments: list[str]) -> list[str]:
    """Move global options to the front, so that they may stand anywhere before a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments[:end])
    for word in words:
        if word in _FLAGS or word.startswith("--config="):
            front.append(word)
        elif word in _VALUED:
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return front + rest + arguments[end:]


def _wants_json(arguments: list[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]
