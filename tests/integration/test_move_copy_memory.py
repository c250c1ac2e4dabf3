"""Copies need memory for parts, not for files."""

from __future__ import annotations

import pytest

from tests.support.peak_memory import grown_megabytes

MOST_MEGABYTES = 400
PREPARATION = """
from tests.support.file_stores import local_store, s3_store
from tests.support.servers import S3Server
with open({path!r}, "wb") as file:
    file.truncate(2 << 30)
store, files = s3_store({server!r}), local_store()
"""
WORK = """
there = store.copy_in(files, {path!r}, {target!r})
back = files.copy_in(store, {target!r}, {path!r} + ".back")
assert there.checksum == back.checksum and back.size == 2 << 30
"""


@pytest.mark.soak
def test_a_file_of_two_gibibytes_takes_the_memory_of_its_parts(s3, tmp_path):
    values = {
        "path": str(tmp_path / "large"),
        "server": s3,
        "target": f"s3://{s3.bucket}/{tmp_path.name}/large",
    }
    grown = grown_megabytes(PREPARATION.format(**values), WORK.format(**values))
    assert grown < MOST_MEGABYTES
