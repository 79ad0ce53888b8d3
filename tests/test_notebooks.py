"""Tests of the notebooks: they are up to date and valid, and run the code of their pages."""

import doctest
import json

import pytest
from support.maintainers import load_program

notebooks = load_program("docs/notebook_pages")


def code_of(notebook):
    """The source of each code cell."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", notebooks.written_files(), ids=lambda path: path.stem)
def test_a_notebook_is_up_to_date_and_small(path):
    text = notebooks.written_files()[path]
    assert path.read_text() == text, "run python -P docs/notebook_pages.py"
    assert len(text) < 30_000
    notebook = json.loads(text)
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert "pip install 'fastfedrec[cli]'" in "".join(notebook["cells"][0]["source"])


@pytest.mark.parametrize("page", notebooks.PAGES)
def test_a_notebook_has_exactly_the_code_of_its_page(page):
    text = (notebooks.DOCS / f"{page}.md").read_text()
    sources = [example.source for example in doctest.DocTestParser().get_examples(text)]
    assert len(sources) > 5
    assert "\n".join(code_of(notebooks.make_notebook(page))) + "\n" == "".join(sources)


@pytest.mark.parametrize("page", notebooks.PAGES)
def test_links_lead_to_files(page):
    folder = notebooks.DOCS / "notebooks"
    cells = notebooks.make_notebook(page)["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = [match[2] for match in notebooks.LINK.finditer(text) if "_generated" not in match[2]]
    assert len(links) > 1
    assert [link for link in links if not (folder / link.partition("#")[0]).is_file()] == []


def test_a_cell_ends_after_an_example_with_output():
    block = ">>> x = 1\n>>> for i in range(2):\n...     x += i\n>>> x\n2\n>>> y = x\n"
    assert list(notebooks.code_cells(block)) == ["x = 1\nfor i in range(2):\n    x += i\nx\n", "y = x\n"]


def test_a_link_is_relative_to_the_notebooks():
    text = "[a](evaluate.md#x) [b](../explanation/limits.md) [c](https://example.org) [d](#e)"
    moved = "[a](../how-to/evaluate.md#x) [b](../explanation/limits.md) [c](https://example.org) [d](#e)"
    assert notebooks.move(text, "how-to/audit") == moved


@pytest.mark.parametrize("page", notebooks.PAGES)
def test_a_notebook_is_valid(page):
    nbformat = pytest.importorskip("nbformat")
    notebook = notebooks.make_notebook(page)
    nbformat.validate(notebook)
    del notebook["cells"][0]["source"]
    with pytest.raises(nbformat.ValidationError):
        nbformat.validate(notebook)


@pytest.mark.slow
@pytest.mark.parametrize("page", notebooks.PAGES)
def test_a_notebook_runs_from_its_first_cell_to_its_last(page):
    """Each cell finds its names in the cells before it."""
    cells = code_of(notebooks.make_notebook(page))
    names = {}
    for cell in cells:
        exec(compile(cell, page, "exec"), names)
    with pytest.raises(NameError):
        exec(compile(cells[1], page, "exec"), {})
