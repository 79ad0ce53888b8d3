"""The threat model of SECURITY.md: every adversary has a defence and a test that exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def rows_of(text):
    """Return the cells of the rows of the threat model."""
    table = re.search(r"\| adversary \| view \| defence \| test \|\n\|[-|]+\|\n((?:\|.*\n)+)", text)[1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def names_of_tests():
    """Return the names of all test functions."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py"))
    functions = (node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {name for name in functions if name.startswith("test_")}


def faults_of(text, known):
    """Return rows that are not complete, and tests that do not exist."""
    for row in rows_of(text):
        name = row[-1].strip("`")
        if len(row) != 4 or not all(row):
            yield f"{row} must have an adversary, a view, a defence and a test"
        elif name not in known:
            yield f"{name} is no test"


def test_every_adversary_has_a_defence_and_a_test():
    text = (ROOT / "SECURITY.md").read_text()
    assert len(rows_of(text)) >= 10
    assert list(faults_of(text, names_of_tests())) == []


def test_the_page_is_short():
    assert len((ROOT / "SECURITY.md").read_text().split()) <= 450


def test_a_missing_test_and_a_missing_defence_are_found():
    head = "| adversary | view | defence | test |\n|---|---|---|---|\n"
    page = head + "| a | b | c | `test_known` |\n| a | b | c | `test_lost` |\n| a | b |  | `test_known` |\n"
    faults = list(faults_of(page, {"test_known"}))
    assert faults[0] == "test_lost is no test"
    assert "must have an adversary" in faults[1]
    assert len(faults) == 2
