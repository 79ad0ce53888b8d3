"""The command ``fastfedrec demo``: systems of every trust model on generated data, in one table and one page."""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastfedrec.cli.inputs import natural
from fastfedrec.cli.outputs import can_show_progress, describe, missing_extra, show
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
    """Describe the command to the parser of `main`."""
    command = add(
        "demo",
        run_demo,
        "Train privately on generated data, under every kind of trust: a table at true epsilons, and a page with the "
        "picture and what it means.",
        ["fastfedrec demo --out demo-output"],
    )
    command.add_argument(
        "--out", type=Path, default=Path("demo-output"), metavar="DIR", help=f"folder for {PAGE} and {PICTURE}"
    )
    command.add_argument("--seed", type=natural, metavar="N", help="simulate: take the noise from a seed")


def run_demo(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Fit, measure, tell, and write the page.

    Data and split come from a seed in any case, because nobody's privacy rests on them.  The noise comes from the
    operating system unless a seed is given.
    """
    check_folder("--out", arguments.out)

    def tell(text: str) -> None:
        if not arguments.json:
            show(text + "\n")

    started = time.perf_counter()
    key = Key.from_seed(0 if arguments.seed is None else arguments.seed)
    data = generate_implicit(N_USERS, N_ITEMS, key=key, preset=PRESET, mean_interactions=ROW_LENGTH)
    noise = (
        "the operating system's entropy; no one can repeat it"
        if arguments.seed is None
        else f"seed {arguments.seed}: a SIMULATION, which protects nobody from whoever knows the seed"
    )
    about = (
        f"{data.n_users:,} generated people, {data.n_items:,} items, {data.n_interactions:,} interactions (preset "
        f"{PRESET!r}): no real person's. One item of each is held out and ranked among all that it has not seen."
    )
    tell(f"{about}\nNoise: from {noise}")
    noise_key = None if arguments.seed is None else key
    results = measure(data, key=key, noise_key=noise_key, show_progress=can_show_progress(arguments.quiet))
    said = verdicts(results, data.n_users)
    tell(
        f"{format_table(*table(results))}\ntrue epsilon: of the whole run, in nats, for replacing all data of one user"
    )
    tell("\n".join([*said, NOT_COVERED]))
    seconds = time.perf_counter() - started
    arguments.out.mkdir(parents=True, exist_ok=True)
    page = arguments.out / PAGE
    picture = draw(results, arguments.out / PICTURE)
    footer = f"fastfedrec {__version__}; noise from {noise}; {seconds:.0f} s"
    write_text(page, make_page(about, said, results, footer, picture))
    if (problem := missing_extra("matplotlib", "no picture")) is not None:
        tell(problem)
    tell(f"{seconds:.0f} s; the page to open in a browser: {page}")
    document = {
        "version": __version__,
        "data": {**describe(data), "preset": PRESET},
        "noise": "entropy" if arguments.seed is None else f"seed {arguments.seed} (simulation)",
        "results": [asdict(r) | {"epsilon": epsilon_to_json(r.epsilon)} for r in results],
        "verdicts": said,
        "not_covered": NOT_COVERED,
        "page": str(page),
        "seconds": seconds,
    }
    return document if arguments.json else None
