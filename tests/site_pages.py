"""Dead links of a folder of HTML pages.

    python tests/site_pages.py FOLDER

Each page is opened in a headless browser, where there is one, which also tells what a page
complains of and whether it loads anything from elsewhere; else its HTML is read.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from browser import Page, browser, opened

_LINKS = """[...document.querySelectorAll('[href], [src]')].filter(e => !e.closest('svg'))
    .map(e => e.href || e.src).filter(url => typeof url === 'string')"""
_IDS = "[...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name)"


@dataclass
class Seen:
    """What one page holds.

    Attributes:
        links: absolute addresses that it names.
        ids: what links to places in it can name.
        complaints: what else is wrong with it.
    """

    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)


def read_pages(folder: Path) -> dict[Path, Seen]:
    """Every page of a folder, by reading its HTML."""
    return {path: _read(path) for path in sorted(folder.resolve().rglob("*.html"))}


def _read(path: Path) -> Seen:
    seen = Seen()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for name, value in attrs:
                if name in ("href", "src") and value is not None:
                    seen.links.append(urljoin(path.as_uri(), value))
                elif (name == "id" or (tag, name) == ("a", "name")) and value:
                    seen.ids.add(value)

    Reader().feed(path.read_text(encoding="utf-8"))
    return seen


def visit_pages(folder: Path, program: str) -> dict[Path, Seen]:
    """Every page of a folder, as a browser shows it."""
    with tempfile.TemporaryDirectory() as profile, opened(program, Path(profile)) as page:
        paths = sorted(folder.resolve().rglob("*.html"))
        return {path: _visit(page, path) for path in paths}


def _visit(page: Page, path: Path) -> Seen:
    page.open(path)
    return Seen(page.value_of(_LINKS), set(page.value_of(_IDS)), list(_complaints(page)))


def _complaints(page: Page) -> Iterator[str]:
    for method, told in page.events:
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            yield details.get("exception", {}).get("description", details["text"])
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            yield f"{told['entry']['text']} {told['entry'].get('url', '')}"
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            yield str([argument.get("value") for argument in told["args"]])
        elif method == "Network.requestWillBeSent":
            url = told["request"]["url"]
            if urlsplit(url).scheme not in ("file", "data", "blob"):
                yield f"loads {url}"


def faults_of(pages: dict[Path, Seen], folder: Path) -> list[str]:
    """Complaints of pages, and links to files and anchors that are not there."""
    folder, found = folder.resolve(), []
    for path, seen in pages.items():
        name = path.relative_to(folder)
        found += [f"{name}: {complaint}" for complaint in seen.complaints]
        for link in sorted(set(seen.links)):
            parts = urlsplit(link)
            if parts.scheme != "file":
                continue
            target = Path(unquote(parts.path))
            anchor = unquote(parts.fragment)
            if not target.is_file():
                found.append(f"{name}: there is no {_told(target, folder)}")
            elif anchor and target in pages and anchor not in pages[target].ids:
                found.append(f"{name}: {_told(target, folder)} has no anchor #{anchor}")
    return found


def _told(target: Path, folder: Path) -> str:
    return str(target.relative_to(folder) if target.is_relative_to(folder) else target)


def main(folder: Path) -> int:
    """Look at all pages; 1 if anything is wrong."""
    program = browser()
    pages = read_pages(folder) if program is None else visit_pages(folder, program)
    faults = faults_of(pages, folder)
    print(*faults, sep="\n", end="\n" if faults else "")
    how = "read, without a browser: none was found" if program is None else "opened in a browser"
    print(f"{folder}: {len(pages)} pages {how}; {len(faults)} faults")
    return int(bool(faults) or not pages)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
