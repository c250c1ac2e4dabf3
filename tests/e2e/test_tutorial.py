"""docs/tutorial.md, followed by somebody who copies every block in an empty directory."""

import os
from pathlib import Path

from tests.support.command import NEVE
from tests.support.pages import Reader, blocks_of
from tests.support.process import free_port
from tests.support.servers import SHORT_LIVED_JAVA
from tests.support.warm_command import WarmCommand

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_every_block_of_the_tutorial_does_what_the_page_says(embedded_lake, tmp_path):
    """`embedded_lake` keeps Spark running, so that only `neve run` starts its own."""
    # The page has the standard ports, which are perhaps not free here.
    http = f"127.0.0.1:{free_port()}"
    environment = {
        "PATH": f"{Path(NEVE).parent}:{os.environ['PATH']}",
        "NEVE_RECEIVE__HTTP": http,
        "NEVE_RECEIVE__GRPC": f"127.0.0.1:{free_port()}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{http}",
        **SHORT_LIVED_JAVA,
    }
    directory = tmp_path / "tutorial"
    directory.mkdir()
    blocks = blocks_of(PAGE)
    assert {block.language for block in blocks} == {"yaml", "python", "bash", "sql", "text"}
    Reader(directory, environment, WarmCommand(tmp_path)).follow(blocks)
