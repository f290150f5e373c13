"""What was built is whole: links and anchors lead somewhere, pictures have texts, nothing is fetched from elsewhere."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links, anchors, pictures without a text and foreign files of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.wrong: list[str] = []
        self.drawing = False  # just inside of an <svg>, whose title must come first
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in given}
        self.anchors |= {attributes[name] for name in ("id", "name") if name in attributes}
        if self.drawing and tag != "title":
            self.wrong.append("a drawing without a title")
        self.drawing = tag == "svg" and attributes.get("role") == "img"
        if tag == "img" and not attributes.get("alt", "").strip():
            self.wrong.append(f"no text for the picture {attributes.get('src')}")
        loaded = attributes.get("href" if tag == "link" else "src", "")
        if urlsplit(loaded).scheme in ("http", "https") or loaded.startswith("//"):
            self.wrong.append(f"{loaded} is fetched from elsewhere")
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])


def main(site: Path) -> int:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    wrong = [f"{path.name}: {words}" for path, page in pages.items() for words in page.wrong]
    links = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            links += 1
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not place.exists():
                wrong.append(f"{path.name}: {link} leads nowhere")
            elif anchor and place in pages and anchor not in pages[place].anchors:
                wrong.append(f"{path.name}: {link} names no place on its page")
    sys.stdout.write("".join(f"{line}\n" for line in sorted(set(wrong))))
    sys.stdout.write(f"{len(pages)} pages and {links} links within them checked, {len(set(wrong))} wrong\n")
    return bool(wrong) or not pages


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
