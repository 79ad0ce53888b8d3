"""Figures of README and of the first page, from stored records: the demo's, and those of the benchmarks.

python -P docs/_figures/front_page.py           # writes README's tables and its plot
python -P docs/_figures/front_page.py --demo    # runs the demo first, and stores its record
python -P docs/_figures/front_page.py --ledger  # takes the picture of a ledger's page with Chromium
"""

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path += [str(folder) for folder in Path(__file__).parents[:3]]  # _figures, docs and the checkout
from curves import Plot, draw
from table_downloads import TABLE, rows_of

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "reproductions" / "demo.json"
IMAGES = ROOT / "docs" / "images"
COMMAND = ("demo", "--seed", "1", "--json", "--quiet")
MAX_EPSILON = 10  # nats; a larger epsilon is no bound in practice
TRUSTED = {
    "central": "a server", "aggregator": "70% of nodes", "shuffle": "a shuffler", "local": "no party", "none": "-",
}  # fmt: skip
STYLE = """svg { font: 12px system-ui, "DejaVu Sans", Arial, sans-serif; --ink: #1c2430; --soft: #66707d;
  --line: #dfe4ea; --paper: #fff; --own: #0067a3; --second: #b35000; background: var(--paper); }
@media (prefers-color-scheme: dark) { svg { --ink: #e6eaf0; --soft: #9aa5b1; --line: #2d3640; --paper: #0d1117;
  --own: #5fb4e8; --second: #f0954a; } }
text { fill: var(--ink); } .grid { stroke: var(--line); }
polyline { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 6 3; } path { fill: var(--soft); }
polyline.own { stroke: var(--own); stroke-width: 2.5; stroke-dasharray: none; }
path.own { fill: var(--own); }
polyline.second { stroke: var(--second); stroke-width: 2.5; stroke-dasharray: none; }
path.second { fill: var(--second); }
"""
# Rows of the table of speed: task, peer, benchmark, and the values of its parameters.
SETS = {"instruction_set": ["x86-64-v3", "x86-64-v4"]}
SPEED = (
    ("ALS, exact", "implicit", "compute.bench_als.Exact.track_times_implicit", {"n_threads": [1], **SETS}),
    ("top ten of every user", "implicit", "compute.bench_ranking.RecommendTop10.track_times_implicit", SETS),
    ("SGD over ratings", "cornac", "compute.bench_sgd.RatioToPeers.track_times",
     {"peer": ["cornac"], "model": ["biased"], "what": ["epochs"], "n_threads": [1]}),
    ("sparse k-means", "scikit-learn", "compute.bench_clustering.Iterations.track_times_scikit_learn_lloyd", SETS),
    ("client's step of a two-tower network", "PyTorch, eager",
     "compute.networks.bench_two_tower.RatioToPeers.track_times_torch_eager", SETS),
    ("binary randomized response", "diffprivlib",
     "mechanisms.channels.bench_binary_response.InstructionSets.track_times_diffprivlib", SETS),
)  # fmt: skip


# ---- the demo --------------------------------------------------------------------------------------------------------


def read_results():
    """Return the results of the stored record."""
    return json.loads(RECORD.read_text())["results"]


def hits_of(results, system):
    """Return HR@10 of a system without privacy."""
    return next(r["metrics"]["hr@10"] for r in results if (r["system"], r["trust"]) == (system, "none"))


def best_results(results):
    """Return the best result of each trust model and epsilon, and FMF-LDP's, with a finite practical epsilon."""
    private = [r for r in results if r["trust"] != "none" and r["epsilon"] <= MAX_EPSILON]
    best = {}
    for result in private:
        cell = result["trust"], round(result["epsilon"], 1)
        if cell not in best or result["metrics"]["hr@10"] > best[cell]["metrics"]["hr@10"]:
            best[cell] = result
    return sorted(best.values(), key=lambda r: (list(TRUSTED).index(r["trust"]), r["epsilon"]))


def landing(results=None):
    """Return the plot of the first page: two private systems between popularity and EASE."""
    results = results or read_results()
    names = {
        ("DPGram", "central"): "DPGram, a server is trusted",
        ("ShuffledGram", "shuffle"): "ShuffledGram, a shuffler is trusted",
    }
    curves = {
        name: [(r["epsilon"], r["metrics"]["hr@10"]) for r in results if (r["system"], r["trust"]) == system]
        for system, name in names.items()
    }
    curves |= {f"{name}, no privacy": [(None, hits_of(results, name))] for name in ("EASE", "Popularity")}
    about = "HR@10 over epsilon of the whole run, replacing a user"
    first, second = names.values()
    return Plot(curves, first, about, "Generated data", ticks=(0.5, 1, 2), second=second)


def make_picture(plot):
    """Return README's plot as a file, with its own colours, light and dark."""
    svg = draw(plot, width=640, n_columns=2)
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[1]}" height="{size[2]}"'
    return svg.replace("<svg", head, 1).replace(">", f">\n<style>\n{STYLE}</style>\n", 1) + "\n"


