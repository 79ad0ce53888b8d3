"""The command ``fastfedrec reproduce``: a paper's figure or table, side by side with this package's results."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fastfedrec.cli.outputs import add_details, can_show_progress, has_extra, report_text
from fastfedrec.core import doctor
from fastfedrec.core.check import check_integer
from fastfedrec.core.files import check_folder
from fastfedrec.core.record_files import format_records
from fastfedrec.studies.files import write_report
from fastfedrec.studies.reproduce.catalogue import PAPERS, REPRODUCTIONS, Reproduction

__all__ = ["add_reproduce"]


def add_reproduce(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "reproduce",
        run_reproduce,
        "Compute a paper's figure or table and print it side by side with the published one; finished parts are saved "
        "and not repeated.",
        [
            "fastfedrec reproduce fmf-ldp --figure 4 --quick",
            "fastfedrec reproduce privrec --table 2 --data ml-1m.zip",
        ],
    )
    papers = [f"{system} ({paper or 'of this package, without a paper'})" for system, paper in PAPERS.items()]
    command.add_argument("system", metavar="SYSTEM", choices=list(PAPERS), help=", ".join(papers))
    figure_or_table = command.add_mutually_exclusive_group(required=True)
    for kind in ("figure", "table"):
        texts: dict[str, dict[str, str]] = {}
        for entry in REPRODUCTIONS:
            if entry.kind == kind:
                texts.setdefault(entry.system, {}).update(entry.texts)
        figure_or_table.add_argument(
            f"--{kind}",
            metavar="N",
            choices=list(dict.fromkeys(name for of_system in texts.values() for name in of_system)),
            help="; ".join(
                f"{system}: {', '.join(f'{name} ({text})' for name, text in of_system.items())}"
                for system, of_system in texts.items()
            ),
        )
    on_data: dict[str, list[Reproduction]] = {}
    for entry in REPRODUCTIONS:
        if entry.data is not None:
            on_data.setdefault(entry.data.name, []).append(entry)
    command.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="data as downloaded; optional if data can be generated: "
        + "; ".join(f"{name} for {_labels(entries)}" for name, entries in on_data.items()),
    )
    command.add_argument("--quick", action="store_true", help="one seed or split, fewer users or epsilons")
    command.add_argument(
        "--out", type=Path, default=Path("reproduce-output"), metavar="DIR", help="folder of all output"
    )
    command.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="runs with seeds 0 to N - 1 (1 with --quick; else 3, for private-prototypes 1): "
        + _labels(entry for entry in REPRODUCTIONS if isinstance(entry.seeds, int)),
    )
    command.add_argument(
        "--only",
        nargs="+",
        action="extend",
        metavar="MODEL",
        help=f"compute only these models, named as in the table: {_with_only()}",
    )
    command.add_argument(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="number of threads, 0 for all processors; hit ratios do not depend on it",
    )
    add_details(command)


def _with_only() -> str:
    return _labels(entry for entry in REPRODUCTIONS if entry.has_only)


def _labels(entries: Iterable[Reproduction]) -> str:
    """Return the names of figures and tables, by system."""
    names: dict[str, list[str]] = {}
    for entry in entries:
        names.setdefault(entry.system, []).extend(entry.texts)
    return ", ".join(f"{system} {'/'.join(listed)}" for system, listed in names.items())


def run_reproduce(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Compute the figure or table, and write it as JSON, CSV, Markdown and a plot."""
    check_folder("--out", arguments.out)
    kind = "figure" if arguments.table is None else "table"
    name = getattr(arguments, kind)
    entry = _find(arguments.system, kind, name)
    options = _check_options(arguments, entry, f"{kind} {name} of {entry.system}")
    # Without matplotlib there is no plot, and the command continues.
    can_plot = has_extra("matplotlib", "no plot", quiet=arguments.quiet)
    data = None if arguments.data is None or entry.data is None else entry.data.load(arguments.data)
    report = entry.compute(name, data, show_progress=can_show_progress(arguments.quiet), **options)
    machine = doctor.describe_machine()
    document = report.to_dict() | {"machine": machine}
    # Numbers get the prefix "figure-" or "table-"; names such as "recall" are unique.
    file = f"{kind}-{name}" if name.isdigit() else name
    write_report(report, arguments.out, file, format_records(document), plot=can_plot, machine=machine)
    written = f"Written to {arguments.out}: {file}.json, .csv, .md{', .png' if can_plot else ''}"
    sentences = [*report.verdict().splitlines(), " ".join(report.legend.split()), *report.remarks]
    return document if arguments.json else f"{report_text(arguments, report, *sentences)}\n\n{written}"


def _find(system: str, kind: str, name: str) -> Reproduction:
    """Return the entry of a figure or table, or raise with the choices of its system."""
    # argparse checks the name against the choices of all systems; this checks it for the chosen one.
    names: dict[str, list[str]] = {}
    for entry in REPRODUCTIONS:
        if entry.system == system:
            if entry.kind == kind and name in entry.texts:
                return entry
            names.setdefault(entry.kind, []).extend(entry.texts)
    raise ValueError(
        "; ".join(f"--{kind} of {system} must be one of {', '.join(sorted(names[kind]))}" for kind in sorted(names))
    )


def _check_options(arguments: argparse.Namespace, entry: Reproduction, what: str) -> dict[str, Any]:
    """Return the options of the computation, or raise if one is missing or not for this figure or table."""
    options = {"quick": arguments.quick, "folder": arguments.out / "cells", "n_threads": arguments.threads}
    if arguments.only is not None and not entry.has_only:
        raise ValueError(f"--only is for {_with_only()}; leave it out")
    if arguments.data is not None and entry.data is None:
        raise ValueError(f"{what} needs no data; leave --data out")
    if arguments.data is None and entry.data is not None and entry.data.is_required:
        raise ValueError(f"--data is required for {what}; pass {entry.data.name}")
    if entry.has_only:
        options["only"] = arguments.only
    if isinstance(entry.seeds, int):
        default = 1 if arguments.quick else entry.seeds
        options["n_seeds"] = default if arguments.seeds is None else check_integer("--seeds", arguments.seeds, low=1)
    elif arguments.seeds is not None:
        raise ValueError(f"{what} {entry.seeds}; leave --seeds out")
    return options
