"""Run a command as if only the requirements of `make demo` were installed."""

from __future__ import annotations

import re
from importlib.metadata import packages_distributions
from pathlib import Path

_ROOT = Path(__file__).parents[3]


def runtime_only_environment() -> dict[str, str]:
    """Return the variables that hide what requirements/runtime.txt does not have."""
    tests_only = _names("dev") - _names("runtime")
    hidden = [
        module
        for module, distributions in packages_distributions().items()
        if {_normal(name) for name in distributions} <= tests_only
    ]
    return {"PYTHONPATH": str(Path(__file__).parent), "HIDDEN_MODULES": ",".join(sorted(hidden))}


def _names(requirements: str) -> set[str]:
    text = (_ROOT / "requirements" / f"{requirements}.txt").read_text()
    return {_normal(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.M)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
