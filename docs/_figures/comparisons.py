"""Plots of the papers' figures and ours, from the tables of a page at the time of the build."""

import math
import re
from dataclasses import dataclass
from functools import partial
from html import escape

import front_page
from curves import LINES, STEPS, Plot, short
from curves import draw as draw_curves
from tables import Table

WIDTH, LEFT, RIGHT, ROW = 360, 18, 342, 30  # units; one is a pixel on a phone
NUMBER = re.compile(r"\d[\d,]*\.?\d*|\.\d+")
OURS, PAPER = "ours", "the paper"
_MARKS = {  # by the position of a series in its plot; the paper's mark is always a cross
    PAPER: "M-4.5 -4.5l9 9M-4.5 4.5l9 -9",
    0: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    1: "M-4 -4h8v8h-8z",
    2: "M0 -5l5 9h-10z",
    3: "M0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
}


@dataclass(frozen=True)
class Dots:
    """Rows with a label and a mark for each series that has a figure there."""

    rows: list  # (label, {series: figure}); a heading has no figures
    about: str
    scale: str = "linear"  # or "log"
    from_zero: bool = True
    data: str = ""

    @property
    def series(self):
        """Names in the order of their first occurrence."""
        return list(dict.fromkeys(name for _, figures in self.rows for name in figures))

    def axis(self):
        """Return the ends of the axis and its ticks."""
        values = [value for _, figures in self.rows for value in figures.values()]
        if self.scale == "log":
            # Ends are logarithms, ticks are powers of ten.
            low, high = math.floor(math.log10(min(values))), math.log10(max(values)) + 0.05
            return low, high, [10.0**k for k in range(low, math.floor(high) + 1)]
        minimum, maximum = 0 if self.from_zero else min(values), max(values)
        steps = (0.0005, 0.001, 0.002, *STEPS)
        step = next((step for step in steps if (maximum - minimum) / step <= LINES - 2), STEPS[-1])
        # 1e-9 absorbs the rounding of quotients that are whole numbers.
        first, last = math.floor(minimum / step + 1e-9), math.ceil(maximum / step - 1e-9)
        return first * step, last * step, [round(k * step, 6) for k in range(first, last + 1)]


def draw(plot):
    """Return the plot as one ``<svg>``."""
    low, high, ticks = plot.axis()
    names = plot.series
    bottom = 6 + ROW * len(plot.rows)

    def x_of(value):
        scaled = math.log10(value) if plot.scale == "log" else value
        return LEFT + (RIGHT - LEFT) * (scaled - low) / (high - low)

    def mark(name, x, y):
        # The paper's series does not count, so that ours has the first mark.
        number = [other for other in names if other != PAPER].index(name) if name != PAPER else PAPER
        css = "paper" if name == PAPER else "own" if number == 0 else "other"
        return f'<path class="{css}" transform="translate({x:.1f} {y:.1f})" d="{_MARKS[number]}"/>'

    parts = []
    for tick in ticks:
        x = f"{x_of(tick):.1f}"
        parts.append(f'<line class="grid" x1="{x}" y1="4" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{short(tick)}</text>')
    sentences = []
    for number, (label, figures) in enumerate(plot.rows):
        y = 16 + ROW * number
        css = "" if figures else ' class="name"'
        parts.append(f'<text{css} x="{LEFT}" y="{y if figures else y + 8}">{escape(label)}</text>')
        x_positions = {name: x_of(value) for name, value in figures.items()}
        # A line joins the marks of one row.
        if len(x_positions) > 1:
            first, last = min(x_positions.values()), max(x_positions.values())
            ends = f'x1="{first:.1f}" x2="{last:.1f}" y1="{y + 11}" y2="{y + 11}"'
            parts.append(f'<line class="between" {ends}/>')
        # The paper's cross is drawn last, over the other marks.
        parts += [
            mark(name, x, y + 11)
            for name, x in sorted(x_positions.items(), key=lambda item: (item[0] == PAPER, -names.index(item[0])))
        ]
        sentences.append(f"{label}: " + ", ".join(f"{name} {value:,.10g}" for name, value in figures.items()) + ".")
    parts.append(f'<text x="{WIDTH / 2}" y="{bottom + 32}" text-anchor="middle">{escape(plot.about)}</text>')
    for number, name in enumerate(names):
        y = bottom + 52 + 17 * number
        parts += [
            mark(name, LEFT + 8, y),
            f'<text x="{LEFT + 22}" y="{y}" dominant-baseline="middle">{escape(name)}</text>',
        ]
    # Screen readers read this label instead of the picture.
    words = escape(f"{plot.about}. {' '.join(sentences)}", quote=True)
    height = bottom + 52 + 17 * len(names)
    return f'<svg class="plot" role="img" aria-label="{words}" viewBox="0 0 {WIDTH} {height}">{"".join(parts)}</svg>'


