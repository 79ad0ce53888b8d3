"""The commands ``fastfedrec sweep`` and ``fastfedrec advise``."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.cli.evaluate import add_negatives
from fastfedrec.cli.features import add_features, aligned_features, read_features, takes_features
from fastfedrec.cli.inputs import (
    DATA_HELP,
    UsageError,
    add_catalogue,
    add_parts,
    add_preset,
    load_data,
    natural,
    parse_literal,
    positive,
    split_assignments,
)
from fastfedrec.cli.outputs import add_details, can_show_progress, has_extra, list_source, report_text, show
from fastfedrec.cli.parts import load_parts, named_parts
from fastfedrec.cli.settings import add_systems, warn_of_defaults
from fastfedrec.core.files import check_folder
from fastfedrec.evaluation import Sampled, Split
from fastfedrec.systems.registry import SYSTEMS, make_system, system_class

if TYPE_CHECKING:
    from fastfedrec.studies.sweep.sweeps import Setting

__all__ = ["add_sweep"]

# Characters that group a value with commas, as in "(32, 16)".
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "'\""


def add_sweep(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add both commands to the parser of `main`."""
    command = add(
        "sweep",
        run_sweep,
        "Measure systems with several parameters on one data set: utility over true epsilon, and the Pareto front in "
        "each trust model.",
        [
            "fastfedrec sweep --system dp-gram --set epsilon=0.5,1,2 --users 5000 --items 300 --seeds 1",
            "fastfedrec sweep --system dp-gram --set epsilon=1,2 --system fmf-ldp --set epsilon=2,4 "
            "--data ratings.csv --jobs 2",
            "fastfedrec sweep --system dp-gram --set epsilon=1,2 --train a/train.csv --test a/test.csv",
            "fastfedrec sweep --system dp-gram --set epsilon=0.5,1 --data ml-1m.zip --catalogue published "
            "--features movielens",
        ],
    )
    add_systems(command, "NAME=V1,V2", "values of the preceding system's parameters, in all combinations")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", metavar="PATH", help=DATA_HELP)
    add_parts(command, source)
    source.add_argument("--users", type=positive, metavar="N", help="with --items: generate new data for each seed")
    source.add_argument(
        "--advice",
        action="store_true",
        help="make a file of sweeps for `advise --measured` instead (an hour); with --system, only of these systems",
    )
    source.add_argument(
        "--choices",
        nargs="?",
        const=True,
        metavar="FILE",
        help="compare the choices of `advise` with the best system on other data instead (an hour; resumable); with "
        "FILE, repeat the choices for an earlier measurement",
    )
    command.add_argument("--quick", action="store_true", help="with --choices: one small data set")
    command.add_argument("--movies", metavar="PATH", help="with --choices: MovieLens 1M, for another data set")
    command.add_argument("--items", type=positive, metavar="N", help="with --users: number of items")
    command.add_argument("--row-length", type=float, metavar="N", help="with --users: mean number of a user's items")
    add_preset(command, "--users or --data generated:...")
    add_catalogue(command)
    add_features(command)
    command.add_argument(
        "--top-items",
        type=positive,
        metavar="N",
        help="with --data: keep the N most used items, a choice that no guarantee covers",
    )
    command.add_argument(
        "--min-interactions", type=positive, metavar="N", help="with --data: then keep users with at least N items"
    )
    command.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs with seeds 0 to N - 1")
    command.add_argument(
        "--metrics",
        default="hr@10,ndcg@10",
        help="metrics of rankings, as for evaluate; the first one defines the fronts",
    )
    add_negatives(command)
    command.add_argument("--delta", type=float, default=1e-6, help="delta of the epsilons")
    command.add_argument("--no-baselines", action="store_true", help="measure only the systems of --system")
    command.add_argument(
        "--validate",
        action="store_true",
        help="choose each system's best setting, and the fronts, on a validation split of train; test only these",
    )
    command.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="number of simultaneous runs, each in a process"
    )
    command.add_argument(
        "--threads",
        type=natural,
        default=0,
        metavar="N",
        help="number of threads of all jobs combined, 0 for all processors",
    )
    command.add_argument("--out", type=Path, default=Path("sweep-output"), metavar="DIR", help="folder of all output")
    add_details(command)

    command = add(
        "advise",
        run_advise,
        "Recommend a system and its parameters for a number of users and items and a privacy budget.",
        ["fastfedrec advise --users 20000 --items 500 --epsilon 2 --trust central"],
    )
    command.add_argument("--users", type=positive, required=True, metavar="N", help="number of users of your data")
    command.add_argument("--items", type=positive, required=True, metavar="N", help="number of items of your data")
    command.add_argument(
        "--epsilon",
        type=float,
        required=True,
        help="budget of the whole run, in nats, for replacing all data of one user",
    )
    command.add_argument("--trust", required=True, choices=list(TRUST_VIEWS), help="party that is trusted with data")
    command.add_argument("--delta", type=float, default=1e-6, help="delta of the whole run")
    command.add_argument("--honest-fraction", type=float, metavar="H", help="share of honest nodes, of an aggregator")
    command.add_argument(
        "--dropout-fraction", type=float, default=0.05, metavar="D", help="largest share of nodes without an answer"
    )
    command.add_argument("--row-length", type=float, metavar="N", help="mean number of a user's items, for estimates")
    command.add_argument(
        "--with-features", action="store_true", help="public features of the items are available (fit --features FILE)"
    )
    command.add_argument("--measured", type=Path, metavar="FILE", help="file of sweeps to use (of sweep --advice)")
    add_details(command)


