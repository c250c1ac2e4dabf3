"""Tables that are copied elsewhere, and rewritten there."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neve.move.inventory import Inventory, list_files
from neve.move.paths import PathMap, Prefix
from neve.move.rewriter import Rewriter, RewrittenTable


def local_path(path: str) -> Path:
    """Return a file; its name is taken letter by letter, as Iceberg does."""
    return Path(path if path.startswith("/") else "/" + path.split(":", 1)[1].lstrip("/"))


def read_local(path: str) -> bytes:
    return local_path(path).read_bytes()


def write_local(path: str, content: bytes) -> None:
    """Write a file unless it is there; then it must be the same."""
    file = local_path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        assert file.read_bytes() == content, f"{path} would be overwritten"
        return
    file.write_bytes(content)


@dataclass(frozen=True)
class Moved:
    """A table that was copied and rewritten; its source does not exist any more."""

    source: Inventory
    table: RewrittenTable
    target: Inventory

    @property
    def location(self) -> str:
        return str(self.table.document["location"])


def load(metadata: str) -> dict[str, Any]:
    return json.loads(read_local(metadata))


def move_directory(metadata: str, source: str, target: str, **options: Any) -> Moved:
    """Copy a table's directory, rewrite it there and delete the source."""
    document = load(metadata)
    inventory = list_files(document, read_local)
    assert inventory.problems == ()
    shutil.copytree(local_path(source), local_path(target))
    paths = PathMap([Prefix(source, target)])
    rewriter = Rewriter(read_local, write_local, paths, target, **options)
    table = rewriter.rewrite(document, inventory)
    shutil.rmtree(local_path(source))
    return Moved(inventory, table, list_files(table.document, read_local))


def check_lengths(moved: Moved) -> None:
    """Every file is where the metadata says, as long as it says, and below the target."""
    assert moved.target.problems == ()
    for file in moved.target.files:
        path = local_path(file.path)
        assert file.path.startswith(moved.location + "/"), file
        assert path.is_file(), file
        assert file.size in (None, path.stat().st_size), file
