"""HTML of tables, of notebook views (`_repr_html_`) and of whole pages, in which every text is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = ["html_card", "html_page", "html_table"]

_MAX_CELL_CHARACTERS = 200  # a longer cell is cut and ends with an ellipsis


def html_table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table of `rows`, with a header if it is not empty; every cell is escaped."""
    head = f"<thead>{_row('th', header)}</thead>" if header else ""
    body = "".join(_row("td", row) for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def html_card(title: object, facts: Mapping[str, object], *tables: str) -> str:
    """Return a ``<div>`` with a bold title, a table of facts by name, and further HTML tables."""
    parts = [html_table([], facts.items())] if facts else []
    return f"<div><strong>{_text(title)}</strong>{''.join([*parts, *tables])}</div>"


def html_page(title: object, style: str, body: str) -> str:
    """Return an HTML 5 page without scripts, links or other resources; the caller escapes every text in `body`."""
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
    return escape(
        text if len(text) <= _MAX_CELL_CHARACTERS else text[: _MAX_CELL_CHARACTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
    )
