"""The commands ``fastfedrec sweep`` and ``fastfedrec advise``."""

import argparse
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
from fastfedrec.cli.outputs import can_show_progress, has_extra
from fastfedrec.cli.parts import load_parts, named_parts
from fastfedrec.cli.settings import add_systems
from fastfedrec.core.files import check_folder
from fastfedrec.evaluation import Split
from fastfedrec.systems.registry import SYSTEMS, make_system, system_class

if TYPE_CHECKING:
    from fastfedrec.studies.sweep.sweeps import Setting

__all__ = ["add_sweep"]

_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "'\""


def add_sweep(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe both commands to the parser of `main`."""
    command = add(
        "sweep",
        run_sweep,
        "Any parameters of any systems on one data set: utility over true epsilon, and the front in each trust model.",
        [
            "fastfedrec sweep --system dp-gram --set epsilon=0.5,1,2 --users 5000 --items 300 --seeds 1",
            "fastfedrec sweep --system dp-gram --system fmf-ldp --set epsilon=2,4 --data ratings.csv --jobs 2",
            "fastfedrec sweep --system dp-gram --set epsilon=1,2 --train a/train.csv --test a/test.csv",
            "fastfedrec sweep --system dp-gram --set epsilon=0.5,1 --data ml-1m.zip --catalogue published "
            "--features movielens",
        ],
    )
    add_systems(command, "NAME=V1,V2", "values of the system before it, all combined")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", metavar="PATH", help=DATA_HELP)
    add_parts(command, source)
    source.add_argument("--users", type=positive, metavar="N", help="with --items: generate data, anew for each seed")
    source.add_argument(
        "--advice",
        action="store_true",
        help="instead, make a file of sweeps for `advise --measured` (an hour); with --system those of it alone",
    )
    source.add_argument(
        "--choices",
        nargs="?",
        const=True,
        metavar="FILE",
        help="instead, what `advise` chooses beside the best of all systems, on other data (minutes; resumable); "
        "with FILE, of a map that was measured before, what it chooses now",
    )
    command.add_argument("--quick", action="store_true", help="with --choices: one small data set")
    command.add_argument("--items", type=positive, metavar="N", help="with --users")
    command.add_argument("--row-length", type=float, metavar="N", help="with --users: items of a user, on average")
    add_preset(command, "--users or --data generated:...")
    add_catalogue(command)
    add_features(command)
    command.add_argument(
        "--top-items", type=positive, metavar="N", help="of --data: keep the N most used items, which is not covered"
    )
    command.add_argument(
        "--min-interactions", type=positive, metavar="N", help="of --data: then keep users with N items"
    )
    command.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs with seeds 0 to N - 1")
    command.add_argument(
        "--metrics", default="hr@10,ndcg@10", help="as evaluate takes them, of rankings; fronts go by the first"
    )
    add_negatives(command)
    command.add_argument("--delta", type=float, default=1e-6, help="at which ledgers are read")
    command.add_argument("--no-baselines", action="store_true", help="nothing but the systems named")
    command.add_argument("--jobs", type=positive, default=1, metavar="N", help="runs at a time, each in a process")
    command.add_argument(
        "--threads", type=natural, default=0, metavar="N", help="of all jobs together; 0: all there are"
    )
    command.add_argument(
        "--out", type=Path, default=Path("sweep-output"), metavar="DIR", help="folder for all that is written"
    )

    command = add(
        "advise",
        run_advise,
        "Which system, at which setting, for so many users and items and one budget.",
        ["fastfedrec advise --users 20000 --items 500 --epsilon 2 --trust central"],
    )
    command.add_argument("--users", type=positive, required=True, metavar="N", help="of your data")
    command.add_argument("--items", type=positive, required=True, metavar="N", help="of your data")
    command.add_argument(
        "--epsilon", type=float, required=True, help="of the whole run, in nats, for replacing all data of one user"
    )
    command.add_argument("--trust", required=True, choices=list(TRUST_VIEWS), help="whom one trusts with the data")
    command.add_argument("--delta", type=float, default=1e-6, help="of the whole run")
    command.add_argument("--row-length", type=float, metavar="N", help="items of a user, on average, for figures")
    command.add_argument(
        "--with-features", action="store_true", help="something is publicly known of the items (fit --features FILE)"
    )
    command.add_argument("--measured", type=Path, metavar="FILE", help="answer from these sweeps (of sweep --advice)")


def run_sweep(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Run, show, and write the same as JSON, CSV, a page and a plot."""
    from fastfedrec.studies.sweep.sweeps import GeneratedData, Setting, grid, sweep

    out = arguments.out
    check_folder("--out", out)
    show_progress = can_show_progress(arguments.quiet)
    if arguments.advice or arguments.choices:
        if arguments.choices and arguments.system:
            raise UsageError("--choices has its own systems; leave --system out")
        if arguments.features:
            raise UsageError("--features is for a sweep of --system on data; leave it out, or --advice and --choices")
        if arguments.preset:
            raise UsageError("--preset is for --users or --data generated:...; leave it out, or --advice and --choices")
        return (_measure_choices if arguments.choices else _measure_advice)(arguments, show_progress)
    if arguments.quick:
        raise UsageError("--quick is for --choices")
    has_extra("matplotlib", "no plot", quiet=arguments.quiet)
    if not arguments.system:
        raise UsageError(f"--system is required; there are {', '.join(SYSTEMS)}")
    settings: list[Setting] = []
    for asked in arguments.system:
        values = {
            parameter: [parse_literal(value) for value in split_values(text)]
            for parameter, text in split_assignments(asked.assignments).items()
        }
        settings += grid(asked.name, **values)
    if (arguments.users is None) != (arguments.items is None):
        raise UsageError("--users and --items go together")
    systems = [system_class(setting.system) for setting in settings]
    columns = read_features(arguments, [make_system(setting.system, dict(setting.parameters)) for setting in settings])
    data: Any = load_parts(arguments, systems)
    if arguments.users is not None:
        data = GeneratedData(arguments.users, arguments.items, arguments.row_length, arguments.preset or "movielens-1m")
    elif data is None:
        data = load_data(arguments, systems)
    if columns is not None:
        settings = _with_features(arguments, columns, settings, data)
    found = sweep(
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
        source=_source(arguments, data),
        show_progress=show_progress,
    )
    names = found.write(out)
    if arguments.json:
        return found.to_dict()
    return f"{found.summary()}\n\nWritten to {out}: {', '.join(names)}; each run in {out / 'cells'}"


def _with_features(
    arguments: argparse.Namespace, columns: dict[str, Any], settings: Sequence["Setting"], data: Any
) -> list["Setting"]:
    """Settings of the systems that take features have them, and the others are as they were."""
    train = data.train if isinstance(data, Split) else data
    items = train.item_ids if hasattr(train, "item_ids") else np.arange(train.n_items)  # of data that are generated
    given = {"item_features": aligned_features(arguments, columns, items)}
    return [
        replace(s, parameters={**s.parameters, **given}) if takes_features(system_class(s.system)) else s
        for s in settings
    ]


def _source(arguments: argparse.Namespace, data: Any) -> str:
    """What people are told the data are."""
    if arguments.train is not None:
        said = "; ".join(f"{getattr(arguments, name)} ({name}): {part!r}" for name, part in named_parts(data))
    else:
        said = f"{arguments.data}: {data!r}" if arguments.data else str(data)
    return said if arguments.features is None else f"{said}; public features of items: {arguments.features}"


def _measure_advice(arguments: argparse.Namespace, show_progress: bool) -> dict[str, Any] | str:
    from fastfedrec.studies.advise.grid import measure

    systems = [system_class(asked.name).__name__ for asked in arguments.system or ()] or None
    document, failures = measure(
        arguments.out, systems=systems, n_jobs=arguments.jobs, n_threads=arguments.threads, show_progress=show_progress
    )
    if arguments.json:
        return {**document, "failures": failures}
    lines = [f"failed: {f['system']} {f['parameters']}, seed {f['seed']}: {f['error']}" for f in failures]
    return "\n".join([*lines, f"{len(document['rows'])} settings written to {arguments.out / 'advice.json'}"])


def _measure_choices(arguments: argparse.Namespace, show_progress: bool) -> dict[str, Any] | str:
    from fastfedrec.studies.advise.choices import choose_again, measure_choices, summary_of, write_choices

    if arguments.choices is True:
        document = measure_choices(
            arguments.out, quick=arguments.quick, n_jobs=arguments.jobs, n_threads=arguments.threads,
            show_progress=show_progress,
        )  # fmt: skip
    else:
        document = choose_again(Path(arguments.choices))
        write_choices(arguments.out, document)
    if arguments.json:
        return document
    return f"{summary_of(document)}\n\nWritten to {arguments.out / 'choices.json'}"


def split_values(text: str) -> Sequence[str]:
    """Divide a list of values at its commas, but for those inside brackets and quotes.

    Parameters
    ----------
    text : str
        As "0.5,1" or "(16,),(32, 16)".

    Returns
    -------
    sequence of str
        One for each value.
    """
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
    """Answer."""
    from fastfedrec.systems.private_recommender.choice import advise

    found = advise(
        arguments.users,
        arguments.items,
        arguments.epsilon,
        arguments.trust,
        delta=arguments.delta,
        row_length=arguments.row_length,
        item_features=arguments.with_features,
        measured=arguments.measured,
    )
    return found.to_dict() if arguments.json else found.summary()
