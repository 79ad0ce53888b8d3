"""The reference by public name: `reference/index.md` lists modules, and readers see what to import.

What `fastfedrec` or one of its folders offers has a page of that name, `fastfedrec.DPGram`; a module with a short name
has one for all of its members, `fastfedrec.als`; what is left stands under its module's own name.
"""

import importlib
import inspect
import re

from fastfedrec.core.names import HOMES, MODULES

#: Folders whose `__all__` is what one imports from.
FOLDERS = ("evaluation", "accounting", "datasets", "mechanisms", "audit", "engines", "testing")
LISTED = re.compile(r"^   (fastfedrec\.[\w.]+)$", re.MULTILINE)
BACK = re.compile(r'(<a class="viewcode-back" href="[^"#]*)#[^"]*')
_SHORT = {f"fastfedrec.{place}": f"fastfedrec.{name}" for name, place in MODULES.items() if name not in FOLDERS}


def public_name(module, name):
    """The shortest place to import one name of a module from; None where that is the module itself."""
    found = getattr(module, name)
    if name in HOMES and module.__name__ == f"fastfedrec.{HOMES[name]}":
        return f"fastfedrec.{name}"
    if module.__name__ in _SHORT:
        return None
    for folder in FOLDERS:
        offers = importlib.import_module(f"fastfedrec.{folder}")
        if name in offers.__all__ and getattr(offers, name) is found:
            return f"{offers.__name__}.{name}"
    return None


def pages_of(place):
    """Pages of a listed module: of each the title, and a list of (full name, object) that it shows."""
    module = importlib.import_module(place)
    pages, left = {}, []
    for name in module.__all__:
        full = public_name(module, name)
        if full:
            pages[full] = [(full, getattr(module, name))]
        else:
            left.append((f"{_SHORT.get(place, place)}.{name}", getattr(module, name)))
    return pages | ({_SHORT.get(place, place): left} if left else {})


def page(title, members, about=""):
    """The page as reStructuredText."""
    # Out of the navigation, which every page repeats: two hundred names there double the build.
    lines = [":orphan:", "", ".. rst-class:: module-page", "", title, "=" * len(title), "", about, ""]
    if not (len(members) == 1 and members[0][0] == title):
        lines += [f".. py:module:: {title}", ""]
    for full, found in members:
        lines += [f".. auto{_kind(found)}:: {full}"]
        lines += ["   :members:", "   :inherited-members:"] if inspect.isclass(found) else []
        lines += [""]
    return "\n".join(lines)


def _kind(found):
    if inspect.isclass(found):
        return "exception" if issubclass(found, Exception) else "class"
    return "function" if callable(found) and hasattr(found, "__code__") else "data"


class Reference:
    """All pages, made of the index's list."""

    def __init__(self, index):
        self.index = index
        self.pages = {place: pages_of(place) for place in LISTED.findall(index.read_text())}
        names = [full for pages in self.pages.values() for members in pages.values() for full, _ in members]
        short = [full.rpartition(".")[2] for full in names]
        # A word of the text that is a class's, or has two parts, means that name; `load` alone may be anything.
        self.by_word = {
            word: full
            for word, full in zip(short, names, strict=True)
            if short.count(word) == 1 and (word[0].isupper() or "_" in word)
        }

    def write(self, folder):
        """Write every page, and remove those of earlier builds."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {}
        for place, pages in self.pages.items():
            for title, members in pages.items():
                shown = len(members) == 1 and members[0][0] == title
                about = "" if shown else (inspect.getdoc(importlib.import_module(place)) or "")
                texts[f"{title}.rst"] = page(title, members, about)
        for path in folder.glob("*.rst"):
            if path.name not in texts:
                path.unlink()
        for name, text in texts.items():
            path = folder / name
            if not path.exists() or path.read_text() != text:  # else Sphinx reads it anew
                path.write_text(text)

    def connect(self, app):
        """Write the pages when a build begins, and link words in them."""
        app.connect("builder-inited", lambda _: self.write(self.index.parent / "generated"))
        app.connect("source-read", self.expand)
        app.connect("missing-reference", self.resolve)
        app.connect("html-page-context", self.open_at_the_top)

    def expand(self, app, name, source):
        """Put public names in place of the index's modules."""
        if name == "reference/index":
            source[0] = LISTED.sub(lambda found: "\n".join(f"   {title}" for title in self.pages[found[1]]), source[0])

    def resolve(self, app, environment, node, content):
        """Find what a single word in backticks means."""
        full = self.by_word.get(node.get("reftarget", "").removesuffix("()"))
        if node.get("refdomain") != "py" or full is None:
            return None
        domain = environment.domains["py"]
        return domain.resolve_xref(environment, node["refdoc"], app.builder, "obj", full, node, content)

    def open_at_the_top(self, app, page, template, context, doctree):
        """Lead from sources back to pages: their anchors are public names, not those of modules."""
        if page.startswith("_modules/"):
            context["body"] = BACK.sub(r"\1", context.get("body", ""))
