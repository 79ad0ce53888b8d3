"""A report as a page: Markdown, or one HTML file without scripts or external content; every text is escaped."""

import re
from html import escape

from fastfedrec.accounting._report import Block, Meters, Points, Report, Table
from fastfedrec.core.html import html_page
from fastfedrec.core.text import printable

_TITLE = "Privacy report"
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


def to_markdown(report: Report) -> str:
    """Return a report as CommonMark with tables; no text of it can begin a heading, a link, a cell or a tag."""
    first, *more_lines = report.verdict
    about = [_plain(report.about)] if report.about else []
    parts = [f"**{_plain(first)}**", *(_plain(text) for text in more_lines), f"# {_TITLE}", *about]
    for heading, blocks in report.sections:
        parts.append(f"## {_plain(heading)}")
        parts += [_markdown_block(block) for block in blocks]
    parts.append("Read and accepted: name, date, signature")
    return "\n\n".join(parts) + "\n"


def _markdown_block(block: Block) -> str:
    """Return one block as Markdown."""
    if isinstance(block, str):
        return _plain(block)
    if isinstance(block, Points):
        return "\n".join(f"- {_plain(text)}" for text in block.texts)
    if isinstance(block, Meters):
        header = ("protected from", "epsilon", "delta", "right guesses", "who that is")
        rows = [(name, epsilon, delta, words, who) for name, who, epsilon, delta, _, words in block.rows]
        block = Table(header, tuple(rows))
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


def to_html(report: Report) -> str:
    """Return a report as one HTML page; no text of it can add a tag, an attribute or an entity."""
    first, *more_lines = report.verdict
    # The page has its style, but no scripts, links or other content that a browser would fetch.
    body = [
        f'<section class="verdict {report.tone}"><p class="label">{_TONES[report.tone]}</p>'
        f'<p class="first">{_html(first)}</p>{"".join(f"<p>{_html(text)}</p>" for text in more_lines)}</section>',
        f'<header><h1>{_TITLE}</h1><p class="about">{_html(report.about)}</p></header>',
    ]
    for heading, blocks in report.sections:
        body.append(f"<section><h2>{_html(heading)}</h2>{''.join(map(_html_block, blocks))}</section>")
    body.append(
        '<section class="sign"><p>Read and accepted</p><div><span>Name</span><span>Date</span><span>Signature</span>'
        f"</div></section><footer>Ledger {_html(report.digest)}</footer>"
    )
    return html_page(_TITLE, _STYLE, "\n".join(body))


def _html_block(block: Block) -> str:
    """Return one block as HTML."""
    if isinstance(block, str):
        return f"<p>{_html(block)}</p>"
    if isinstance(block, Points):
        return f"<ul>{''.join(f'<li>{_html(text)}</li>' for text in block.texts)}</ul>"
    if isinstance(block, Meters):
        return f'<div class="views">{"".join(_meter(*row) for row in block.rows)}</div>'
    head = "".join(f'<th scope="col">{_html(cell)}</th>' for cell in block.header)
    rows = "".join(f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in cells)}</tr>" for cells in block.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _meter(name: str, who: str, epsilon: str, delta: str, share: float, words: str) -> str:
    """Return one adversary's figures as HTML, with a bar from a coin's share of right guesses to certainty."""
    figure = f"<b>{_html(epsilon)}</b>" + (f"<small>delta {_html(delta)}</small>" if delta else "")
    # Percent: 0 for the coin's share of 1/2, and 100 for certainty.
    width = max(0.0, min(1.0, 2 * share - 1)) * 100
    return (
        f'<article><div><h3>{_html(name)}</h3><p>{_html(who)}</p></div><div class="figure">{figure}'
        f'<div class="meter"><i style="width:{width:.1f}%"></i></div><small>right guesses: {_html(words)}</small>'
        "</div></article>"
    )


def _html(text: str) -> str:
    """Return printable text, escaped for HTML."""
    return escape(printable(text))


_STYLE = """
:root { color-scheme: light; --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --bad: #a3262a; --weak: #96600b;
  --good: #1d6b45; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f6f8; color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; }
main { max-width: 52rem; margin: 2rem auto; padding: 2.5rem 3rem; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 1.6rem 0 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0; }
p, li { overflow-wrap: anywhere; }
p { margin: .6rem 0; }
ul { margin: .4rem 0; padding-left: 1.2rem; }
li { margin: .35rem 0; }
.verdict { border: 1px solid var(--line); border-left: 6px solid var(--good); border-radius: 4px;
  padding: .9rem 1.2rem; background: #f3f9f5; }
.verdict.none { border-left-color: var(--bad); background: #fcf3f3; }
.about { color: var(--soft); margin-top: .3rem; }
.verdict.weak, .verdict.loose { border-left-color: var(--weak); background: #fdf8ee; }
.verdict p { margin: .25rem 0; }
.verdict .label { font-size: .78rem; font-weight: 600; letter-spacing: .06em; text-transform: uppercase;
  color: var(--good); }
.verdict.none .label { color: var(--bad); }
.verdict.weak .label, .verdict.loose .label { color: var(--weak); }
.verdict .first { font-size: 1.15rem; font-weight: 600; }
.views article { display: grid; grid-template-columns: 1fr 13rem; gap: 1.5rem; padding: .9rem 0;
  border-bottom: 1px solid var(--line); break-inside: avoid; }
.views article p { margin: .2rem 0 0; color: var(--soft); font-size: .92rem; }
.figure b { font-size: 1.3rem; font-variant-numeric: tabular-nums; margin-right: .5rem; }
.figure small { color: var(--soft); }
.meter { max-width: 13rem; height: 6px; margin: .45rem 0 .25rem; background: #e8ecf0; border-radius: 3px;
  overflow: hidden; }
.meter i { display: block; height: 100%; background: linear-gradient(90deg, #2f7d57, #c98a1b 55%, #a3262a);
  background-size: 13rem 100%; }
table { width: 100%; border-collapse: collapse; margin: .7rem 0 1.2rem; font-size: .92rem; }
th { text-align: left; font-weight: 600; color: var(--soft); border-bottom: 1px solid var(--ink);
  padding: .35rem .8rem .35rem 0; }
td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word; max-width: 24rem; }
th { white-space: nowrap; }
.sign { margin-top: 3rem; break-inside: avoid; }
.sign div { display: grid; grid-template-columns: 1fr 1fr 1fr; gap: 2rem; margin-top: 3rem; }
.sign span { border-top: 1px solid var(--ink); padding-top: .3rem; color: var(--soft); font-size: .85rem; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .78rem; overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  main { margin: 0; padding: 1.2rem; border: 0; }
  .views article { grid-template-columns: 1fr; gap: .4rem; }
}
@page { margin: 18mm 16mm; }
@media print {
  body { background: #fff; font-size: 9.5pt; }
  main { max-width: none; margin: 0; padding: 0; border: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2, h3 { break-after: avoid; }
  tr, li, table, .verdict { break-inside: avoid; }
  p:has(+ table) { break-after: avoid; }
  thead { display: table-header-group; }
}
"""
