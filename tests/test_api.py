"""Tests of public names: each module's `__all__` lists them, and the page of the API agrees with the metadata."""

import ast
import functools
import re
import tomllib
from pathlib import Path

from fastfedrec.core import names

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reference/api.md").read_text()
REFERENCE = re.findall(r"^   (fastfedrec[\w.]+)$", (ROOT / "docs/reference/index.md").read_text(), re.MULTILINE)


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_of(path): path.read_text() for path in sorted((ROOT / "fastfedrec").rglob("*.py"))}
parse = functools.cache(ast.parse)  # the whole package takes a second
TESTS = [path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))]


def bound(body):
    """Return (name, statement) of definitions and imports, also below an `if` or a `try`."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name, node) for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((leaf.id, node) for top in targets for leaf in ast.walk(top) if isinstance(leaf, ast.Name))
        elif isinstance(node, ast.If | ast.Try):
            yield from bound([*node.body, *node.orelse, *getattr(node, "handlers", [])])
        elif isinstance(node, ast.ExceptHandler):
            yield from bound(node.body)


def listed(top):
    """Return the names of a literal `__all__` in these statements, or None without one."""
    for name, node in top:
        if name == "__all__" and isinstance(node.value, ast.List):
            return [item.value for item in node.value.elts]
    return None


def is_public(module):
    return module != "fastfedrec" and not any(part.startswith("_") for part in module.split("."))


def faults(sources, reference, tests):
    """Yield one line per name that `__all__` of a public module lacks or that does not exist.

    A module of the reference lists the classes and functions on its page: names that folders and the package export,
    and all others except those without an underscore that only other files of the package use. Any other module
    lists the names that other modules import from it.
    """
    trees = {module: parse(source) for module, source in sources.items()}
    tops = {module: list(bound(tree.body)) for module, tree in trees.items()}
    public = {module: listed(top) for module, top in tops.items()}
    used, offered = ({module: set() for module in trees} for _ in range(2))
    for name, home in names.HOMES.items():
        offered.get(f"fastfedrec.{home}", set()).add(name)
    for importing, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in trees:
                imported = {alias.name for alias in node.names if f"{node.module}.{alias.name}" not in trees}
                used[node.module] |= {name for name in imported if not name.startswith("_")}
                if node.module.startswith(f"{importing}."):  # by a folder's `__init__`
                    offered[node.module] |= imported & set(public[importing] or ())
    for module, top in tops.items():
        if not is_public(module):
            continue
        if public[module] is None:
            yield f"{module} has no __all__"
            continue
        there = {name for name, _ in top} | {other.rpartition(".")[2] for other in trees if is_below(other, module)}
        yield from (f"{module}.__all__ names {name}, which is not there" for name in sorted({*public[module]} - there))
        yield from (f"{module}.__all__ names {name} twice" for name in repeated(public[module]))
        expected = used[module]
        if module in reference:
            texts = [text for other, text in sources.items() if other != module] + tests
            defined = {
                name for name, node in top if isinstance(node, ast.ClassDef | ast.FunctionDef) and name[0] != "_"
            }
            expected = offered[module] | {name for name in defined - {*public[module]} if not is_in(name, texts)}
        yield from (f"{module}.__all__ lacks {name}" for name in sorted(expected - {*public[module]}))


def is_below(module, folder):
    return module.rpartition(".")[0] == folder


def repeated(words):
    return sorted({word for word in words if words.count(word) > 1})


def is_in(name, texts):
    return any(name in text and re.search(rf"\b{name}\b", text) for text in texts)


def test_every_public_module_lists_its_public_names():
    assert list(faults(SOURCES, REFERENCE, TESTS)) == []


def test_the_test_of_lists_detects_missing_and_nonexistent_names():
    sources = {
        "fastfedrec.core": "",
        "fastfedrec.core.one": "__all__ = ['a', 'gone', 'a']\ndef a(): ...\ndef b(): ...\ndef c(): ...",
        "fastfedrec.core.two": "from fastfedrec.core.one import b\n__all__ = []\ndef d(): b()\ndef e(): ...",
        "fastfedrec.core._three": "from fastfedrec.core.two import d\ndef f(): ...",
    }
    assert list(faults(sources, [], [])) == [
        "fastfedrec.core has no __all__",
        "fastfedrec.core.one.__all__ names gone, which is not there",
        "fastfedrec.core.one.__all__ names a twice",
        "fastfedrec.core.one.__all__ lacks b",
        "fastfedrec.core.two.__all__ lacks d",
    ]
    reported = list(faults(sources, ["fastfedrec.core.one", "fastfedrec.core.two"], ["a test that calls c"]))
    assert [line for line in reported if "lacks" in line] == ["fastfedrec.core.two.__all__ lacks e"]
    home = f"fastfedrec.{names.HOMES['Key']}"
    without = {home: re.sub(r'"Key",? ?', "", SOURCES[home], count=1)}
    assert f"{home}.__all__ lacks Key" in list(faults(without, REFERENCE, []))


def unannotated(sources):
    """Yield one line per public function with a parameter or result without a type."""
    for module, source in sources.items():
        for node in ast.walk(parse(source)):
            body = node.body if isinstance(node, ast.ClassDef | ast.Module) else []
            for function in (node for node in body if isinstance(node, ast.FunctionDef) and is_called(node.name)):
                given = function.args
                parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
                if isinstance(node, ast.ClassDef) and "staticmethod" not in map(ast.unparse, function.decorator_list):
                    parameters = parameters[1:]
                lacking = [p.arg for p in parameters if p is not None and p.annotation is None]
                if function.returns is None and function.name != "__init__":
                    lacking.append("return")
                if lacking:
                    yield f"{module}.{function.name}: {', '.join(lacking)}"


def is_called(name):
    return not name.startswith("_") or name.endswith("__")


def test_every_public_function_states_its_types():
    assert list(unannotated(SOURCES)) == []
    source = "def a(x): ...\ndef _b(x): ...\nclass C:\n    def d(self, y, *, z: int = 0) -> int: ..."
    assert list(unannotated({"m": source})) == ["m.a: x, return", "m.d: y"]


def test_the_page_of_public_names_agrees_with_the_metadata():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()
    assert f"Python 3.{low} to 3.{int(high) - 1}" in PAGE
    for requirement in project["dependencies"]:
        name, _, version = requirement.partition(">=")
        assert re.search(rf"\b{name}\b[^|]*\| {re.escape(version)} ", PAGE, re.IGNORECASE), requirement
    for extra in project["optional-dependencies"]:
        assert f"`{extra}`" in PAGE, extra
