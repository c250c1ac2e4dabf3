"""Rewrite a table whose files somebody has copied already: no source, no catalog is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neve.errors import CorruptionError, UnsupportedError, UsageError
from neve.lake.metadata_json import MetadataJson, decode_document
from neve.lake.paths import require_usable_places
from neve.move.check_files import wrong_files
from neve.move.inventory import list_files
from neve.move.leave_behind import without_index
from neve.move.paths import PathMap, Prefix
from neve.move.rewriter import Rewriter, RewrittenTable
from neve.move.stores import CatalogFiles
from neve.move.workers import Workers

_GZIP = b"\x1f\x8b"
_MOST_NAMED = 3


@dataclass(frozen=True)
class _CopiedFiles:
    """Reads files by the paths that they had before they were copied. Pickled for
    other processes."""

    files: CatalogFiles
    paths: PathMap

    def __call__(self, path: str) -> bytes:
        return self.files.store.read(self.paths.required_target(path))


def rewrite_copied(
    files: CatalogFiles,
    metadata: str,
    prefixes: Sequence[Prefix],
    workers: Workers,
) -> RewrittenTable:
    """Write metadata that names the copied files, beside them, under new names.

    Idempotent; nothing is overwritten, and nothing is written before every file is there.

    Args:
        metadata: the path of the metadata file, where it lies now.
        prefixes: where the files were, and where they are.
        workers: read the manifests, and rewrite them.

    Raises:
        CorruptionError: a file is missing, or has another length than the table says.
        UnsupportedError: the table cannot be rewritten, or not every engine would read it there.
        UsageError: the table's location lies below none of the prefixes.
    """
    content = files.store.read(metadata)
    try:
        table = MetadataJson(metadata, decode_document(content))
        location = table.location
    except (ValueError, LookupError, TypeError, EOFError, OSError) as error:
        raise CorruptionError(f"{metadata} is no metadata file of a table") from error
    paths = PathMap(prefixes)
    target = paths.directory(location)
    if target is None:
        raise UsageError(
            f"the table's location is {location}, which lies below no --from",
            hint=f"--from {location} --to …",
        )
    require_usable_places(target)
    table = without_index(table)
    read = _CopiedFiles(files, paths)
    inventory = list_files(table.document, read, workers=workers, path=metadata)
    if inventory.problems:
        raise UnsupportedError(_some([str(problem) for problem in inventory.problems]))
    copied = [replace(file, path=paths.required_target(file.path)) for file in inventory.files]
    wrong = list(wrong_files(replace(inventory, files=tuple(copied)), files.store))
    if wrong:
        raise CorruptionError(
            f"the copy is not whole: {_some(wrong)}", hint="nothing was written; copy them first"
        )
    rewriter = Rewriter(read, files.write, paths, target, workers=workers)
    rewritten = rewriter.rewrite(table.document, inventory, compressed=content.startswith(_GZIP))
    # The books: files and records of the copied table = files and records of the rewritten one.
    written = list_files(rewritten.document, files.store.read, workers=workers, path=metadata)
    if written.problems or written.tally != inventory.tally:
        raise CorruptionError(
            f"the rewritten table has {written.tally}, and the copied one {inventory.tally}",
            hint=f"do not register {rewritten.metadata.path}; run the command again",
        )
    return rewritten


def _some(lines: Sequence[str]) -> str:
    more = f", and {len(lines) - _MOST_NAMED} more" if len(lines) > _MOST_NAMED else ""
    return "; ".join(lines[:_MOST_NAMED]) + more