def figures_of(cell):
    """Return the numbers of a cell."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(cell)]


def _first_figures(cells):
    """Return the first number of each cell in {name: cell}, without cells that have none."""
    return {name: numbers[0] for name, cell in cells.items() if (numbers := figures_of(cell))}


# ---- the papers ----------------------------------------------------------------------------------------------------


def _plot_rows(page, section, highlighted, about, data, label, **settings):
    """Return a plot with a curve for each row of a table; `label` names it by its first two cells."""
    (_, _, *head), *rows = Table(page, section).rows()
    abscissae = [figures_of(x)[0] for x in head]
    curves = {
        label(first, second): [
            (x, figures[0]) for x, y in zip(abscissae, cells, strict=True) if (figures := figures_of(y))
        ]
        for first, second, *cells in rows
    }
    return Plot(curves, highlighted, about, data, **settings)


def fmf_ldp_epsilon():
    """Return the plot of FMF-LDP's Figure 2."""
    return _plot_rows(
        "reproductions/fmf-ldp.md", "Figure 2: HR@10 over epsilon of a report", "50,000 users, k = 250",
        "HR@10 over epsilon of a report", "Generated data", lambda users, model: f"{users} users, {model}",
    )  # fmt: skip


def fmf_ldp_rounds():
    """Return the plot of FMF-LDP's Figure 3."""
    return _plot_rows(
        "reproductions/fmf-ldp.md", "Figure 3: HR@10 over rounds", "50,000 users, k = 100", "HR@10 over rounds",
        "Generated data", lambda users, model: f"{users} users, {model}", scale="linear",
    )  # fmt: skip


def fmf_ldp_sizes():
    """Return the plot of FMF-LDP's Figure 4."""
    _, *rows = Table("reproductions/fmf-ldp.md", "Figure 4: users and items").rows()
    return Dots(
        [
            (
                f"{' users '.join(size.split(' ', 1))} items",
                _first_figures({"ours, as published": ours, PAPER: paper, "FMFLDP()": new, "popularity": popular}),
            )
            for size, paper, ours, new, _, popular, _ in rows
        ],
        "HR@10",
    )


def fmf_ldp_lengths():
    """Return the plot of FMF-LDP's Figure 5; the table has the paper's figures in brackets."""
    (_, *lengths, _), *rows = Table("reproductions/fmf-ldp.md", "Figure 5: HR@K over K").rows()
    plot_rows = []
    for column, length in enumerate(lengths, start=1):
        plot_rows.append((f"K = {length}", {}))
        for row in rows:
            if not row[0].startswith("DP popularity"):  # its marks would cover popularity's
                plot_rows.append((row[0], dict(zip((OURS, PAPER), figures_of(row[column]), strict=False))))
    return Dots(plot_rows, "HR@K")


def _fedrec_errors(column):
    """Return the rows of FedRec's Table 2 for one kind of error."""
    _, *rows = Table("reproductions/fedrec.md", "Table 2: errors").rows()
    plot_rows = []
    for row in rows:
        # One row of FedRec++ holds for three rho, and has three printed figures.
        printed = figures_of(row[column + 1])
        for rho, paper in zip(row[1].split(", "), printed or [None], strict=True):
            label = row[0] if rho == "-" else f"{row[0]}, rho = {rho}"
            plot_rows.append((label, _first_figures({OURS: row[column]}) | ({PAPER: paper} if paper else {})))
    return plot_rows


def fedrec_mae():
    """Return the plot of MAE in FedRec's Table 2."""
    # Errors of models outside the paper are too different for the same axis.
    return Dots([row for row in _fedrec_errors(2) if PAPER in row[1]], "MAE, MovieLens 100K", from_zero=False)


def fedrec_rmse():
    """Return the plot of RMSE in FedRec's Table 2."""
    return Dots([row for row in _fedrec_errors(4) if PAPER in row[1]], "RMSE, MovieLens 100K", from_zero=False)


def fedrec_shares():
    """Return the plot of errors over the share of clients in a round."""
    table = Table("reproductions/fedrec.md", "Share of clients")
    curves = {f"rho = {rho}": table.curve(f"rho {rho}") for rho in range(4)}
    about = "MAE over the share of clients (less is better)"
    return Plot(curves, "rho = 0", about, "MovieLens 100K", "linear", from_zero=False)


def fedrec_communication():
    """Return the plot of vectors in a round of FedRec++."""
    (_, *head), *rows = Table("reproductions/fedrec.md", "Communication").rows()
    plot_rows = []
    # Columns 0 and 1 are MovieLens 100K, columns 2 and 3 are 1M.
    for first in (0, 2):
        plot_rows.append((f"MovieLens {head[first].partition(':')[0]}", {}))
        for denoisers, *cells in rows:
            for client, cell in (("a denoiser", cells[first]), ("an ordinary client", cells[first + 1])):
                ours, paper = figures_of(cell)
                if ours:
                    plot_rows.append((f"{denoisers} denoisers: {client}", {OURS: ours, PAPER: paper}))
    return Dots(plot_rows, "latent vectors a round", "log")


def _privrec_models(first):
    """Return the rows of PrivRec's Table 2 or 3 with a figure, printed or measured."""
    _, *rows = Table("reproductions/privrec.md", "Tables 2 and 3: all models").rows()
    rows = [(row[0], _first_figures({OURS: row[first + 1], PAPER: row[first]})) for row in rows]
    return [row for row in rows if row[1]]


