"""What is public is said in each module's `__all__`, and on a page that states what the metadata state."""

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
    """(name, statement) of what statements define or import, also below an `if` or a `try`."""
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
    """What a literal `__all__` among these statements holds; None where there is none."""
    for name, node in top:
        if name == "__all__" and isinstance(node.value, ast.List):
            return [item.value for item in node.value.elts]
    return None


def is_public(module):
    return module != "fastfedrec" and not any(part.startswith("_") for part in module.split("."))


def faults(sources, reference, tests):
    """What `__all__` of public modules lacks, or names though it is not there: one line each.

    A module of the reference lists the classes and functions that its page shows: what folders and the package offer
    of it, and all others but those that have no underscore for the sake of other files of ours.  Any other module
    lists what other modules import from it.
    """
    trees = {module: parse(source) for module, source in sources.items()}
    tops = {module: list(bound(tree.body)) for module, tree in trees.items()}
    public = {module: listed(top) for module, top in tops.items()}
    used, offered = ({module: set() for module in trees} for _ in range(2))
    for name, place in names.HOMES.items():
        offered.get(f"fastfedrec.{place}", set()).add(name)
    for importing, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in trees:
                found = {alias.name for alias in node.names if f"{node.module}.{alias.name}" not in trees}
                used[node.module] |= {name for name in found if not name.startswith("_")}
                if node.module.startswith(f"{importing}."):  # by a folder's `__init__`
                    offered[node.module] |= found & set(public[importing] or ())
    for module, top in tops.items():
        if not is_public(module):
            continue
        if public[module] is None:
            yield f"{module} has no __all__"
            continue
        there = {name for name, _ in top} | {other.rpartition(".")[2] for other in trees if is_below(other, module)}
        yield from (f"{module}.__all__ names {name}, which is not there" for name in sorted({*public[module]} - there))
        yield from (f"{module}.__all__ names {name} twice" for name in repeated(public[module]))
        wanted = used[module]
        if module in reference:
            texts = [text for other, text in sources.items() if other != module] + tests
            own = {name for name, node in top if isinstance(node, ast.ClassDef | ast.FunctionDef) and name[0] != "_"}
            wanted = offered[module] | {name for name in own - {*public[module]} if not is_in(name, texts)}
        yield from (f"{module}.__all__ lacks {name}" for name in sorted(wanted - {*public[module]}))


def is_below(module, folder):
    return module.rpartition(".")[0] == folder


def repeated(words):
    return sorted({word for word in words if words.count(word) > 1})


def is_in(name, texts):
    return any(name in text and re.search(rf"\b{name}\b", text) for text in texts)


def test_every_public_module_lists_what_is_public():
    assert list(faults(SOURCES, REFERENCE, TESTS)) == []


def test_the_test_of_lists_sees_what_is_missing_and_what_is_not_there():
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
    found = list(faults(sources, ["fastfedrec.core.one", "fastfedrec.core.two"], ["a test that calls c"]))
    assert [line for line in found if "lacks" in line] == ["fastfedrec.core.two.__all__ lacks e"]
    home = f"fastfedrec.{names.HOMES['Key']}"
    without = {home: re.sub(r'"Key",? ?', "", SOURCES[home], count=1)}
    assert f"{home}.__all__ lacks Key" in list(faults(without, REFERENCE, []))


def unannotated(sources):
    """Parameters and results of public functions that have no type: one line for each function."""
    for module, source in sources.items():
        for node in ast.walk(parse(source)):
            body = node.body if isinstance(node, ast.ClassDef | ast.Module) else []
            for function in (each for each in body if isinstance(each, ast.FunctionDef) and is_called(each.name)):
                given = function.args
                parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
                if isinstance(node, ast.ClassDef) and "staticmethod" not in map(ast.unparse, function.decorator_list):
                    parameters = parameters[1:]
                lacking = [each.arg for each in parameters if each is not None and each.annotation is None]
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


def test_the_page_of_what_is_public_states_what_the_metadata_state():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()
    assert f"Python 3.{low} to 3.{int(high) - 1}" in PAGE
    for requirement in project["dependencies"]:
        name, _, version = requirement.partition(">=")
        assert re.search(rf"\b{name}\b[^|]*\| {re.escape(version)} ", PAGE, re.IGNORECASE), requirement
    for extra in project["optional-dependencies"]:
        assert f"`{extra}`" in PAGE, extra
