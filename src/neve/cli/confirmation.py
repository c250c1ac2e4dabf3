"""The question before something is given up for good."""

from __future__ import annotations

import sys

import typer

from neve.errors import EXIT_FAILED, UsageError


def confirm(command: str, verb: str, question: str) -> None:
    """Ask a person on the terminal; end with 1 unless the answer is yes.

    Args:
        verb: what is done after a yes: `discard`.

    Raises:
        UsageError: nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            f"{command} asks before it {verb}s, and standard input is not a terminal",
            hint=f"say --yes to {verb} without being asked",
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("Nothing was done.\n")
        raise typer.Exit(EXIT_FAILED)
