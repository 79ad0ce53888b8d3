"""HTML of tables, of what notebooks show of an object (`_repr_html_`), and of whole pages: every text is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = ["html_card", "html_page", "html_table"]

_MOST_LETTERS = 200  # of a cell; what is longer is cut, and says so


def html_table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Lay out rows under a header as an HTML table.

    Parameters
    ----------
    header : sequence of object
        Column names; none for a table without a header.
    rows : iterable of sequences
        Cells; anything `str` can show.

    Returns
    -------
    str
        One ``<table>``.  No cell can add a tag, an attribute or an entity.

    Examples
    --------
    >>> from fastfedrec.core.html import html_table
    >>> html_table([], [["<b>", 2]])
    '<table><tbody><tr><td>&lt;b&gt;</td><td>2</td></tr></tbody></table>'
    """
    head = f"<thead>{_row('th', header)}</thead>" if header else ""
    body = "".join(_row("td", row) for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def html_card(title: object, facts: Mapping[str, object], *tables: str) -> str:
    """What an object is, and its facts by name.

    Parameters
    ----------
    title : object
        Stands in bold.
    facts : mapping of str to object
        Name to value, one a row; none for no table.
    *tables : str
        HTML that stands below, as `html_table` makes it.

    Returns
    -------
    str
        One ``<div>``.
    """
    parts = [html_table([], facts.items())] if facts else []
    return f"<div><strong>{_text(title)}</strong>{''.join([*parts, *tables])}</div>"


def html_page(title: object, style: str, body: str) -> str:
    """A page that needs nothing else: no script, no link, nothing that a browser would fetch.

    Parameters
    ----------
    title : object
        Of the window.
    style : str
        CSS, ours.
    body : str
        HTML in which every text of others is escaped.

    Returns
    -------
    str
        HTML 5.
    """
    return _PAGE.format(title=_text(title), style=style, body=body)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _row(tag: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"


def _text(cell: object) -> str:
    text = str(cell)
    return escape(text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "\N{HORIZONTAL ELLIPSIS}")
