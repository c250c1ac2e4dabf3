"""The handler in a process of its own, as AWS Lambda runs it: found by its name, fed with JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from neve.config import Settings

ROOT = Path(__file__).parents[2]
_REQUIREMENTS = ROOT / "requirements" / "lambda.txt"
# As the runtime's bootstrap does; events by standard input, a line each.
_PROGRAM = """
import importlib, json, sys

package, missing = json.loads(sys.argv[1])
if package:
    sys.path.insert(0, package)

class Missing:
    def find_spec(name, *_):
        if name in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
handler = getattr(importlib.import_module("neve.direct"), "lambda_handler")
for line in sys.stdin:
    print(json.dumps({"answer": handler(json.loads(line), None)}))
"""


class HandlerProcess:
    """What a process answered and logged."""

    def __init__(self, stdout: str, stderr: str) -> None:
        lines = [json.loads(line) for line in stdout.splitlines()]
        self.answers = [line["answer"] for line in lines if "answer" in line]
        self.metrics = [line for line in lines if "_aws" in line]
        self.log = [json.loads(line) for line in stderr.splitlines()]


def run_handler(
    events: Iterable[Any],
    environment: Mapping[str, str],
    directory: Path,
    *,
    package: Path | None = None,
    missing: Iterable[str] = (),
) -> HandlerProcess:
    """Have a new process answer events.

    Args:
        environment: variables that set the configuration.
        package: where everything is imported from; None: this environment.
        missing: modules that cannot be imported.
    """
    isolation = ["-I", "-S"] if package else []
    argument = json.dumps([str(package) if package else None, sorted(missing)])
    done = subprocess.run(
        [sys.executable, *isolation, "-c", _PROGRAM, argument],
        input="".join(json.dumps(event) + "\n" for event in events),
        cwd=directory,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return HandlerProcess(done.stdout, done.stderr)


def modules_beside_the_package() -> set[str]:
    """Return the modules of this environment that the package for Lambda lacks.

    Top-level ones, and the second level of those that several distributions share.
    """
    lines = _REQUIREMENTS.read_text().splitlines()
    names = {line.partition("==")[0] for line in lines if "==" in line and line[0].isalpha()}
    packaged, others = set(), set()
    for distribution in distributions():
        modules = packaged if _name(distribution) in {"neve", *names} else others
        for file in distribution.files or ():
            first, *rest = file.with_suffix("").parts
            second = rest[0].partition(".")[0] if rest else "__init__"
            modules |= {first.partition(".")[0], f"{first}.{second}"}
    return others - packaged


def _name(distribution: Distribution) -> str:
    return distribution.metadata["Name"].lower().replace("_", "-")


def variables(settings: Settings, **further: str) -> dict[str, str]:
    """Return a catalog and its storage as environment variables."""
    texts = {}
    for section in ("catalog", "storage"):
        for key, value in getattr(settings, section):
            shown = value.get_secret_value() if hasattr(value, "get_secret_value") else value
            if shown not in (None, {}):
                texts[f"NEVE_{section}__{key}".upper()] = str(shown)
    return texts | further
