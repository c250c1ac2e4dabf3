"""docs/versions.md, followed by somebody who copies every block in an empty directory."""

import os
from pathlib import Path

from tests.support.command import NEVE
from tests.support.pages import Reader, blocks_of
from tests.support.servers import SHORT_LIVED_JAVA

PAGE = Path(__file__).parents[2] / "docs" / "versions.md"


def test_every_block_of_the_page_does_what_it_says(tmp_path):
    environment = {"PATH": f"{Path(NEVE).parent}:{os.environ['PATH']}", **SHORT_LIVED_JAVA}
    directory = tmp_path / "versions"
    directory.mkdir()
    blocks = blocks_of(PAGE)
    assert [block.language for block in blocks].count("text") == 4
    Reader(directory, environment).follow(blocks)
