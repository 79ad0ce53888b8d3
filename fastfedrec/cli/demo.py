"""The command ``fastfedrec demo``: a table and a page of systems of every trust model on generated data."""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastfedrec.cli.inputs import natural
from fastfedrec.cli.outputs import add_details, can_show_progress, describe, footer, missing_extra, show
from fastfedrec.core.files import check_folder, write_text
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import NOT_COVERED, epsilon_to_json, format_table
from fastfedrec.core.version import __version__
from fastfedrec.datasets import generate_implicit
from fastfedrec.studies.demo.comparison import measure, verdicts
from fastfedrec.studies.demo.page import draw, make_page, table

__all__ = ["add_demo"]

N_USERS, N_ITEMS, ROW_LENGTH, PRESET = 50_000, 1000, 30, "movielens-1m"
PAGE, PICTURE = "report.html", "utility.png"


def add_demo(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "demo",
        run_demo,
        "Train private systems of every trust model on generated data: a table with true epsilons, and a page with a "
        "plot and its explanation.",
        ["fastfedrec demo --out demo-output"],
    )
    command.add_argument(
        "--out", type=Path, default=Path("demo-output"), metavar="DIR", help=f"folder for {PAGE} and {PICTURE}"
    )
    command.add_argument(
        "--seed", type=natural, metavar="N", help="seed of the noise, for a simulation; default: entropy"
    )
    add_details(command)


def run_demo(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Fit and measure the systems, print the results, and write the page."""
    check_folder("--out", arguments.out)

    def print_text(text: str) -> None:
        if not arguments.json:
            show(text + "\n")

    started = time.perf_counter()
    # Data and split always come from a seed, since no user's privacy depends on them.
    key = Key.from_seed(0 if arguments.seed is None else arguments.seed)
    data = generate_implicit(N_USERS, N_ITEMS, key=key, preset=PRESET, mean_interactions=ROW_LENGTH)
    noise = (
        "the operating system's entropy, which cannot be repeated"
        if arguments.seed is None
        else f"seed {arguments.seed}: a SIMULATION, without protection against an adversary who knows the seed"
    )
    about = (
        f"{data.n_users:,} generated users, {data.n_items:,} items, {data.n_interactions:,} interactions (preset "
        f"{PRESET!r}), without real data. One item of each user is held out and ranked among all unseen items."
    )
    print_text(f"{about}\nNoise: from {noise}")
    noise_key = None if arguments.seed is None else key
    results = measure(data, key=key, noise_key=noise_key, show_progress=can_show_progress(arguments.quiet))
    conclusions = verdicts(results, data.n_users)
    legend = "true epsilon: the cost of the whole run, in nats, for replacing all data of one user."
    below = footer(arguments, legend, conclusions[0], NOT_COVERED, details=conclusions[1:])
    print_text("\n".join([format_table(*table(results)), "", *below]))
    seconds = time.perf_counter() - started
    arguments.out.mkdir(parents=True, exist_ok=True)
    page = arguments.out / PAGE
    picture = draw(results, arguments.out / PICTURE)
    made_by = f"fastfedrec {__version__}; noise from {noise}; {seconds:.0f} s"
    write_text(page, make_page(about, conclusions, results, made_by, picture))
    if (problem := missing_extra("matplotlib", "no picture")) is not None:
        print_text(problem)
    print_text(f"{seconds:.0f} s; open the page in a browser: {page}")
    document = {
        "version": __version__,
        "data": {**describe(data), "preset": PRESET},
        "noise": "entropy" if arguments.seed is None else f"seed {arguments.seed} (simulation)",
        "results": [asdict(r) | {"epsilon": epsilon_to_json(r.epsilon)} for r in results],
        "verdicts": conclusions,
        "not_covered": NOT_COVERED,
        "page": str(page),
        "seconds": seconds,
    }
    return document if arguments.json else None
