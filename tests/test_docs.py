"""Pages can be trusted: links lead somewhere, pictures say what they show, files and commands that are named exist."""

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import fedseq
from fedseq import FedSeqError
from fedseq.cli import build_parser, config_from
from fedseq.options.config import all_options

ROOT = Path(__file__).parents[1]
ROOMS = ("docs", "benchmarks", "results", ".github")
PAGES = sorted([*ROOT.glob("*.md"), *(page for room in ROOMS for page in (ROOT / room).rglob("*.md"))])
DOCS = [page for page in PAGES if ROOT / "docs" in page.parents]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def tokens(page: Path) -> list[Token]:
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(), flags=re.S)  # the head of a notebook
    return MarkdownIt("gfm-like", {"linkify": False}).parse(text)


def inline(page: Path, kind: str) -> Iterator[Token]:
    return (inner for token in tokens(page) for inner in token.children or () if inner.type == kind)


@cache
def anchors(page: Path) -> set[str]:
    """A name for each heading, as repositories' pages and MyST make it: `-1`, `-2` behind those that come again."""
    found: set[str] = set()
    for before, token in zip(tokens(page), tokens(page)[1:], strict=False):
        if before.type == "heading_open":
            words = "".join(inner.content for inner in token.children or ())
            slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            found.add(next(name for name in [slug, *(f"{slug}-{n}" for n in range(1, 99))] if name not in found))
    return found


def targets(page: Path) -> Iterator[str]:
    for kind, attribute in (("link_open", "href"), ("image", "src")):
        yield from (str(token.attrs[attribute]) for token in inline(page, kind))


@EVERY_PAGE
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target in targets(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{target}: there is no such file"
        assert not anchor or anchor in anchors(place), f"{target}: the page has {', '.join(sorted(anchors(place)))}"


@EVERY_PAGE
def test_pictures_say_what_they_show(page: Path) -> None:
    for picture in inline(page, "image"):
        assert len(picture.content.split()) >= 3, f"{picture.attrs['src']}: describe it for who cannot see it"


@EVERY_PAGE
def test_files_that_are_named_exist(page: Path) -> None:
    for code in inline(page, "code_inline"):
        if re.fullmatch(r"(src|tests|docs|examples|benchmarks|\.ci)/[\w/.-]+", code.content):
            assert (ROOT / code.content).exists(), code.content


@EVERY_PAGE
def test_tables_are_whole(page: Path) -> None:
    """A row with a cell too many or too few is drawn all the same, with the rest cut off or left empty."""
    source = page.read_text().splitlines()
    offset = source.index("---", 1) + 1 if source[:1] == ["---"] else 0
    for token in tokens(page):
        if token.type == "table_open" and token.map:
            rows = [line for line in source[offset + token.map[0] : offset + token.map[1]] if line.strip()]
            counts = {len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) for row in rows}
            assert len(counts) == 1, f"the table at line {token.map[0] + 1} has rows of different length"


def commands(page: Path) -> Iterator[str]:
    """Each `fedseq ...` in a block of commands, up to a comment or the next command."""
    blocks = "\n".join(token.content for token in tokens(page) if token.type == "code_block")
    for line in re.findall(r"^\s*fedseq (.+)$", blocks.replace("\\\n", " "), re.M):
        yield re.split(r"\s{3,}|[#;>]", line)[0].replace("RUN...", "RUN")


def test_commands_can_be_given() -> None:
    """Options exist, and those of a run go together."""
    found = [(page, command.split()) for page in PAGES for command in commands(page)]
    assert len(found) > 50
    parser = build_parser()
    for page, words in found:
        if "--help" not in words and "..." not in words:
            try:
                arguments = parser.parse_args(words)
                if words[0] == "run" and not arguments.config and arguments.preset != "list":
                    config_from(arguments)
            except FedSeqError as error:
                pytest.fail(f"{page.relative_to(ROOT)}: fedseq {' '.join(words)}: {error}")


def test_the_reading_order_names_every_page() -> None:
    """docs/README.md, from which the site has its navigation, names all; that of a folder the pages of its folder."""
    overviews = [page for page in DOCS if page.name == "README.md"]
    listed = {(overview.parent / target).resolve() for overview in overviews for target in targets(overview)}
    assert {str(page.relative_to(ROOT)) for page in set(DOCS) - listed} == {"docs/README.md", "docs/index.md"}


def test_every_field_of_published_metrics_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "run-folder.md").read_text()))
    lines = [path.read_text().splitlines()[-1] for path in (ROOT / "results").rglob("metrics.jsonl")]
    assert {field for line in lines for field in json.loads(line)} - explained == set()


def test_the_api_page_has_every_public_name() -> None:
    named = set(re.findall(r"^### `fedseq\.(\w+)", (ROOT / "docs" / "api.md").read_text(), re.M))
    assert named == set(fedseq.__all__) - {"__version__"}


def test_the_reference_pages_are_made_of_the_code_as_it_is() -> None:
    asked = runpy.run_path(str(ROOT / "docs" / "reference.py"))
    for name, page in asked["PAGES"].items():
        assert (ROOT / "docs" / name).read_text() == page(), "run: make reference"


def test_every_option_has_a_heading_and_a_link_to_it() -> None:
    text = (ROOT / "docs" / "options.md").read_text()
    flags = [row.flag for row in all_options().values()]
    assert sorted(re.findall(r"^### `(.+)`$", text, re.M)) == sorted(flags)
    assert sorted(re.findall(r"\[`(--[\w-]+)`\]\(#\1\)", text)) == sorted(flags)


def test_the_check_of_the_built_site_finds_what_is_wrong(tmp_path: Path) -> None:
    good = '<a href="b.html#here">b</a> <img src="x.png" alt="a curve"> <svg role="img"><title>a curve</title></svg>'
    bad = (
        '<p id="here"></p> <a href="c.html">c</a> <a href="a.html#there">a</a> <a href="https://example.org">far</a>'
        '<img src="x.png" alt=""> <svg role="img"><path d=""/></svg> <script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "a.html").write_text(good)
    asked = [sys.executable, str(ROOT / "docs" / "check_site.py"), str(tmp_path)]
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    assert subprocess.run(asked, capture_output=True).returncode == 0
    (tmp_path / "b.html").write_text(bad)
    found = subprocess.run(asked, capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stdout.splitlines() == [
        "b.html: a drawing without a title",
        "b.html: a.html#there names no place on its page",
        "b.html: c.html leads nowhere",
        "b.html: https://example.org/x.js is fetched from elsewhere",
        "b.html: no text for the picture x.png",
        "2 pages and 3 links within them checked, 5 wrong",
    ]