def make_sentence(results):
    """Return the sentence on the best private result."""
    private = max(best_results(results), key=lambda r: r["metrics"]["hr@10"])
    hits, system, epsilon = private["metrics"]["hr@10"], private["system"], private["epsilon"]
    return (
        f"At epsilon {epsilon:.2g} for all data of a user, `{system}` has the held-out item among its first ten for "
        f"{hits:.0%} of users: {hits / hits_of(results, 'Popularity'):.1f} times as often as a popularity list, and "
        f"{hits / hits_of(results, 'EASE'):.0%} of EASE without privacy."
    )


def format_results(results):
    """Return the table of the demo in Markdown."""
    popularity = hits_of(results, "Popularity")
    lines = [
        "| trusted | system | epsilon | HR@10 | times popularity | download | upload |",
        "|---|---|---|---|---|---|---|",
    ]
    shown = [*best_results(results), *(r for r in results if r["system"] in ("Popularity", "EASE"))]
    for result in shown:
        hits, epsilon = result["metrics"]["hr@10"], result["epsilon"]
        # A cost is rounded up; 1e-9 absorbs the rounding of whole cents.
        cost = "none" if epsilon == "infinite" else f"{math.ceil(epsilon * 100 - 1e-9) / 100:.2f}"
        traffic = (format_bytes(result[name]) for name in ("bytes_down", "bytes_up"))
        name = "popularity" if result["system"] == "Popularity" else f"`{result['system']}`"
        cells = (TRUSTED[result["trust"]], name, cost, f"{hits:.3f}"[1:], f"{hits / popularity:.1f}", *traffic)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def format_bytes(n_bytes):
    """Return a number of bytes in kB or MB."""
    if n_bytes is None:
        return "-"
    amount, unit = (n_bytes / 1e6, "MB") if n_bytes >= 1e6 else (n_bytes / 1e3, "kB")
    return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"


# ---- speed -----------------------------------------------------------------------------------------------------------


def format_speed():
    """Return the table of speed in Markdown: the range over sizes and instruction sets, on each machine."""
    from benches import figures

    runs = figures.read_kept()
    lines = [f"| task | peer | {' | '.join(machine['cpu'].split('(')[0] for machine, _ in runs)} |"]
    lines.append("|---" * (2 + len(runs)) + "|")
    for task, peer, benchmark, where in SPEED:
        row = {"benchmark": benchmark, "where": where}
        cells = [format_range([m.value for m in measured if figures.matches(row, m)]) for _, measured in runs]
        lines.append(f"| {task} | {peer} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def format_range(values):
    """Return the smallest and the largest of some figures, with two digits."""
    if not values or any(value is None or math.isnan(value) for value in values):
        return "not measured"
    ends = [f"{float(f'{value:.2g}'):,.10g}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends))


# ---- files -----------------------------------------------------------------------------------------------------------


def update(text, tables):
    """Return Markdown with new tables; a table replaces the one with the same first heading."""
    first = {next(rows_of(table))[0]: table for table in tables}
    return TABLE.sub(lambda match: first.get(next(rows_of(match[0]))[0], match[0]), text)


def written_files():
    """Return the generated files and their text."""
    readme, results = ROOT / "README.md", read_results()
    return {
        readme: update(readme.read_text(), [format_results(results), format_speed()]),
        IMAGES / "utility.svg": make_picture(landing(results)),
    }


def run_demo():
    """Run the demo, and store its record without times and paths."""
    from fastfedrec.core.record_files import format_records

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "fastfedrec", *COMMAND, "--out", folder]
        document = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    record = {name: document[name] for name in ("version", "data", "noise")}
    RECORD.write_text(format_records({**record, "results": [without_times(r) for r in document["results"]]}))


def without_times(result):
    """Return a result without its duration, which differs between runs."""
    return {name: value for name, value in result.items() if name != "seconds"}


def photograph_ledger(path, width=1000, height=790):
    """Write a picture of the top of a ledger's page, of a private model of generated data."""
    from PIL import Image

    from fastfedrec import Key, PrivateRecommender, datasets

    data = datasets.generate_implicit(50_000, 1000, key=Key.from_seed(1), mean_interactions=30)
    model = PrivateRecommender(epsilon=1, trust="central").fit(data)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("neither chromium nor google-chrome is on the path; install one")
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "ledger.html"), Path(folder, "ledger.png")
        model.ledger_.report(page, about=repr(model))
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        ]
        size = [f"--window-size={width},{height}", "--force-device-scale-factor=1.5", f"--screenshot={picture}"]
        light = "--blink-settings=preferredColorScheme=1"
        subprocess.run([program, *options, *size, light, page.as_uri()], check=True, capture_output=True)
        # A palette makes the file half as large.
        Image.open(picture).convert("RGB").quantize(256).save(path, optimize=True)


def main(argv=None):
    """Write the generated files."""
    parser = argparse.ArgumentParser(description="Write README's tables and pictures from stored records.")
    parser.add_argument("--demo", action="store_true", help="run the demo first, and store its record")
    parser.add_argument("--ledger", action="store_true", help="take the picture of a ledger's page with Chromium")
    arguments = parser.parse_args(argv)
    if arguments.demo:
        run_demo()
    if arguments.ledger:
        photograph_ledger(IMAGES / "ledger.png")
    for path, text in written_files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
