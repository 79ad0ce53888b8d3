"""Curves read off the tables of pages, so that a page's plot has its table's figures and no others."""

import re
from dataclasses import dataclass
from pathlib import Path

from table_downloads import TABLE, rows_of

DOCS = Path(__file__).parents[1]
NUMBER = re.compile(r"\d*\.?\d+")


@dataclass(frozen=True)
class Table:
    """One table of a page, the first of all without a section.

    Its columns are the abscissae, unless two columns are named that hold x and y.
    """

    page: str
    section: str | None
    x: str | None = None
    y: str | None = None

    def rows(self):
        """The head and the other rows, as cells without marks."""
        text = (DOCS / self.page).read_text()
        _, found, section = text.partition(f"\n## {self.section}\n" if self.section else "\n")
        if not found:
            raise ValueError(f"{self.page} has no section {self.section!r}")
        return list(rows_of(TABLE.search(section)[0]))

    def curve(self, *names, part=0, column=None):
        """Points (x, y) of the first row that begins with each name; x is None where y holds for every x.

        `part` says which of a cell's figures is y, and `column` takes those of one column alone.
        """
        (_, *head), *rows = self.rows()
        points = []
        for name in names:
            found = next((cells for first, *cells in rows if first.startswith(name)), None)
            if found is None:
                raise ValueError(f"no row of {self.page}, {self.section!r}, begins with {name!r}")
            row = dict(zip(head, found, strict=True))
            if column:
                points.append((None, _numbers(row[column])[part]))
            elif self.x:
                points += zip(_numbers(row[self.x]) or [None], _numbers(row[self.y]), strict=True)
            else:
                points += [(_numbers(x)[0], _numbers(y)[part]) for x, y in row.items() if _numbers(x) and y]
        if not self.x and len(points) == 1:
            return [(None, points[0][1])]
        return sorted(points)


def _numbers(cell):
    """The figures of a cell in which bars divide them."""
    return [float(found[0]) for part in cell.split("/") if (found := NUMBER.search(part))]
