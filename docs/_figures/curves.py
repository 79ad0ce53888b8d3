"""Curves as SVG: one in colour, what it is compared with in grey, each with a mark of its own."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 360, 36, 350, 8, 210  # units of which a phone shows one as a pixel
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
LINES = 9  # across the plot, at most


@dataclass(frozen=True)
class Plot:
    """Curves by name, each of points (x, y); a curve whose x is None holds for every x."""

    curves: dict
    own: str
    about: str  # y over x
    data: str
    scale: str = "log"  # of x; or "linear", or "even": each x as far from the next
    from_zero: bool = True  # of y
    ticks: tuple = ()  # x that are written, where not all are

    @property
    def places(self):
        """Every x of the curves, in order."""
        return sorted({x for points in self.curves.values() for x, _ in points if x is not None})

    @property
    def written(self):
        """What is written below the plot."""
        return [x for x in self.ticks if self.places[0] * 0.9 <= x <= self.places[-1] * 1.1] or self.places

    def heights(self):
        """The lowest and the highest y of the plot, and the step between its lines."""
        values = [y for points in self.curves.values() for _, y in points]
        least, most = 0 if self.from_zero else min(values), max(values)
        step = next((step for step in STEPS if (most - least) / step <= LINES), STEPS[-1])
        return math.floor(least / step + 1e-9) * step, math.ceil(most / step - 1e-9) * step, step

    def across(self, x):
        """How far right x stands, from 0 to 1."""
        if self.scale == "even":
            return self.places.index(x) / (len(self.places) - 1)
        place = math.log if self.scale == "log" else float
        least, most = place(self.places[0]), place(self.places[-1])
        return (place(x) - least) / (most - least)


def _mark(number, x, y, css):
    shapes = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.5 -3.5h7v7h-7z", "M0 -4.5l4.5 8h-9z", "M0 -5l5 5l-5 5l-5 -5z")
    return f'<path class="{css}" transform="translate({x:.1f} {y:.1f})" d="{shapes[number % len(shapes)]}"/>'


def short(number, places=None):
    """A figure without the 0 before its point."""
    if number == 0:
        return "0"
    text = f"{number:,.10g}" if places is None else f"{number:.{places}f}"
    return text[1:] if text.startswith("0.") else text


def draw(plot):
    """The plot as one ``<svg>``."""
    names = [plot.own, *(name for name in plot.curves if name != plot.own)]
    lowest, highest, step = plot.heights()
    places = 3 if step < 0.01 else 2 if step < 0.1 else 1

    def right(x):
        return LEFT + 8 + (RIGHT - LEFT - 16) * plot.across(x)

    def down(y):
        return BOTTOM - (BOTTOM - TOP) * (y - lowest) / (highest - lowest)

    parts = []
    for line in range(round((highest - lowest) / step) + 1):
        value = lowest + line * step
        y = f"{down(value):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{RIGHT}" y2="{y}"/>')
        label = short(value, places)
        parts.append(f'<text x="{LEFT - 5}" y="{y}" text-anchor="end" dominant-baseline="middle">{label}</text>')
    for x in plot.written:
        label = short(x)
        middle = min(right(x), WIDTH - 3.1 * len(label))  # a long one stands a little to the left
        parts.append(f'<text x="{middle:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{label}</text>')
    parts.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 34}" text-anchor="middle">{escape(plot.about)}</text>')
    said = []
    for number, name in reversed(list(enumerate(names))):
        css = "own" if name == plot.own else f"other n{number % 3}"
        points = plot.curves[name]
        flat = points[0][0] is None
        ends = [(x, points[0][1]) for x in (plot.places[0], plot.places[-1])] if flat else points
        placed = [(right(x), down(y)) for x, y in ends]
        parts.append(f'<polyline class="{css}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in placed)}"/>')
        parts += [_mark(number, x, y, css) for x, y in placed]
        row = BOTTOM + 56 + 17 * number
        parts.append(f'<polyline class="{css}" points="{LEFT},{row} {LEFT + 28},{row}"/>')
        parts.append(_mark(number, LEFT + 14, row, css))
        parts.append(f'<text x="{LEFT + 36}" y="{row}" dominant-baseline="middle">{escape(name)}</text>')
        values = ", ".join(f"{y:.3f}" if x is None else f"{y:.3f} at {x:.3g}" for x, y in points)
        said.append(f"{name}: {values}.")
    words = escape(f"{plot.data}. {plot.about}. {' '.join(reversed(said))}", quote=True)
    height = BOTTOM + 56 + 17 * len(names)
    return f'<svg class="reach" role="img" aria-label="{words}" viewBox="0 0 {WIDTH} {height}">{"".join(parts)}</svg>'
