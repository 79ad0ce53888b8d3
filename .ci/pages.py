"""Find faults of the built pages.

Faults are dead links and anchors, tables and code that are too wide, and words that the search does not find.
"""

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Words that visitors search for, each with a page that the search must find.
SEARCHED = {
    "cite": "explanation/faq",
    "deprecate": "reference/api",
    "install": "explanation/faq",
    "recall": "explanation/evaluation/metrics",
}
MAX_CODE_WIDTH = 88  # characters; the page's column cuts longer lines, also on a wide screen


class Page(HTMLParser):
    """Collect the anchors, links, code and viewport of a page, and count its tables that do not scroll."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.has_viewport, self.n_wide_tables = set(), [], False, 0
        self.code, self._in_code, self._divisions, self._outputs = [], False, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Note the properties of an element."""
        values = dict(attributes)
        self.ids.update(filter(None, (values.get("id"), values.get("name") if tag == "a" else None)))
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.has_viewport |= tag == "meta" and values.get("name") == "viewport"
        if tag == "pre" and not any(self._outputs):
            self._in_code = True
            self.code.append("")
        if tag == "div":
            self._outputs.append("script-out" in (values.get("class") or ""))
            self._divisions.append("table-wrapper" in (values.get("class") or ""))
        is_index = "index" in (values.get("class") or "")  # the columns of Sphinx's index wrap
        self.n_wide_tables += tag == "table" and not is_index and not any(self._divisions)

    def handle_endtag(self, tag):
        """Note the end of a division or of code."""
        self._in_code &= tag != "pre"
        if tag == "div" and self._divisions:
            self._divisions.pop()
            self._outputs.pop()

    def typed(self):
        """Yield the lines of code without the output of examples."""
        for code in self.code:
            lines = code.splitlines()
            prompts = any(line.startswith(">>> ") for line in lines)
            yield from (line for line in lines if not prompts or line.startswith((">>> ", "... ")))

    def handle_data(self, data):
        """Append the text of code."""
        if self._in_code:
            self.code[-1] += data


def faults(folder):
    """Yield the faults of all pages below a folder."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        if not page.has_viewport:
            yield f"{name}: no viewport, so that phones show it small"
        if page.n_wide_tables:
            yield f"{name}: {page.n_wide_tables} tables that do not scroll by themselves"
        is_from_source = {"generated", "_modules"} & {*name.parts}  # docstrings and sources have longer lines
        for line in page.typed() if not is_from_source else ():
            if len(line) > MAX_CODE_WIDTH:
                yield f"{name}: code of {len(line)} characters, at most {MAX_CODE_WIDTH}: {line.strip()[:60]}"
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
    """Yield the words for which the search, which compares stems, does not find the page."""
    from sphinx.search.en import SearchEnglish

    text = (folder / "searchindex.js").read_text()
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    for word, page in (searched or SEARCHED).items():
        stem = SearchEnglish({}).stem(word)
        entries = [index[part].get(stem, []) for part in ("terms", "titleterms")]
        numbers = [number for entry in entries for number in (entry if isinstance(entry, list) else [entry])]
        if page not in [index["docnames"][number] for number in numbers]:
            yield f"the search for {word!r} does not find {page}"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    messages = [*faults(folder), *unfound(folder)]
    print("\n".join(messages) or "no fault")
    sys.exit(bool(messages))
