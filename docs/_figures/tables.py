"""Curves from the tables of pages, so that a page's plot has exactly its table's figures."""

import re
from dataclasses import dataclass
from pathlib import Path

from table_downloads import TABLE, rows_of

DOCS = Path(__file__).parents[1]
NUMBER = re.compile(r"\d*\.?\d+")


@dataclass(frozen=True)
class Table:
    """One table of a page: the first of a section, or of the page if the section is None.

    Its columns are the abscissae, unless `x` and `y` name two columns with the coordinates.
    """

    page: str
    section: str | None
    x: str | None = None
    y: str | None = None

    def rows(self):
        """Return the head and the other rows, as cells without marks."""
        text = (DOCS / self.page).read_text()
        _, heading, section = text.partition(f"\n## {self.section}\n" if self.section else "\n")
        if not heading:
            raise ValueError(f"{self.page} has no section {self.section!r}")
        return list(rows_of(TABLE.search(section)[0]))

    def curve(self, *names, part=0, column=None):
        """Return points (x, y) of the first row that begins with each name; x is None if y holds for every x.

        `part` is the position of y among a cell's figures, and `column` selects the figures of one column.
        """
        (_, *head), *rows = self.rows()
        points = []
        for name in names:
            row_cells = next((cells for first, *cells in rows if first.startswith(name)), None)
            if row_cells is None:
                raise ValueError(f"no row of {self.page}, {self.section!r}, begins with {name!r}")
            row = dict(zip(head, row_cells, strict=True))
            if column:
                points.append((None, _numbers(row[column])[part]))
            elif self.x:
                # An abscissa without a number, such as "none", makes a horizontal line.
                points += zip(_numbers(row[self.x]) or [None], _numbers(row[self.y]), strict=True)
            else:
                points += [(_numbers(x)[0], _numbers(y)[part]) for x, y in row.items() if _numbers(x) and y]
        # A single figure over the columns holds for every x.
        if not self.x and len(points) == 1:
            return [(None, points[0][1])]
        return sorted(points)


def _numbers(cell):
    """Return the figures of a cell that slashes divide."""
    return [float(match[0]) for part in cell.split("/") if (match := NUMBER.search(part))]
