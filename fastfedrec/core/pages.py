"""Pages of blocks as Markdown, or as one HTML file without scripts or external content; every text is escaped."""

import os
import re
from dataclasses import dataclass
from html import escape
from typing import NamedTuple, TypeAlias

from fastfedrec.core.files import check_path, write_text
from fastfedrec.core.html import html_page
from fastfedrec.core.text import printable

__all__ = ["Block", "Checks", "Meter", "Meters", "Page", "Points", "Section", "Table", "write_page"]


class Table(NamedTuple):
    """Rows under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Points(NamedTuple):
    """Entries of a list."""

    texts: tuple[str, ...]


class Checks(NamedTuple):
    """Entries of a list with a box for a tick."""

    texts: tuple[str, ...]


class Meter(NamedTuple):
    """A figure with its explanation, and a bar from a share of 1/2 to 1."""

    name: str
    explanation: str
    figure: str
    # Smaller text next to the figure; may be empty.
    detail: str
    share: float
    share_in_words: str


class Meters(NamedTuple):
    """Figures, with the header of their columns in Markdown: name, figure, detail, share and explanation."""

    header: tuple[str, str, str, str, str]
    rows: tuple[Meter, ...]


Block: TypeAlias = str | Table | Points | Checks | Meters
Section: TypeAlias = tuple[str, tuple[Block, ...]]


@dataclass(frozen=True)
class Page:
    """The content of a page.

    Parameters
    ----------
    title : str
        Title of the page.
    about : str
        Description of the page's object in one line; may be empty.
    tone : str
        "none" (no guarantee), "weak" (figures without use), "loose" (a small guarantee) or "some"; the color.
    verdict : tuple of str
        The first line, and the lines that must be read with it.
    sections : tuple of (str, tuple of blocks)
        Headings, and the blocks of each section.
    signature : tuple of str
        The text above the signature, and the names of its fields; empty for a page without a signature.
    details : tuple of (str, tuple of blocks)
        Sections after the signature.
    footer : str
        Last line.
    """

    title: str
    about: str
    tone: str
    verdict: tuple[str, ...]
    sections: tuple[Section, ...]
    signature: tuple[str, ...] = ()
    details: tuple[Section, ...] = ()
    footer: str = ""


_TONES = {
    "none": "No guarantee",
    "weak": "No useful guarantee",
    "loose": "A guarantee, with limits",
    "some": "A guarantee, with limits",
}
# Characters with a meaning in Markdown: anywhere, at the beginning of a line, and where it makes links automatically.
_MARKS = re.compile(r"([\\`*_\[\]<>|#~&$@])")
_FIRST = re.compile(r"^(\d*)([-+=.)])")
_LINKS = re.compile(r"(?<=:)//|(?<=www)\.", re.IGNORECASE)


def write_page(path: str | os.PathLike[str], page: Page) -> None:
    """Write a page as HTML or Markdown, by the ending of its path.

    Parameters
    ----------
    path : path-like
        Path that ends in ``.html`` or ``.md``; only an ordinary file is replaced.
    page : Page
        Content of the page.

    Raises
    ------
    ValueError
        The path has another ending, or is not an ordinary file.
    """
    path = check_path("path", path)
    formats = {".html": _to_html, ".md": _to_markdown}
    if path.suffix.lower() not in formats:
        raise ValueError(f"path must end in .html or .md, got {os.fsdecode(path)!r}")
    write_text(path, formats[path.suffix.lower()](page))


# ---- Markdown -------------------------------------------------------------------------------------------------------


def _to_markdown(page: Page) -> str:
    """Return a page as CommonMark with tables; no text of it can begin a heading, a link, a cell or a tag."""
    # The verdict precedes the title, so that no reader misses a missing guarantee.
    first, *more_lines = page.verdict
    about = [_plain(page.about)] if page.about else []
    parts = [f"**{_plain(first)}**", *map(_plain, more_lines), f"# {_plain(page.title)}", *about]
    parts += _markdown_sections(page.sections)
    if page.signature:
        parts.append(f"{_plain(page.signature[0])}: {', '.join(map(_plain, page.signature[1:]))}")
    parts += _markdown_sections(page.details)
    return "\n\n".join([*parts, *[_plain(page.footer)] * bool(page.footer)]) + "\n"


def _markdown_sections(sections: tuple[Section, ...]) -> list[str]:
    """Return headings and blocks as Markdown."""
    return [part for heading, blocks in sections for part in (f"## {_plain(heading)}", *map(_markdown_block, blocks))]


def _markdown_block(block: Block) -> str:
    """Return one block as Markdown."""
    if isinstance(block, str):
        return _plain(block)
    if isinstance(block, Points | Checks):
        mark = "- [ ] " if isinstance(block, Checks) else "- "
        return "\n".join(f"{mark}{_plain(text)}" for text in block.texts)
    if isinstance(block, Meters):
        rows = [(row.name, row.figure, row.detail, row.share_in_words, row.explanation) for row in block.rows]
        block = Table(block.header, tuple(rows))
    lines = [block.header, ("---",) * len(block.header), *block.rows]
    return "\n".join(
        f"| {' | '.join(cell if number == 1 else _plain(cell) for cell in cells)} |"
        for number, cells in enumerate(lines)
    )


def _plain(text: str) -> str:
    """Return text with all characters escaped that have a meaning in Markdown."""
    text = _MARKS.sub(r"\\\1", printable(" ".join(text.split())))
    text = _LINKS.sub(lambda match: "".join(f"\\{letter}" for letter in match[0]), text)
    return _FIRST.sub(r"\1\\\2", text)


# ---- HTML -----------------------------------------------------------------------------------------------------------


def _to_html(page: Page) -> str:
    """Return a page as one HTML file; no text of it can add a tag, an attribute or an entity."""
    first, *more_lines = page.verdict
    # The page has its style, but no scripts, links or other content that a browser would fetch.
    body = [
        f'<section class="verdict {page.tone}"><p class="label">{_TONES[page.tone]}</p>'
        f'<p class="first">{_html(first)}</p>{"".join(f"<p>{_html(text)}</p>" for text in more_lines)}</section>',
        f'<header><h1>{_html(page.title)}</h1><p class="about">{_html(page.about)}</p></header>',
        f'<div class="sheet">{"".join(map(_html_section, page.sections))}</div>',
    ]
    if page.signature:
        fields = "".join(f"<span>{_html(name)}</span>" for name in page.signature[1:])
        body.append(
            f'<section class="sign"><p class="label">{_html(page.signature[0])}</p><div>{fields}</div></section>'
        )
    details = "".join(map(_html_section, page.details))
    body += [f'<div class="details">{details}</div>' if details else "", f"<footer>{_html(page.footer)}</footer>"]
    return html_page(page.title, _STYLE, "\n".join(body))


def _html_section(section: Section) -> str:
    """Return a heading and its blocks as HTML."""
    heading, blocks = section
    return f"<section><h2>{_html(heading)}</h2>{''.join(map(_html_block, blocks))}</section>"


def _html_block(block: Block) -> str:
    """Return one block as HTML."""
    if isinstance(block, str):
        return f"<p>{_html(block)}</p>"
    if isinstance(block, Points | Checks):
        kind = ' class="checks"' if isinstance(block, Checks) else ""
        return f"<ul{kind}>{''.join(f'<li>{_html(text)}</li>' for text in block.texts)}</ul>"
    if isinstance(block, Meters):
        return f'<div class="views">{"".join(map(_html_meter, block.rows))}</div>'
    head = "".join(f'<th scope="col">{_html(cell)}</th>' for cell in block.header)
    rows = "".join(f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in cells)}</tr>" for cells in block.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _html_meter(row: Meter) -> str:
    """Return a figure as HTML, with a bar from a coin's share of correct guesses to certainty."""
    figure = f"<b>{_html(row.figure)}</b>" + (f"<small>{_html(row.detail)}</small>" if row.detail else "")
    # Percent: 0 for the coin's share of 1/2, and 100 for certainty.
    width = max(0.0, min(1.0, 2 * row.share - 1)) * 100
    return (
        f'<article><div><h3>{_html(row.name)}</h3><p>{_html(row.explanation)}</p></div><div class="figure">{figure}'
        f'<div class="meter"><i style="width:{width:.1f}%"></i></div><small>{_html(row.share_in_words)}</small>'
        "</div></article>"
    )


