"""The demo as an HTML page: a figure, a table, a summary in sentences, and next steps."""

import importlib.util
import io
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from fastfedrec.accounting import largest_guess_share
from fastfedrec.core.figures import save_figure
from fastfedrec.core.html import html_page, html_table
from fastfedrec.core.text import NOT_COVERED
from fastfedrec.studies.demo.comparison import METRICS, Result

__all__ = ["draw", "make_page", "table"]

_TRUST_LABELS = {
    "none": "no privacy", "central": "trusted server", "aggregator": "honest nodes", "shuffle": "shuffler",
    "local": "no trusted party",
}  # fmt: skip
_NEXT_STEPS = (
    ("Your own data, in one table", "fastfedrec compare --data ratings.csv --system popularity --system dp-gram"),
    ("A system for your numbers", "fastfedrec advise --users 20000 --items 500 --epsilon 1 --trust central"),
    (
        "A private model of your data",
        "fastfedrec fit private-recommender --data ratings.csv --set epsilon=1 --out model",
    ),
    ("The privacy cost, as a report for sign-off", "fastfedrec ledger model --html ledger.html"),
    ("Evidence against a claim", "fastfedrec audit binary-response"),
)
# Okabe and Ito's palette, which colour-blind readers can distinguish; visible on light and dark backgrounds.
_COLOURS = {"central": "#0072b2", "aggregator": "#cc79a7", "shuffle": "#d55e00", "local": "#009e73"}
_MARKS = "os^Dv"


def table(results: Sequence[Result]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table's header and rows as text."""
    header = ("trust", "system", "true epsilon", *(name.upper() for name in METRICS), "bytes down", "up", "seconds")
    rows = [
        (
            _TRUST_LABELS[r.trust], r.system, _epsilon(r.epsilon), *(f"{r.metrics[name]:.3f}" for name in METRICS),
            *("-" if n_bytes is None else f"{n_bytes:,}" for n_bytes in (r.bytes_down, r.bytes_up)), f"{r.seconds:.1f}",
        )
        for r in results
    ]  # fmt: skip
    return header, rows


def _epsilon(epsilon: float) -> str:
    """Format an epsilon with two decimals, rounded up because it is a cost."""
    return "none" if math.isinf(epsilon) else f"{math.ceil(epsilon * 100 - 1e-9) / 100:,.2f}"


def _format_share(share: float) -> str:
    """Return a share as a percentage, which is never rounded to certainty."""
    return "over 99.9%" if 0.999 < share < 1.0 else f"{share:.1%}"


def make_page(about: str, verdicts: Sequence[str], results: Sequence[Result], footer: str, picture: str | None) -> str:
    """Return the demo as one HTML 5 page without external resources."""
    figure = "<p>No picture: matplotlib is not installed (pip install 'fastfedrec[cli]').</p>"
    if picture is not None:
        caption = (
            "Share of users with the held-out item among the first ten, over the true privacy cost of the whole run. "
            "Points further left protect more, and points further up are more useful."
        )
        figure = f'<figure><div class="wide" tabindex="0">{picture}</div><figcaption>{caption}</figcaption></figure>'
    header, rows = table(results)
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in verdicts)
    guesses = [(f"{epsilon:g}", _format_share(largest_guess_share(epsilon))) for epsilon in (0.5, 1.0, 2.0, 4.0, 10.0)]
    guess_table = html_table(("epsilon", "right guesses"), guesses)
    steps = "".join(
        f"<dt>{escape(title)}</dt><dd tabindex='0'><code>{escape(command)}</code></dd>"
        for title, command in _NEXT_STEPS
    )
    body = [
        f"<header><h1>Private recommenders, compared</h1><p>{escape(about)}</p></header>",
        f'<section class="verdict">{paragraphs}</section>',
        f"<section>{figure}</section>",
        f'<section><h2>All figures</h2><div class="wide figures" tabindex="0">{html_table(header, rows)}</div>'
        f"<p>True epsilon is the cost of the whole run, in nats, for replacing all data of one user, at delta 1e-6. "
        "With a trusted server, it holds against everyone but the server. With honest nodes, which add the noise in "
        "shares, or behind a shuffler that breaks every link, it also holds against the server. "
        f"Without a trusted party, it holds against everyone. {escape(NOT_COVERED)}"
        "</p></section>",
        "<section><h2>Meaning of an epsilon</h2><p>An adversary knows that a user's data are one of two data sets, and "
        "sees everything that is released. Without the release, a guess is right half the time. With it, the adversary "
        f'is right at most this often (except for delta):</p><div class="wide" tabindex="0">{guess_table}</div>'
        "</section>",
        f"<section><h2>Next steps</h2><dl>{steps}</dl></section>",
        f"<footer>{escape(footer)}</footer>",
    ]
    return html_page("fastfedrec demo", _STYLE, "\n".join(body))