def privrec_movielens():
    """Return the plot of PrivRec's Table 2."""
    return Dots(_privrec_models(1), "HR@10, MovieLens 1M")


def privrec_frappe():
    """Return the plot of PrivRec's Table 3."""
    return Dots(_privrec_models(3), "HR@10, Frappe")


def privrec_epsilon():
    """Return the plot of PrivRec's Tables 4 and 5."""
    _, *rows = Table("reproductions/privrec.md", "Tables 4 and 5: epsilon").rows()
    return Dots(
        [
            (f"{users} users, {cohort} a round", _first_figures({"upper bound": bound, PAPER: paper, "Renyi": renyi}))
            for users, cohort, paper, renyi, bound in rows
        ],
        "epsilon at delta 1e-6",
        "log",
    )


def privrec_membership():
    """Return the plot of the printed attacks in PrivRec's Table 6."""
    _, *rows = Table("reproductions/privrec.md", "Table 6: membership inference, MovieLens 1M").rows()
    return Dots(
        [
            (
                f"{target}, {attack}",
                _first_figures({OURS: ours, PAPER: paper, "the maximum of any attack on these data": top}),
            )
            for target, attack, paper, ours, top, *_ in rows
            if figures_of(paper)
        ],
        "accuracy of the attack (.5 is chance)",
        from_zero=False,
    )


def privrec_gap():
    """Return the plot of Hits@k by the server's optimiser."""
    page, section = "reproductions/privrec.md", "The missing part: the server's optimiser"
    (_, _, *head), *rows = Table(page, section).rows()
    shown = {
        "first-order MAML, server by Adam": "first-order MAML, server by Adam",
        "PrivRec, as published": "PrivRec, the paper",
        "Reptile, server by Adam": "Reptile, server by Adam",
        "popularity": "popularity",
    }
    curves = {
        shown[name]: [(figures_of(k)[0], figures_of(cell)[0]) for k, cell in zip(head, cells, strict=True)]
        for name, _, *cells in rows
        if name in shown
    }
    return Plot(curves, "first-order MAML, server by Adam", "Hits@k over k", "MovieLens 1M", "linear")


def _plot_prototypes(measure, columns):
    """Return the plot of Figure 8 or 9: test errors, or mean percentile ranks, at two settings."""
    (_, *head), *rows = Table(
        "reproductions/private-prototypes.md", "Figures 8 and 9: MovieLens 1M, ZIP regions"
    ).rows()
    names = {0: "epsilon 1", 1: "epsilon 10", 2: head[2], 3: head[3]}
    cells = {row[0]: {names[k]: figures_of(row[k + 1])[measure : measure + 1] for k in columns} for row in rows}
    # A cell without a second figure has no rank.
    rows = [(model, {name: values[0] for name, values in row.items() if values}) for model, row in cells.items()]
    return Dots(rows, ("RMSE, test", "mean percentile rank (0 is best)")[measure], from_zero=False)


def entity_size():
    """Return the plot of errors over the number of users of an entity."""
    page, section = "reproductions/private-prototypes.md", "Users of one entity (not in the paper)"
    (_, _, *head), *rows = Table(page, section).rows()
    curves = {}
    for users, epsilon, *cells in rows:
        for k, cell in zip(head, cells, strict=True):
            if k in ("k = 1", "k = 10", "k = 100"):
                point = figures_of(users)[0], figures_of(cell)[0]
                curves.setdefault(f"{k} at epsilon {epsilon}", []).append(point)
    about = "RMSE, test, over users of an entity"
    return Plot(curves, "k = 1 at epsilon 1", about, "MovieLens 1M", from_zero=False)


# Keys are the arguments of the directive `comparison-plot`.
PLOTS = {
    "landing": front_page.landing,
    "fmf-ldp-figure-2": fmf_ldp_epsilon,
    "fmf-ldp-figure-3": fmf_ldp_rounds,
    "fmf-ldp-figure-4": fmf_ldp_sizes,
    "fmf-ldp-figure-5": fmf_ldp_lengths,
    "fedrec-table-2-mae": fedrec_mae,
    "fedrec-table-2-rmse": fedrec_rmse,
    "fedrec-client-share": fedrec_shares,
    "fedrec-communication": fedrec_communication,
    "privrec-table-2": privrec_movielens,
    "privrec-table-3": privrec_frappe,
    "privrec-tables-4-and-5": privrec_epsilon,
    "privrec-table-6": privrec_membership,
    "privrec-gap": privrec_gap,
    "private-prototypes-figure-8": partial(_plot_prototypes, 0, (0, 1)),
    "private-prototypes-figure-8-ranks": partial(_plot_prototypes, 1, (0, 1)),
    "private-prototypes-figure-9": partial(_plot_prototypes, 0, (2, 3)),
    "private-prototypes-figure-9-ranks": partial(_plot_prototypes, 1, (2, 3)),
    "private-prototypes-entity-size": entity_size,
}


def plot(name):
    """Return the SVG of the named plot."""
    figure = PLOTS[name]()
    return draw_curves(figure) if isinstance(figure, Plot) else draw(figure)
