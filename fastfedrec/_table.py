"""Plain-text tables, for summaries that must read well without any extra installed."""

from collections.abc import Iterable, Sequence


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay out rows under a header, numbers to the right.

    Parameters
    ----------
    header : sequence of str
        Column names.
    rows : iterable of sequences
        Cells; anything `str` can show.

    Returns
    -------
    str
        One line a row, without a final newline.
    """
    body = [[str(cell) for cell in row] for row in rows]
    columns = list(zip(header, *body, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [bool(body) and all(_numeric(cell) for cell in column[1:]) for column in columns]

    def line(cells):
        parts = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return "  ".join(parts).rstrip()

    return "\n".join([line(header), "  ".join("-" * w for w in widths), *map(line, body)])


def _numeric(cell: str) -> bool:
    return cell in ("", "-", "none") or cell.replace(".", "", 1).replace(",", "").lstrip("+-").isdigit()
