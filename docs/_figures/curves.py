"""Curves as SVG: one or two in colour, the others in grey, each with a different mark."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, MARGIN, TOP, BOTTOM = 360, 36, 10, 8, 210  # units; one is a pixel on a phone
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
LINES = 9  # maximum number of grid lines


@dataclass(frozen=True)
class Plot:
    """Curves by name, each with points (x, y); a curve with x None holds for every x."""

    curves: dict
    highlighted: str  # name of the curve in colour
    about: str  # y over x
    data: str
    scale: str = "log"  # of x; or "linear", or "even" with equal distances
    from_zero: bool = True  # of y
    ticks: tuple = ()  # labels of the x axis; all abscissae if empty
    second: str = ""  # name of a second curve in colour

    @property
    def abscissae(self):
        """Sorted x of all curves."""
        return sorted({x for points in self.curves.values() for x, _ in points if x is not None})

    @property
    def x_labels(self):
        """Labels below the plot."""
        # A margin of 10% keeps ticks just outside the data.
        return [x for x in self.ticks if self.abscissae[0] * 0.9 <= x <= self.abscissae[-1] * 1.1] or self.abscissae

    def heights(self):
        """Return the lowest and the highest y of the plot, and the step between its lines."""
        values = [y for points in self.curves.values() for _, y in points]
        low, high = 0 if self.from_zero else min(values), max(values)
        step = next((step for step in STEPS if (high - low) / step <= LINES), STEPS[-1])
        # 1e-9 absorbs the rounding of quotients that are whole numbers.
        return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step

    def across(self, x):
        """Return the horizontal position of x, from 0 to 1."""
        if self.scale == "even":
            return self.abscissae.index(x) / (len(self.abscissae) - 1)
        scaled = math.log if self.scale == "log" else float
        low, high = scaled(self.abscissae[0]), scaled(self.abscissae[-1])
        return (scaled(x) - low) / (high - low)


def _mark(number, x, y, css):
    shapes = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.5 -3.5h7v7h-7z", "M0 -4.5l4.5 8h-9z", "M0 -5l5 5l-5 5l-5 -5z")
    return f'<path class="{css}" transform="translate({x:.1f} {y:.1f})" d="{shapes[number % len(shapes)]}"/>'


def short(number, n_decimals=None):
    """Return a figure without the 0 before its point."""
    if number == 0:
        return "0"
    text = f"{number:,.10g}" if n_decimals is None else f"{number:.{n_decimals}f}"
    return text[1:] if text.startswith("0.") else text


def draw(plot, width=WIDTH, n_columns=1):
    """Return the plot as one ``<svg>`` with a legend of some columns."""
    right = width - MARGIN
    names = [plot.highlighted, *(name for name in plot.curves if name != plot.highlighted)]
    lowest, highest, step = plot.heights()
    n_decimals = 3 if step < 0.01 else 2 if step < 0.1 else 1

    def x_of(x):
        return LEFT + 8 + (right - LEFT - 16) * plot.across(x)

    def y_of(y):
        # SVG counts y from the top.
        return BOTTOM - (BOTTOM - TOP) * (y - lowest) / (highest - lowest)

    parts = []
    for line in range(round((highest - lowest) / step) + 1):
        value = lowest + line * step
        y = f"{y_of(value):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
        label = short(value, n_decimals)
        parts.append(f'<text x="{LEFT - 5}" y="{y}" text-anchor="end" dominant-baseline="middle">{label}</text>')
    for x in plot.x_labels:
        label = short(x)
        middle = min(x_of(x), width - 3.1 * len(label))  # moves a long label to the left, inside the plot
        parts.append(f'<text x="{middle:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{label}</text>')
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{BOTTOM + 34}" text-anchor="middle">{escape(plot.about)}</text>')
    sentences = []
    # The highlighted curve is drawn last, over the others.
    for number, name in reversed(list(enumerate(names))):
        css = {plot.highlighted: "own", plot.second: "second"}.get(name, f"other n{number % 3}")
        points = plot.curves[name]
        is_flat = points[0][0] is None
        ends = [(x, points[0][1]) for x in (plot.abscissae[0], plot.abscissae[-1])] if is_flat else points
        coordinates = [(x_of(x), y_of(y)) for x, y in ends]
        parts.append(f'<polyline class="{css}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in coordinates)}"/>')
        parts += [_mark(number, x, y, css) for x, y in coordinates]
        row, start = BOTTOM + 56 + 17 * (number // n_columns), LEFT + (right - LEFT) * (number % n_columns) // n_columns
        parts.append(f'<polyline class="{css}" points="{start},{row} {start + 28},{row}"/>')
        parts.append(_mark(number, start + 14, row, css))
        parts.append(f'<text x="{start + 36}" y="{row}" dominant-baseline="middle">{escape(name)}</text>')
        values = ", ".join(f"{y:.3f}" if x is None else f"{y:.3f} at {x:.3g}" for x, y in points)
        sentences.append(f"{name}: {values}.")
    # Screen readers read this label instead of the picture.
    words = escape(f"{plot.data}. {plot.about}. {' '.join(reversed(sentences))}", quote=True)
    height = BOTTOM + 56 + 17 * math.ceil(len(names) / n_columns)
    return f'<svg class="plot" role="img" aria-label="{words}" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'
