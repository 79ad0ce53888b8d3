"""Mutants and their code changes, which are located by names and syntax trees, not by files and lines."""

import ast
import os
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class PatchError(ValueError):
    """A mutant that does not apply to the source as it is."""


@dataclass(frozen=True)
class Mutant:
    """A fault in the package and the tests that must detect it.

    Parameters
    ----------
    name : str
        Unique name of the mutant.
    breaks : str
        Clause that states the broken guarantee, for the page.
    target : str
        Qualified name in its module of the function, class or constant that is changed (``NoisySum.apply``).
    old : str
        An expression, statements, or a keyword argument ``name=value`` that occurs once in the target.
    new : str
        Code that replaces `old`.
    killed_by : tuple of str
        Names of test functions that must all fail by an assertion, in one case or in the case ``name[case]``;
        ``folder/file::name`` where several files have the name.
    """

    name: str
    breaks: str
    target: str
    old: str
    new: str
    killed_by: tuple[str, ...]


def on(target: str, *killed_by: str) -> Callable[[str, str, str, str], Mutant]:
    """Return a function that makes mutants of a target from their name, broken guarantee, old code and new code."""

    def mutant(name: str, breaks: str, old: str, new: str) -> Mutant:
        return Mutant(name, breaks, target, old, new, killed_by)

    return mutant


class Definition(NamedTuple):
    """A named definition in a source file."""

    path: Path
    node: ast.AST


class Source:
    """The Python files below a folder and their definitions."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.text: dict[Path, str] = {}
        self.definitions: dict[str, list[Definition]] = defaultdict(list)
        for parent, folders, files in os.walk(folder, followlinks=True):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for path in (Path(parent) / name for name in files if name.endswith(".py")):
                self.text[path] = path.read_text(encoding="utf-8")
                for name, node in _named(ast.parse(self.text[path]), ""):
                    self.definitions[name].append(Definition(path, node))

    def patched(self, mutant: Mutant) -> tuple[Path, str]:
        """Return the file that a mutant changes and its new text."""
        if mutant.target not in self.definitions:
            raise PatchError(f"{mutant.name}: no definition has the name {mutant.target}")
        matches = [
            (definition.path, nodes)
            for definition in self.definitions[mutant.target]
            for nodes in _matches(definition.node, mutant.old)
        ]
        lines = [(path, nodes) for path, nodes in matches if isinstance(nodes[0], ast.stmt)]
        matches = lines or matches  # a call without an assignment is both a statement and an expression
        if len(matches) != 1:
            raise PatchError(
                f"{mutant.name}: must occur once in {mutant.target}, and does {len(matches)} times: {mutant.old}"
            )
        ((path, nodes),) = matches
        before = self.text[path]
        after = _replace(before, nodes, mutant.new)
        try:
            tree = ast.parse(after)
        except SyntaxError as error:
            raise PatchError(f"{mutant.name}: no Python with {mutant.new!r} ({error})") from None
        if ast.dump(tree) == ast.dump(ast.parse(before)):
            raise PatchError(f"{mutant.name}: {mutant.new!r} leaves the code unchanged")
        return path, after


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name, child
            yield from _named(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            yield from ((prefix + target.id, child) for target in targets if isinstance(target, ast.Name))
        elif isinstance(child, ast.stmt):  # definitions inside an if, a with or a try
            yield from _named(child, prefix)


def _matches(node: ast.AST, old: str) -> Iterator[list[ast.AST]]:
    """Yield each expression, run of statements or keyword in `node` with the syntax tree of `old`."""
    try:
        statements = ast.parse(textwrap.dedent(old)).body
    except SyntaxError as error:
        raise PatchError(f"must be Python: {old!r} ({error})") from None
    if not statements:
        raise PatchError(f"must hold code: {old!r}")
    shapes = [ast.dump(statement) for statement in statements]
    first = statements[0]
    expression = ast.dump(first.value) if len(statements) == 1 and isinstance(first, ast.Expr) else None
    keyword = None
    if len(statements) == 1 and isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name):
        keyword = ast.dump(ast.keyword(arg=first.targets[0].id, value=first.value))
    for inner in ast.walk(node):
        if expression is not None and isinstance(inner, ast.expr) and ast.dump(inner) == expression:
            yield [inner]
        if isinstance(inner, ast.keyword) and ast.dump(inner) == keyword:
            yield [inner]
        for block in (getattr(inner, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list):
                for start in range(len(block) - len(shapes) + 1):
                    run = block[start : start + len(shapes)]
                    if [ast.dump(statement) for statement in run] == shapes:
                        yield run
    if isinstance(node, ast.Assign | ast.AnnAssign) and [ast.dump(node)] == shapes:
        yield [node]  # the target itself is a constant's line


def _replace(text: str, nodes: list[ast.AST], new: str) -> str:
    first, last = nodes[0], nodes[-1]
    lines = text.encode().splitlines(keepends=True)  # columns of the tree count bytes
    before = b"".join(lines[: first.lineno - 1]) + lines[first.lineno - 1][: first.col_offset]
    after = lines[last.end_lineno - 1][last.end_col_offset :] + b"".join(lines[last.end_lineno :])
    new = textwrap.dedent(new).strip("\n")
    if isinstance(first, ast.expr):
        new = f"({new})"
    elif isinstance(first, ast.stmt):
        new = textwrap.indent(new, " " * first.col_offset).lstrip(" ")
    return (before + new.encode() + after).decode()


def find_tests(folder: Path) -> dict[str, list[Path]]:
    """Map the name of each test function, also as ``folder/file::name``, to the files that define it."""
    tests: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                tests[node.name].append(path)
                tests[f"{path.relative_to(folder).with_suffix('').as_posix()}::{node.name}"].append(path)
    return tests


def address_of(tests: dict[str, list[Path]], mutant: Mutant, name: str) -> str:
    """Return the address of a test for pytest."""
    function, bracket, case = name.partition("[")
    paths = tests.get(function, [])
    if len(paths) != 1:
        files = ", ".join(path.name for path in paths) or "no file"
        raise PatchError(f"{mutant.name}: {name} must be in one file of tests, and is in {files}")
    return f"{paths[0]}::{function.rpartition('::')[2]}{bracket}{case}"
