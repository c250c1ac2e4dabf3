"""Run the blocks of a page as a reader copies them, and compare what the page says is printed.

The rules, which hold for every page that is run:

- A `python`, `sql` or `yaml` block that begins with a comment with a file name is that file.
- A `bash` block is typed in a terminal. A `text` block after it is what it prints. Its `neve` may
  work in this process (tests/support/warm_command.py).
- ```` ```bash second ```` is typed in a second terminal, where it goes on running. A later
  ```` ```text second ```` is waited for there; if it begins with `^C`, Ctrl-C is pressed before.
- `...` on a line of its own stands for any lines.
- Ids, times, durations, ages, addresses, the reader's directory and the spaces between columns
  differ from run to run: they are masked. An id that the page shows stands for the id that came in
  its place, also in later blocks: readers take it from their own screen.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.wait import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.warm_command import WarmCommand

_FENCE = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"(?:#|--) (\S+\.(?:py|sql|yaml))\n")
_ID = re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{16}|\d{16,19})\b")
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:s|seconds)(?: ago)?(?=\W|$)"), "SECONDS"),
    (re.compile(r"\b\d+[dhms](?: \d+[hms])?\b"), "AGE"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"(?<=\s)/\S*/(?=\.neve\b)"), ""),
    (_ID, "ID"),
)
_BLOCK_SECONDS = 240


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    terminal: str
    text: str

    @property
    def file_name(self) -> str | None:
        """The file that the block is, if it is one."""
        named = _FILE_NAME.match(self.text)
        return named[1] if named else None


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks that have a language, in their order."""
    found = _FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(language, terminal, text) for language, terminal, text in found]


def masked(text: str) -> list[list[str]]:
    """Return the words of each line that has some, without what differs from run to run."""
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return [words for line in text.splitlines() if (words := line.split())]


def differs(shown: str, printed: str) -> str:
    """Return what is printed and not shown, or the reverse; nothing if they agree."""
    actual = iter(masked(printed))
    gap = False
    for line in masked(shown):
        if line == ["..."]:
            gap = True
            continue
        candidates: Iterator[list[str]] = actual if gap else iter([next(actual, [])])
        if line not in candidates:
            return f"the page shows {' '.join(line)!r}, which is not printed there"
        gap = False
    rest = [] if gap else list(actual)
    return f"the page does not show {' '.join(rest[0])!r}" if rest else ""


class Reader:
    """Someone who follows a page in an empty directory.

    Args:
        warm: does what `neve` is told; None: the command on the path does.
    """

    def __init__(
        self, directory: Path, environment: dict[str, str], warm: WarmCommand | None = None
    ) -> None:
        self._directory = directory
        self._warm = warm
        self._environment = {**os.environ, **environment}
        self._ids: dict[str, str] = {}
        self._printed = ""
        self._second: subprocess.Popen[str] | None = None
        self._second_log = directory.parent / f"{directory.name}-second-terminal"

    def follow(self, blocks: Sequence[Block]) -> None:
        """Do what the blocks say, in their order."""
        try:
            for block in blocks:
                self._follow(block)
        finally:
            if self._second:
                os.killpg(self._second.pid, signal.SIGKILL)
                self._second.wait()

    def _follow(self, block: Block) -> None:
        if block.file_name:
            (self._directory / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.language == "bash" and block.terminal:
            self._open_second_terminal(block.text)
        elif block.language == "bash":
            self._printed = self._run(block.text)
        elif block.language == "text" and block.terminal:
            self._await_in_second_terminal(block.text)
        elif block.language == "text":
            self._compare(block.text)

    def _run(self, commands: str) -> str:
        for shown, real in self._ids.items():
            commands = commands.replace(shown, real)
        bash = ["bash", "-euo", "pipefail", "-c", commands]
        if self._warm:
            ran = self._warm.run(bash, self._directory, self._environment, _BLOCK_SECONDS)
        else:
            ran = subprocess.run(
                bash,
                cwd=self._directory,
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_BLOCK_SECONDS,
            )
        assert ran.returncode == 0, f"{commands}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def _compare(self, shown: str) -> None:
        difference = differs(shown, self._printed)
        assert not difference, f"{difference}:\n{self._printed}"
        self._ids |= dict(zip(_ID.findall(shown), _ID.findall(self._printed), strict=False))

    def _open_second_terminal(self, commands: str) -> None:
        with self._second_log.open("w") as log:
            self._second = subprocess.Popen(
                ["bash", "-c", f"exec {commands.strip()}"],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _await_in_second_terminal(self, shown: str) -> None:
        assert self._second, "the page opened no second terminal"
        second = self._second
        interrupted = shown.startswith("^C")
        if interrupted:
            os.killpg(second.pid, signal.SIGINT)

        def says_it() -> bool:
            says = not differs(
                f"...\n{shown.removeprefix('^C')}\n...", self._second_log.read_text()
            )
            ended = second.poll() is not None
            assert says or interrupted or not ended, self._second_log.read_text()
            return says and ended == interrupted

        try:
            until(says_it, seconds=_BLOCK_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{shown}\nnot in:\n{self._second_log.read_text()}") from error
        if interrupted:
            assert second.returncode == 0, self._second_log.read_text()
            self._second = None
