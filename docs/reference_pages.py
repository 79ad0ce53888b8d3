"""The reference by public name: `reference/index.md` lists modules, and readers see the names to import.

A name that `fastfedrec` or one of its folders exports has its own page, `fastfedrec.DPGram`; a module with a short name
has one page for all of its members, `fastfedrec.als`; all other names are on the page of their module, and the index
lists these modules last.
"""

import functools
import importlib
import inspect
import re

from fastfedrec.accounting import events
from fastfedrec.core.names import HOMES, MODULES

#: Folders with an `__all__` from which users import.
FOLDERS = ("evaluation", "accounting", "datasets", "mechanisms", "audit", "engines", "testing", "engines.flower")
OTHERS = ".. other-modules"  # line of the index where the modules without an exported name are listed
GROUP = re.compile(r"^\.\. rubric:: .*?(?=^\.\. rubric::|^```)", re.MULTILINE | re.DOTALL)
LISTED = re.compile(r"^   (fastfedrec\.[\w.]+)$", re.MULTILINE)
BACK = re.compile(r'(<a class="viewcode-back" href="[^"#]*)#[^"]*')
_SHORT = {f"fastfedrec.{path}": f"fastfedrec.{name}" for name, path in MODULES.items() if name not in FOLDERS}


def public_name(module, name):
    """Return the shortest path to import one name of a module; None if that is the module itself."""
    member = getattr(module, name)
    if name in HOMES and module.__name__ == f"fastfedrec.{HOMES[name]}":
        return f"fastfedrec.{name}"
    if module.__name__ in _SHORT:
        return None
    for folder in FOLDERS:
        package = importlib.import_module(f"fastfedrec.{folder}")
        if name in package.__all__ and getattr(package, name) is member:
            return f"{package.__name__}.{name}"
    return None


def pages_of(path):
    """Return {title: [(full name, object), ...]} of the pages of a listed module."""
    module = importlib.import_module(path)
    pages, members = {}, []
    for name in module.__all__:
        full = public_name(module, name)
        if full:
            pages[full] = [(full, getattr(module, name))]
        else:
            members.append((f"{_SHORT.get(path, path)}.{name}", getattr(module, name)))
    return pages | ({_SHORT.get(path, path): members} if members else {})


def page(title, members, about=""):
    """Return the page as reStructuredText."""
    # Every page repeats the navigation, where two hundred names would double the time of the build.
    lines = [":orphan:", "", ".. rst-class:: module-page", "", title, "=" * len(title), "", about, ""]
    if not (len(members) == 1 and members[0][0] == title):
        lines += [f".. py:module:: {title}", ""]
    for full, member in members:
        lines += [f".. auto{_kind(member)}:: {full}"]
        if inspect.isclass(member):
            # NumPy documents the members of its classes, and Python those of texts.
            others = [base.__name__ for base in member.__mro__ if base.__module__.startswith("numpy.") or base is str]
            lines += ["   :members:", f"   :inherited-members: {', '.join(['object', *others])}"]
        lines += [""]
    return "\n".join(lines)


def _kind(member):
    if inspect.isclass(member):
        return "exception" if issubclass(member, Exception) else "class"
    return "function" if callable(member) and hasattr(member, "__code__") else "data"


def source_module(module, name):
    """Return the module of the file with an event's code, since an event names its folder; None for other members."""
    if not module.startswith("fastfedrec.accounting"):  # other names may be of no module, such as `fastfedrec.nmf`
        return None
    member = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    if getattr(member, "__module__", "") != events.__name__:
        return None
    functions = filter(inspect.isfunction, vars(member).values())
    return next((function.__module__ for function in functions), None)


def is_exported(title):
    """Check whether a page has a name, or a module with a short name, that `fastfedrec` or a folder exports."""
    package, _, name = title.rpartition(".")
    return package in {"fastfedrec", *(f"fastfedrec.{folder}" for folder in FOLDERS)} and (
        package == "fastfedrec" or name in importlib.import_module(package).__all__
    )


def summaries(titles):
    """Return a table of pages with the first sentences of their docstrings."""
    return "\n".join([".. autosummary::", "   :nosignatures:", "", *(f"   {title}" for title in titles), ""])


class Reference:
    """The reference pages of all modules in the index."""

    def __init__(self, index):
        self.index = index
        self.pages = {path: pages_of(path) for path in LISTED.findall(index.read_text())}
        names = [full for pages in self.pages.values() for members in pages.values() for full, _ in members]
        short = [full.rpartition(".")[2] for full in names]
        # A class name, or a word with an underscore, is linked; a word such as `load` is ambiguous.
        self.by_word = {
            word: full
            for word, full in zip(short, names, strict=True)
            if short.count(word) == 1 and (word[0].isupper() or "_" in word)
        }

    def write(self, folder):
        """Write every page, and remove pages of earlier builds."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {}
        for module, pages in self.pages.items():
            for title, members in pages.items():
                single = len(members) == 1 and members[0][0] == title
                about = "" if single else (inspect.getdoc(importlib.import_module(module)) or "")
                texts[f"{title}.rst"] = page(title, members, about)
        for path in folder.glob("*.rst"):
            if path.name not in texts:
                path.unlink()
        for name, text in texts.items():
            path = folder / name
            if not path.exists() or path.read_text() != text:  # Sphinx rereads changed files
                path.write_text(text)

    def connect(self, app):
        """Register the steps that write the pages at the start of a build and link their words."""
        app.connect("builder-inited", lambda _: self.write(self.index.parent / "generated"))
        app.connect("source-read", self.expand)
        app.connect("missing-reference", self.resolve)
        app.connect("viewcode-follow-imported", lambda _, module, name: source_module(module, name))
        app.connect("html-page-context", self.open_at_the_top)

    def expand(self, app, name, source):
        """Replace the index's modules by public names."""
        if name == "reference/index":
            source[0] = self.by_use(source[0])

    def by_use(self, index):
        """Return the index with the names to import in their groups, and the other modules at their line."""
        others = [title for pages in self.pages.values() for title in pages if not is_exported(title)]

        def exported(group):
            titles = [title for path in LISTED.findall(group[0]) for title in self.pages[path] if is_exported(title)]
            heading = group[0].partition("\n")[0]
            return f"{heading}\n\n{summaries(titles)}\n" if titles else ""

        return GROUP.sub(exported, index).replace(OTHERS, summaries(others))

    def resolve(self, app, environment, node, content):
        """Return the link of a single word in backticks, or None."""
        full = self.by_word.get(node.get("reftarget", "").removesuffix("()"))
        if node.get("refdomain") != "py" or full is None:
            return None
        domain = environment.domains["py"]
        return domain.resolve_xref(environment, node["refdoc"], app.builder, "obj", full, node, content)

    def open_at_the_top(self, app, page, template, context, doctree):
        """Remove anchors from links of sources to pages, since anchors of pages are public names."""
        if page.startswith("_modules/"):
            context["body"] = BACK.sub(r"\1", context.get("body", ""))