def _html(text: str) -> str:
    """Return printable text, escaped for HTML."""
    return escape(printable(text))


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #566070; --line: #d9dee5; --bad: #a3262a; --weak: #8a5809;
  --good: #1d6b45; --page: #fff; --desk: #f4f6f8; --empty: #e8ecf0; --some: #f3f9f5; --loose: #fdf8ee;
  --none: #fcf3f3; }
@media (prefers-color-scheme: dark) { @media screen { :root { --ink: #e4e8ee; --soft: #a3adbb; --line: #3a4350;
  --bad: #f08a8c; --weak: #e3b063; --good: #77c9a0; --page: #171c23; --desk: #0f1318; --empty: #2b333e; --some: #16241d;
  --loose: #262014; --none: #2a1819; } } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--desk); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; }
main { max-width: 54rem; margin: 2rem auto; padding: 2rem 2.6rem; background: var(--page);
  border: 1px solid var(--line); border-radius: 6px; }
header { margin-top: 1.2rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.4rem 0 .4rem; padding-bottom: .2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0; }
p, li { overflow-wrap: anywhere; }
p { margin: .4rem 0; }
ul { margin: .3rem 0; padding-left: 1.2rem; }
li { margin: .15rem 0; }
.checks li::marker { content: "\\2610\\00a0\\00a0"; }
.verdict { border: 1px solid var(--line); border-left: 6px solid var(--good); border-radius: 4px;
  padding: .7rem 1.1rem; background: var(--some); }
.verdict.none { border-left-color: var(--bad); background: var(--none); }
.about { color: var(--soft); margin-top: .2rem; }
.verdict.weak, .verdict.loose { border-left-color: var(--weak); background: var(--loose); }
.verdict p { margin: .2rem 0; }
.verdict .label { font-size: .78rem; font-weight: 600; letter-spacing: .06em; text-transform: uppercase;
  color: var(--good); }
.verdict.none .label { color: var(--bad); }
.verdict.weak .label, .verdict.loose .label { color: var(--weak); }
.verdict .first { font-size: 1.1rem; font-weight: 600; }
.views article { display: grid; grid-template-columns: 1fr 15rem; gap: 1.5rem; padding: .5rem 0;
  border-bottom: 1px solid var(--line); break-inside: avoid; }
.views article p { margin: .1rem 0 0; color: var(--soft); font-size: .92rem; }
.figure b { font-size: 1.2rem; font-variant-numeric: tabular-nums; margin-right: .5rem; }
.figure small { color: var(--soft); }
.meter { max-width: 15rem; height: 6px; margin: .3rem 0 .2rem; background: var(--empty); border-radius: 3px;
  overflow: hidden; }
.meter i { display: block; height: 100%; background: linear-gradient(90deg, #2f7d57, #c98a1b 55%, #a3262a);
  background-size: 15rem 100%; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; margin: .4rem 0 .8rem; font-size: .92rem; }
th { text-align: left; font-weight: 600; color: var(--soft); border-bottom: 1px solid var(--ink);
  padding: .25rem .8rem .25rem 0; white-space: nowrap; }
td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word; max-width: 24rem; }
.sign { margin-top: 1.6rem; break-inside: avoid; }
.sign div { display: grid; grid-template-columns: 1fr 1fr 1fr; gap: 2rem; margin-top: 2.2rem; }
.sign span { border-top: 1px solid var(--ink); padding-top: .3rem; color: var(--soft); font-size: .85rem; }
footer { margin-top: 1.6rem; color: var(--soft); font-size: .78rem; overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  main { margin: 0; padding: 1.2rem; border: 0; }
  .views article { grid-template-columns: 1fr; gap: .3rem; }
}
@page { margin: 9mm 12mm; }
@media print {
  :root { font-size: 7.7pt; }
  body { background: #fff; font-size: 1rem; line-height: 1.28; }
  main { max-width: none; margin: 0; padding: 0; border: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h1 { font-size: 1.25rem; }
  h2 { margin: .6rem 0 .2rem; }
  h2, h3 { break-after: avoid; }
  .sheet { columns: 2; column-gap: 1.8rem; }
  .sheet section:first-child, .sheet section:has(.views, .wide) { column-span: all; }
  .views { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1.6rem; }
  .views article { display: block; border: 0; }
  .details { break-before: page; }
  tr, li, table, .verdict { break-inside: avoid; }
  p:has(+ .wide) { break-after: avoid; }
  thead { display: table-header-group; }
}
"""
