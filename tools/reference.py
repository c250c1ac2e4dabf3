"""Write the generated part of docs/configuration.md anew: python -m tools.reference."""

from pathlib import Path

from neve.config.reference import reference_page

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
START, END = "<!-- generated: make docs -->\n", "<!-- end -->\n"


def expected_page() -> str:
    """Return the page with its tables as the settings tree has them now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{reference_page()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(expected_page(), encoding="utf-8")
