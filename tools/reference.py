"""Write the generated parts of docs/ anew: python -m tools.reference."""

from pathlib import Path

from neve.config.reference import reference_page
from tools.schemas import schemas_page

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {
    DOCS / "configuration.md": reference_page,
    DOCS / "from-request-to-table.md": schemas_page,
}
START, END = "<!-- generated: make docs -->\n", "<!-- end -->\n"


def expected_page(page: Path) -> str:
    """Return a page with its tables as the program has them now."""
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{PAGES[page]()}\n{END}{after}"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(expected_page(page), encoding="utf-8")
