"""Local paths in settings: relative ones start where neve.yaml lies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

EMBEDDED_DIRECTORY = ".neve"
DIRECTORY = "directory"  # the validation context's key: where relative paths start


def resolve_path(value: str, info: ValidationInfo) -> str:
    """Make a local path absolute, counted from where neve.yaml lies; leave addresses alone."""
    if "://" in value or value.startswith(("arn:", "file:")):
        return value
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        user = value.partition("/")[0]
        raise ValueError(f"{user} is no user's home directory; write ./{value}") from error
    return str(Path((info.context or {}).get(DIRECTORY, "."), path).resolve())


LocalPath = Annotated[str, AfterValidator(resolve_path)]
