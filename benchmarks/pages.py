"""Tables in pages of the documentation, between markers that name them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS, IMAGES = ROOT / "docs", ROOT / "docs/images"


def fill(pages: Sequence[Path], tables: Mapping[str, str]) -> None:
    """Replace what stands between the markers of each table, on whichever of these pages they are."""
    for page in pages:
        text = page.read_text()
        for name, table in tables.items():
            begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
            if begin in text:
                before, rest = text.split(begin)
                text = before + begin + table + end + rest.split(end)[1]
        page.write_text(text)
