"""Files of deletion vectors with other paths: a new footer, the vectors byte for byte. Pure.

Vectors stay at their offsets, which manifests record. https://iceberg.apache.org/puffin-spec/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neve.lake.puffin import edit_footer

_DATA_FILE = "referenced-data-file"


def rewrite_deletion_vectors(content: bytes, path: str, target: Callable[[str], str]) -> bytes:
    """Return a Puffin file whose vectors belong to other data files.

    Raises:
        CorruptionError: this is no whole Puffin file.
    """

    def map_paths(footer: dict[str, Any]) -> None:
        for blob in footer["blobs"]:
            properties = blob.get("properties") or {}
            if _DATA_FILE in properties:
                properties[_DATA_FILE] = target(properties[_DATA_FILE])

    return edit_footer(content, path, map_paths)