def run_sweep(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Run the sweep, and write it as JSON, CSV, Markdown and a plot."""
    # Imported here, so that other commands start faster.
    from fastfedrec.studies.sweep.sweeps import GeneratedData, Setting, grid, sweep

    out = arguments.out
    check_folder("--out", out)
    show_progress = can_show_progress(arguments.quiet)
    if arguments.advice or arguments.choices:
        if arguments.choices and arguments.system:
            raise UsageError("--choices measures fixed systems; leave --system out")
        if arguments.features:
            raise UsageError("--features is for a sweep of --system on data; leave it out, or --advice and --choices")
        if arguments.preset:
            raise UsageError("--preset is for --users or --data generated:...; leave it out, or --advice and --choices")
        return (_measure_choices if arguments.choices else _measure_advice)(arguments, show_progress)
    if arguments.quick or arguments.movies:
        raise UsageError(f"--{'quick' if arguments.quick else 'movies'} is for --choices; leave it out")
    if not isinstance(arguments.negatives, Sampled | None):
        raise UsageError("--negatives must be a number or all for a sweep, got a file; use evaluate or compare")
    has_extra("matplotlib", "no plot", quiet=arguments.quiet)
    if not arguments.system:
        raise UsageError(f"--system is required; there are {', '.join(SYSTEMS)}")
    warn_of_defaults(arguments.system)
    # All combinations of the values of each system's parameters.
    settings: list[Setting] = []
    for system in arguments.system:
        values = {
            parameter: [parse_literal(value) for value in split_values(text)]
            for parameter, text in split_assignments(system.assignments).items()
        }
        settings += grid(system.name, **values)
    if (arguments.users is None) != (arguments.items is None):
        raise UsageError("--users and --items must be given together; add the other one")
    systems = [system_class(setting.system) for setting in settings]
    columns = read_features(arguments, [make_system(setting.system, dict(setting.parameters)) for setting in settings])
    data: Any = load_parts(arguments, systems)
    if arguments.users is not None:
        data = GeneratedData(arguments.users, arguments.items, arguments.row_length, arguments.preset or "movielens-1m")
    elif data is None:
        data = load_data(arguments, systems)
    if columns is not None:
        settings = _with_features(arguments, columns, settings, data)
    results = sweep(
        settings,
        data,
        seeds=arguments.seeds,
        folder=out / "cells",
        n_jobs=arguments.jobs,
        n_threads=arguments.threads,
        metrics=[name.strip() for name in arguments.metrics.split(",")],
        candidates=arguments.negatives,
        delta=arguments.delta,
        with_baselines=not arguments.no_baselines,
        validate=arguments.validate,
        source=_source(arguments, data),
        show_progress=show_progress,
    )
    names = results.write(out)
    if results.failures and not results.cells:
        raise UsageError(f"every run failed, so there is no result; {results.remarks[0]}")
    if arguments.json:
        return results.to_dict()
    meaning, *legend, not_covered = results.legend.splitlines()
    source = list_source(data.train if isinstance(data, Split) else data)
    for problem in results.remarks:
        if not any(problem.endswith(note) for note in source):  # the source is stated below the table
            show(f"fastfedrec: {problem}", file=sys.stderr)
    verdict = results.verdict().splitlines()
    chosen = [verdict.pop()] if results.tested else []  # the settings that were chosen on validation
    sentences = [*chosen, meaning, " ".join([not_covered, *source]), *legend, *verdict]
    text = report_text(arguments, results, *sentences)
    return f"{text}\n\nWritten to {out}: {', '.join(names)}; each run in {out / 'cells'}"


def _with_features(
    arguments: argparse.Namespace, columns: dict[str, Any], settings: Sequence["Setting"], data: Any
) -> list["Setting"]:
    """Return the settings with item features for every system that uses them."""
    train = data.train if isinstance(data, Split) else data
    # Items of generated data are numbered from 0.
    items = train.item_ids if hasattr(train, "item_ids") else np.arange(train.n_items)
    given = {"item_features": aligned_features(arguments, columns, items)}
    return [
        replace(s, parameters={**s.parameters, **given}) if takes_features(system_class(s.system)) else s
        for s in settings
    ]


def _source(arguments: argparse.Namespace, data: Any) -> str:
    """Return a description of the data for the output."""
    if arguments.train is not None:
        text = "; ".join(f"{getattr(arguments, name)} ({name}): {part!r}" for name, part in named_parts(data))
    else:
        text = f"{arguments.data}: {data!r}" if arguments.data else str(data)
    return text if arguments.features is None else f"{text}; public features of items: {arguments.features}"


def _measure_advice(arguments: argparse.Namespace, show_progress: bool) -> dict[str, Any] | str:
    from fastfedrec.studies.advise.grid import measure

    systems = [system_class(system.name).__name__ for system in arguments.system or ()] or None
    document, failures = measure(
        arguments.out, systems=systems, n_jobs=arguments.jobs, n_threads=arguments.threads, show_progress=show_progress
    )
    if arguments.json:
        return {**document, "failures": failures}
    lines = [f"failed: {f['system']} {f['parameters']}, seed {f['seed']}: {f['error']}" for f in failures]
    return "\n".join([*lines, f"{len(document['rows'])} settings written to {arguments.out / 'advice.json'}"])


def _measure_choices(arguments: argparse.Namespace, show_progress: bool) -> dict[str, Any] | str:
    from fastfedrec.datasets import load_movielens
    from fastfedrec.studies.advise.choices import choose_again, measure_choices, summary_of, write_choices

    if arguments.choices is True:
        movies = None if arguments.movies is None else load_movielens(arguments.movies)
        document = measure_choices(
            arguments.out, movies=movies, quick=arguments.quick, n_jobs=arguments.jobs, n_threads=arguments.threads,
            show_progress=show_progress,
        )  # fmt: skip
    else:
        document = choose_again(Path(arguments.choices))
        write_choices(arguments.out, document)
    if arguments.json:
        return document
    return f"{summary_of(document)}\n\nWritten to {arguments.out / 'choices.json'}"


def split_values(text: str) -> Sequence[str]:
    """Split a list of values, such as "0.5,1" or "(16,),(32, 16)", at commas outside brackets and quotes."""
    # `depth` counts open brackets, and `quote` is the open quote or empty.
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        depth += 0 if quote else (character in _OPENING) - (character in _CLOSING)
        if character == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += character
    return values


def run_advise(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the advice."""
    from fastfedrec.systems.private_recommender.choice import advise

    advice = advise(
        arguments.users,
        arguments.items,
        arguments.epsilon,
        arguments.trust,
        delta=arguments.delta,
        row_length=arguments.row_length,
        item_features=arguments.with_features,
        measured=arguments.measured,
        honest_fraction=arguments.honest_fraction,
        dropout_fraction=arguments.dropout_fraction,
    )
    return advice.to_dict() if arguments.json else advice.summary(details=arguments.details)
