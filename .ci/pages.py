"""Faults of the built pages.

Links and anchors that lead nowhere, what does not fit on a phone, code that is cut, words that the search must find.
"""

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What visitors look for, and a page that the search must show among others.
SEARCHED = {
    "cite": "explanation/faq",
    "deprecate": "reference/api",
    "install": "explanation/faq",
    "recall": "explanation/evaluation/metrics",
}
WIDEST_CODE = 88  # characters of a line: what is wider is cut at the column, also on a wide screen


class Page(HTMLParser):
    """Anchors, links, whether the width is the device's, tables that cannot be scrolled by themselves, and code."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.has_viewport, self.n_wide_tables = set(), [], False, 0
        self.code, self._in_code, self._divisions, self._outputs = [], False, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Note what is asked about."""
        found = dict(attributes)
        self.ids.update(filter(None, (found.get("id"), found.get("name") if tag == "a" else None)))
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.has_viewport |= tag == "meta" and found.get("name") == "viewport"
        if tag == "pre" and not any(self._outputs):
            self._in_code = True
            self.code.append("")
        if tag == "div":
            self._outputs.append("script-out" in (found.get("class") or ""))
            self._divisions.append("table-wrapper" in (found.get("class") or ""))
        is_index = "index" in (found.get("class") or "")  # Sphinx's own, laid out in columns that wrap
        self.n_wide_tables += tag == "table" and not is_index and not any(self._divisions)

    def handle_endtag(self, tag):
        """Leave a division, or code."""
        self._in_code &= tag != "pre"
        if tag == "div" and self._divisions:
            self._divisions.pop()
            self._outputs.pop()

    def typed(self):
        """Lines of code that somebody types: of an example none that it prints."""
        for code in self.code:
            lines = code.splitlines()
            prompts = any(line.startswith(">>> ") for line in lines)
            yield from (line for line in lines if not prompts or line.startswith((">>> ", "... ")))

    def handle_data(self, data):
        """Keep code."""
        if self._in_code:
            self.code[-1] += data


def faults(folder):
    """What is wrong, by page."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        if not page.has_viewport:
            yield f"{name}: no viewport, so that phones show it small"
        if page.n_wide_tables:
            yield f"{name}: {page.n_wide_tables} tables that do not scroll by themselves"
        has_own_width = {"generated", "_modules"} & {*name.parts}  # docstrings and sources
        for line in page.typed() if not has_own_width else ():
            if len(line) > WIDEST_CODE:
                yield f"{name}: code of {len(line)} characters, at most {WIDEST_CODE}: {line.strip()[:60]}"
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{name}: {link} leads to no file"
            elif target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].ids:
                yield f"{name}: {link} leads to no anchor"


def unfound(folder, searched=None):
    """Words that the search does not find where it should; it goes by stems."""
    from sphinx.search.en import SearchEnglish

    text = (folder / "searchindex.js").read_text()
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    for word, page in (searched or SEARCHED).items():
        stem = SearchEnglish({}).stem(word)
        places = [index[part].get(stem, []) for part in ("terms", "titleterms")]
        numbers = [number for each in places for number in (each if isinstance(each, list) else [each])]
        if page not in [index["docnames"][number] for number in numbers]:
            yield f"the search for {word!r} does not find {page}"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = [*faults(folder), *unfound(folder)]
    print("\n".join(found) or "no fault")
    sys.exit(bool(found))
