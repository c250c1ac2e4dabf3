"""docs/versions.md, followed by somebody who copies every block in an empty directory."""

from pathlib import Path

from tests.support.pages import Reader, blocks_of
from tests.support.warm_command import WarmCommand

PAGE = Path(__file__).parents[2] / "docs" / "versions.md"


def test_every_block_of_the_page_does_what_it_says(embedded_lake, tmp_path):
    """`embedded_lake` keeps Spark running, so that no block starts its own."""
    directory = tmp_path / "versions"
    directory.mkdir()
    blocks = blocks_of(PAGE)
    assert [block.language for block in blocks].count("text") == 4
    Reader(directory, {}, WarmCommand(tmp_path)).follow(blocks)
