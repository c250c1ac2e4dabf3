"""`neve demo`: the pipeline on an embedded lake, told step by step, a file for each chapter."""

from neve.cli.demo.story import demo

__all__ = ["demo"]
