"""What a system reaches over epsilon, as SVG, from the figures in `docs/reproductions` when the pages are built."""

import json
import math
from html import escape
from pathlib import Path
from statistics import mean

KEPT = Path(__file__).parents[1] / "reproductions"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 360, 36, 350, 8, 210  # units of which a phone shows one as a pixel
TICKS = (0.5, 1, 2, 4, 8)
MAP_SIZE = {"n_users": 9000, "n_items": 400, "row_length": 60.0}  # where all systems of a trust model were fitted
SYSTEMS = {
    "dp-subspace": ("central", "DPSubspace"),
    "dp-fmf": ("central", "DPFMF"),
    "dp-als": ("central", "DPALS"),
    "shuffled-sketch": ("shuffle", "ShuffledSketchGram"),
    "fmf-ldp": ("local", "FMFLDP"),
    "private-recommender": ("central", "what it takes"),
}


def read_map(trust):
    """HR@10 over epsilon by system: means over seeds."""
    cells = json.loads((KEPT / "private-recommender-map.json").read_text())["cells"]
    cells = [cell for cell in cells if cell["trust"] == trust and all(cell[k] == v for k, v in MAP_SIZE.items())]
    series = {}
    for cell in sorted(cells, key=lambda cell: cell["epsilon"]):
        found = {name: mean(values) for name, values in cell["systems"].items()}
        found["what it takes"] = found[cell["choices"]["row_length told"]["system"]]
        found["items at random"] = found.pop("Random")
        for name, value in found.items():
            series.setdefault(name, []).append((cell["epsilon"], value))
    return series


def read_gram():
    """The same of DPGram on MovieLens, by protocol; epsilon is that for replacing a user."""
    cells = json.loads((KEPT / "dp-gram-movielens.json").read_text())["cells"]
    shown = {
        ("DPGram", "held out, then resampled"): "50,000 users",
        ("DPGram, genres and years", "the people themselves"): "5,672 people, genres, years",
        ("DPGram", "the people themselves"): "5,672 people",
    }
    series = {}
    for cell in cells:
        label = shown.get((cell["model"], cell["protocol"]))
        if label:
            series.setdefault(label, []).append((cell["replaced"], mean(cell["hit_ratios"])))
            if "genres" not in label:
                point = cell["replaced"], mean(cell["popularity"])
                series.setdefault(f"popularity, {label}", []).append(point)
    return {name: sorted(points) for name, points in series.items()}


def _mark(number, x, y, css):
    shapes = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.5 -3.5h7v7h-7z", "M0 -4.5l4.5 8h-9z", "M0 -5l5 5l-5 5l-5 -5z")
    return f'<path class="{css}" transform="translate({x:.1f} {y:.1f})" d="{shapes[number % len(shapes)]}"/>'


def draw(series, own, title):
    """The plot as one ``<svg>``: `own` in colour, what it is compared with in grey, each with a mark of its own."""
    names = [own, *(name for name in series if name != own)]
    highest = max(y for points in series.values() for _, y in points)
    top = math.ceil(highest * 10) / 10
    least, most = (choose(x for points in series.values() for x, _ in points) for choose in (min, max))
    scale = (RIGHT - LEFT - 16) / math.log(most / least)

    def place(x, y):
        return LEFT + 8 + scale * math.log(x / least), BOTTOM - (BOTTOM - TOP) * y / top

    parts = []
    for tenth in range(round(top * 10) + 1):
        y = place(least, tenth / 10)[1]
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y:.1f}" text-anchor="end" dominant-baseline="middle">.{tenth}</text>')
    for tick in TICKS:
        if least * 0.9 <= tick <= most * 1.1:
            label = f"{tick:g}".lstrip("0")
            parts.append(f'<text x="{place(tick, 0)[0]:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{label}</text>')
    about = "HR@10 over epsilon of the whole run, replacing a user"
    parts.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 34}" text-anchor="middle">{about}</text>')
    said = []
    for number, name in reversed(list(enumerate(names))):
        css = "own" if name == own else f"other n{number % 3}"
        places = [place(x, y) for x, y in series[name]]
        parts.append(f'<polyline class="{css}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
        parts += [_mark(number, x, y, css) for x, y in places]
        row = BOTTOM + 56 + 17 * number
        parts.append(f'<polyline class="{css}" points="{LEFT},{row} {LEFT + 28},{row}"/>')
        parts.append(_mark(number, LEFT + 14, row, css))
        parts.append(f'<text x="{LEFT + 36}" y="{row}" dominant-baseline="middle">{escape(name)}</text>')
        said.append(f"{name}: " + ", ".join(f"{y:.3f} at {x:.2g}" for x, y in series[name]) + ".")
    words = escape(f"{title}. {about}. {' '.join(reversed(said))}", quote=True)
    height = BOTTOM + 56 + 17 * len(names)
    return f'<svg class="reach" role="img" aria-label="{words}" viewBox="0 0 {WIDTH} {height}">{"".join(parts)}</svg>'


def plot(page):
    """The plot of a system's page, and what it is of."""
    if page == "dp-gram":
        data = "MovieLens 1M, 1,000 items, 99 other items, three seeds"
        return draw(read_gram(), "50,000 users", data), data
    trust, own = SYSTEMS[page]
    sizes = f"{MAP_SIZE['n_users']:,} users, {MAP_SIZE['n_items']} items, rows of {MAP_SIZE['row_length']:g}"
    data = f"Generated data ({sizes}), 99 other items, three seeds"
    series = {name: points for name, points in read_map(trust).items() if name == own or name != "what it takes"}
    return draw(series, own, data), data
