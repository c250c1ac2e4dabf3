"""The command line: parse, call one feature, print text or JSON."""

from neve.cli.app import main

__all__ = ["main"]
