"""Check the built documentation: `python -m tools.site_check build/site`, the last step of `make docs`.

A page must be whole without JavaScript, so scripts are left out before it is read: its text must be there, its links
must lead to files and anchors of the site, and nothing may be loaded from another host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

DOCS = Path(__file__).parents[1] / "docs"
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
NAMED_ONLY = {"canonical", "prev", "next", "alternate"}  # kinds of <link> that name a page and load nothing


@dataclass
class Page(HTMLParser):
    """The words, links and anchors of a page, as a browser without JavaScript finds them."""

    words: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    hidden: int = 0  # inside <script> or <style>

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.hidden += tag in ("script", "style")
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADED.get(tag) in given and given.get("rel") not in NAMED_ONLY:
            self.loaded.append(given[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.words += re.findall(r"\w+", data)


@cache
def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def first_words(source: Path) -> list[str]:
    """Return the words of a page's first paragraph, which says whom the page is for."""
    paragraph = source.read_text(encoding="utf-8").split("\n\n")[1]
    return re.findall(r"\w+", re.sub(r"\]\([^)]*\)", "]", paragraph))


def problems_of(path: Path, site: Path) -> Iterator[str]:
    page = read(path)
    for target in page.loaded:
        if urlsplit(target).netloc:
            yield f"loads {target} from another host"
    for target in [*page.links, *page.loaded]:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        found = found / "index.html" if found.is_dir() else found
        if not found.is_relative_to(site) or not found.exists():
            yield f"{target} leads nowhere"
        elif parts.fragment and found.suffix == ".html" and unquote(parts.fragment) not in read(found).anchors:
            yield f"{target} names an anchor that is not there"


def check(site: Path, docs: Path = DOCS) -> list[str]:
    """Return what is wrong with the site, one line for each problem."""
    site = site.resolve()
    read.cache_clear()  # a folder of the same name may have held another site before
    found = []
    for source in sorted(docs.rglob("*.md")):
        name = source.relative_to(docs).with_suffix(".html")
        if not (site / name).exists():
            found.append(f"{name}: is not built")
            continue
        if " ".join(first_words(source)) not in " ".join(read(site / name).words):
            found.append(f"{name}: its first paragraph is not in it without JavaScript")
        found += [f"{name}: {problem}" for problem in problems_of(site / name, site)]
    return found


def main() -> int:
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or "site: every page is whole without JavaScript, and its links lead somewhere")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
