"""Plain-text tables, and an epsilon, infinity included, as text and JSON have it."""

import math
from collections.abc import Iterable, Sequence

#: Beside every table of scores and epsilons.
NOT_COVERED = (
    "Scores are computed from the data as they are: no epsilon here covers them, nor a setting that is chosen by them."
)


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


def format_epsilon(epsilon: float) -> str:
    """Show a privacy cost: rounded up at the digits shown (beyond a relative 1e-9); "none" where nothing is guaranteed.

    Parameters
    ----------
    epsilon : float
        At least 0, in nats.

    Returns
    -------
    str
        Four or five digits.
    """
    if math.isinf(epsilon):
        return "none"
    if epsilon == 0:
        return "0"
    digits = max(0, 4 - math.ceil(math.log10(epsilon)))
    # The tolerance keeps 2.50000000001 from showing as 2.5001.
    return f"{math.ceil(epsilon * (1 - 1e-9) * 10**digits) / 10**digits:.{digits}f}"


def epsilon_to_json(epsilon: float) -> float | str:
    """A privacy cost as JSON can hold it: "infinite" where nothing is guaranteed, for null means "not set" elsewhere.

    Parameters
    ----------
    epsilon : float
        At least 0, in nats.

    Returns
    -------
    float or str
        A number, or "infinite".
    """
    return "infinite" if math.isinf(epsilon) else epsilon


def epsilon_from_json(value: float | str) -> float:
    """What `epsilon_to_json` was given.

    Parameters
    ----------
    value : float or str
        A number, or "infinite".

    Returns
    -------
    float
        In nats.
    """
    return math.inf if value == "infinite" else float(value)
