"""Notebooks of pages with tested examples: `docs/notebooks/`, without outputs.

python -P docs/notebook_pages.py  # writes all notebooks
"""

import doctest
import json
import posixpath
import re
from pathlib import Path

DOCS = Path(__file__).parent
PAGES = ("tutorial/first-run", "how-to/read-a-ledger")
INSTALL = "In a shell: `pip install 'fastfedrec[cli]' jupyterlab`. The cells are the examples of [this page]({page})."
CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()(?!https?:|#)([^)\s]+)(\))")


def make_notebook(page):
    """Return the notebook of a page below `docs/`, in version 4.5 of the format."""
    text = (DOCS / f"{page}.md").read_text()
    title, _, rest = text.partition("\n")
    intro = INSTALL.format(page=posixpath.relpath(f"{page}.md", "notebooks"))
    cells = [("markdown", f"{title}\n\n{intro}")]
    for number, part in enumerate(CODE.split(rest)):
        # Odd parts are the code blocks.
        cells += [("code", source) for source in code_cells(part)] if number % 2 else [("markdown", move(part, page))]
    return {
        "cells": [make_cell(number, *cell) for number, cell in enumerate(cell for cell in cells if cell[1].strip())],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def code_cells(block):
    """Yield the code of each cell of a doctest; a cell ends after an example with output, since it shows one value."""
    sources = []
    for example in doctest.DocTestParser().get_examples(block):
        sources.append(example.source)
        if example.want:
            yield "".join(sources)
            sources = []
    yield "".join(sources)


def move(text, page):
    """Return Markdown of a page with links that are relative to the notebooks' folder."""
    folder = posixpath.dirname(page)

    def moved(match):
        return match[1] + posixpath.relpath(posixpath.join(folder, match[2]), "notebooks") + match[3]

    return LINK.sub(moved, text)


def make_cell(number, kind, text):
    """Return one cell, with an id that later versions keep as long as the page has the same cells."""
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.strip().splitlines(keepends=True)}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def written_files():
    """Return the path and the text of each notebook."""
    return {
        DOCS / "notebooks" / f"{page.rpartition('/')[2]}.ipynb": json.dumps(make_notebook(page), indent=1) + "\n"
        for page in PAGES
    }


def connect(app):
    """Register the step that adds a link to the notebook below the title of a page."""

    def add(app, page, source):
        if page in PAGES:
            title, _, rest = source[0].partition("\n")
            name = page.rpartition("/")[2]
            source[0] = f"{title}\n\n{{download}}`This page as a notebook <../notebooks/{name}.ipynb>`\n{rest}"

    app.connect("source-read", add)


if __name__ == "__main__":
    for path, text in written_files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
