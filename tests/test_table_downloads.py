"""Numbers of the reproductions' pages as files: the cells of each table, and no other."""

import csv
import re
from pathlib import Path

import pytest
from support.maintainers import load_program

PAGES = sorted((Path(__file__).parents[1] / "docs" / "reproductions").glob("*.md"))


@pytest.fixture(scope="module")
def tables():
    return load_program("docs/table_downloads")


def test_cells_come_without_marks_and_with_commas(tables):
    first = "| a | `b\\|c` |\n|---|---:|\n| **1,000** | -0.5 |\n"
    page = f"# A\n\n## Figure 2: x\n\n{first}\nText | no table.\n\n| d |\n|---|\n| 2 |\n"
    downloads = list(tables.downloads(page))
    assert [(name, table) for _, name, table in downloads] == [
        ("figure-2", 'a,b|c\n"1,000",-0.5\n'),
        ("figure-2_2", "d\n2\n"),
    ]
    assert page[: downloads[0][0]].endswith("| -0.5 |\n")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_table_of_a_page_has_equally_long_rows_and_a_unique_name(tables, path):
    downloads = list(tables.downloads(path.read_text()))
    assert len(downloads) == len(re.findall(r"^\| ?---", path.read_text(), re.MULTILINE))
    assert len({name for _, name, _ in downloads}) == len(downloads)
    for _, name, table in downloads:
        lengths = {len(row) for row in csv.reader(table.splitlines())}
        assert len(lengths) == 1, name
