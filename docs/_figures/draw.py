"""A figure of a `Flow` as SVG: lanes with steps below, narrow enough for a phone, in the colours of the page."""

import textwrap
from html import escape

from flows import EXACT, MASKED, PROTECTED, PUBLIC, Do, Repeat

WIDTH = 360  # units; on a phone a unit is a pixel
SIZE = 12.5
LINE = 15
PER_CHARACTER = 6.1  # mean width of a character of that size, in units
MEANING = {
    EXACT: "exact: trust the receiver",
    PROTECTED: "protected by noise or randomization",
    MASKED: "reveals nothing alone",
    PUBLIC: "public",
}


def fold(text, width):
    """Return lines of text that fit into a width in units."""
    return textwrap.wrap(text, max(int(width / PER_CHARACTER), 8)) or [""]


def in_words(steps):
    """Yield the steps as sentences, for screen readers."""
    for step in steps:
        if isinstance(step, Repeat):
            yield f"{step.times}: {' '.join(in_words(step.steps))}"
        elif isinstance(step, Do):
            yield f"{step.actor}: {step.action}."
        else:
            yield f"{step.sender} to {step.receiver}: {step.content} ({step.kind})."


class Figure:
    """The drawn parts, and the height that they take."""

    def __init__(self, flow):
        share = WIDTH / len(flow.lanes)
        self.centres = {name: share * (number + 0.5) for number, name in enumerate(flow.lanes)}
        self.parts, self.kinds, self.y = [], [], 0
        self._heads(flow.lanes, share)

    def text(self, x, y, lines, css="", anchor="middle"):
        """Add lines of text below each other, with the middle of the first at y."""
        rows = "".join(
            f'<tspan x="{x:.1f}" y="{y + LINE * number:.1f}">{escape(line)}</tspan>'
            for number, line in enumerate(lines)
        )
        css = f' class="{css}"' if css else ""
        self.parts.append(f'<text{css} text-anchor="{anchor}" dominant-baseline="middle">{rows}</text>')

    def box(self, x, y, width, height, css):
        """Add a rectangle."""
        self.parts.append(
            f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4"/>'
        )

    def _heads(self, lanes, share):
        promises = {name: fold(promise, share - 10) if promise else [] for name, promise in lanes.items()}
        height = 14 + LINE * (1 + max(map(len, promises.values())))
        for name, lines in promises.items():
            self.box(self.centres[name] - share / 2 + 3, 2, share - 6, height, "head")
            self.text(self.centres[name], 16, [name], "name")
            self.text(self.centres[name], 16 + LINE, lines, "promise")
        self.y = self.top = height + 2

    def steps(self, steps):
        """Draw the steps from top to bottom."""
        for step in steps:
            if isinstance(step, Repeat):
                self._repeat(step)
            elif isinstance(step, Do):
                self._do(step)
            else:
                self._send(step)

    def _shift_inside(self, centre, width):
        # A margin of 8 units keeps text away from the border.
        return min(max(centre, width / 2 + 8), WIDTH - width / 2 - 8)

    def _send(self, step):
        start, end = self.centres[step.sender], self.centres[step.receiver]
        lines = fold(step.content, WIDTH - 40)
        width = max(map(len, lines)) * PER_CHARACTER
        self.y += 18
        self.text(self._shift_inside((start + end) / 2, width), self.y, lines)
        self.y += LINE * (len(lines) - 1) + 13
        # The line ends before the arrowhead, which points to the receiver.
        sign = 1 if end > start else -1
        self.parts.append(
            f'<line class="{step.kind}" x1="{start:.1f}" y1="{self.y}" x2="{end - 7 * sign:.1f}" y2="{self.y}"/>'
            f'<path class="tip {step.kind}" d="M{end:.1f} {self.y}l{-9 * sign} -5v10z"/>'
        )
        if step.kind not in self.kinds:
            self.kinds.append(step.kind)

    def _do(self, step):
        lines = fold(step.action, 215)
        width = max(map(len, lines)) * PER_CHARACTER + 14
        height = LINE * len(lines) + 8
        self.y += 11
        centre = self._shift_inside(self.centres[step.actor], width)
        self.box(centre - width / 2, self.y, width, height, "act")
        self.text(centre, self.y + 4 + LINE / 2, lines)
        self.y += height

    def _repeat(self, step):
        self.y += 12
        top, n_parts = self.y, len(self.parts)
        self.y += 16
        self.steps(step.steps)
        self.y += 10
        # The frame comes before its steps, so that they are drawn over it.
        step_parts, self.parts = self.parts[n_parts:], self.parts[:n_parts]
        self.box(2, top, WIDTH - 4, self.y - top, "again")
        self.text(9, top + 11, [step.times], "times", anchor="start")
        self.parts += step_parts

    def legend(self):
        """Add the meanings of the colours."""
        self.y += 22
        for kind in self.kinds:
            self.parts.append(f'<line class="{kind}" x1="8" y1="{self.y}" x2="38" y2="{self.y}"/>')
            self.text(46, self.y, [MEANING[kind]], anchor="start")
            self.y += LINE + 2


def draw(flow, title):
    """Return the figure as one ``<svg>``."""
    figure = Figure(flow)
    figure.steps(flow.steps)
    end = figure.y + 8
    figure.legend()
    lanes = "".join(
        f'<line class="lane" x1="{x:.1f}" y1="{figure.top}" x2="{x:.1f}" y2="{end:.1f}"/>'
        for x in figure.centres.values()
    )
    words = escape(f"{title}: messages between the parties. {' '.join(in_words(flow.steps))}", quote=True)
    return (
        f'<svg class="flow" role="img" aria-label="{words}" viewBox="0 0 {WIDTH} {figure.y:.0f}" '
        f'font-size="{SIZE}">{lanes}{"".join(figure.parts)}</svg>'
    )
