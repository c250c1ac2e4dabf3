"""The command line: parse, call one feature, print text or JSON."""

from neve.cli.main import main

__all__ = ["main"]