def draw(results: Sequence[Result], path: Path | None = None) -> str | None:
    """Draw utility over epsilon as SVG, or return None without matplotlib; `path` receives a wide PNG of the same."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    metric = METRICS[0]
    # Text stays text, in the font and the colour of the page around it; the same results make the same picture.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fastfedrec", "font.size": 11}):
        figure = Figure(figsize=(5, 6.4), layout="constrained")
        axes = figure.subplots()
        _draw_points(axes, results, metric)
        for number, result in enumerate(r for r in results if r.trust == "none"):
            style = ("--", "-.", ":")[number % 3]
            label = f"{result.system}, no privacy"
            axes.axhline(result.metrics[metric], color="#808080", linestyle=style, linewidth=1.2, label=label)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("true epsilon of the whole run (nats, log scale)")
        axes.set_ylabel(metric.upper())
        axes.spines[["top", "right"]].set_visible(False)
        legend = figure.legend(frameon=False, fontsize=10, loc="outside lower center")
        text = io.StringIO()  # SVG comes first: each call of savefig shifts the layout a little
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        if path is not None:
            legend.remove()
            figure.set_size_inches(8, 4)
            figure.legend(frameon=False, fontsize=10, loc="outside right center")
            save_figure(figure, path)
    svg = text.getvalue()
    # The XML header is removed, and black becomes the text colour of the page.
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    # SVG draws text without a fill in black, so the root element sets the fill to the page's colour.
    return re.sub(r"<svg ", '<svg role="img" aria-label="utility over true epsilon" fill="currentColor" ', svg, count=1)


def _draw_points(axes: Any, results: Sequence[Result], metric: str) -> None:
    # Colours distinguish trust models, and markers distinguish systems.
    systems = sorted({r.system for r in results if r.trust != "none"})
    for trust, colour in _COLOURS.items():
        for system in systems:
            points = sorted(
                (r.epsilon, r.metrics[metric])
                for r in results
                if (r.trust, r.system) == (trust, system) and math.isfinite(r.epsilon)
            )
            if points:
                axes.plot(
                    *zip(*points, strict=True), color=colour, marker=_MARKS[systems.index(system) % len(_MARKS)],
                    markersize=6, linewidth=1.6, label=f"{system}, {_TRUST_LABELS[trust]}",
                )  # fmt: skip


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #55606e; --line: #d5dbe3; --paper: #fff; --ground: #f4f6f8;
  --mark: #eef5fb; --edge: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #a6b0bd; --line: #36404d; --paper: #161b22; --ground: #0d1117; --mark: #16222f;
    --edge: #58a6d6; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; }
main { max-width: 60rem; margin: 2rem auto; padding: 2rem 2.5rem; background: var(--paper);
  border: 1px solid var(--line); border-radius: 6px; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
p { margin: .6rem 0; overflow-wrap: anywhere; }
header p, figcaption, footer { color: var(--soft); }
.verdict { border-left: 5px solid var(--edge); border-radius: 4px; padding: .7rem 1.1rem; background: var(--mark); }
figure { margin: 1.2rem 0; }
figure svg { display: block; width: 100%; max-width: 33rem; height: auto; margin: 0 auto; }
figure svg text { font-family: inherit !important; }
figcaption { font-size: .92rem; margin-top: .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; margin: .7rem 0; }
th, td { text-align: left; padding: .32rem .9rem .32rem 0; border-bottom: 1px solid var(--line); white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
.figures td:nth-child(n+3), .figures th:nth-child(n+3) { text-align: right; }
.verdict p:first-child { font-size: 1.1rem; font-weight: 600; }
dt { margin-top: .7rem; }
dd { margin: .2rem 0 0; overflow-x: auto; }
code { font: .9rem ui-monospace, "DejaVu Sans Mono", Consolas, monospace; white-space: nowrap; }
footer { margin-top: 2.5rem; font-size: .85rem; }
@media (max-width: 44rem) {
  main { margin: 0; padding: 1.2rem; border: 0; }
  .figures th, .figures td { font-size: .82rem; padding-right: .5rem; }
  .figures td:first-child { white-space: normal; min-width: 4rem; }
}
"""
