"""The command ``fastfedrec account``: the privacy cost of a planned run."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastfedrec.accounting import (
    Gaussian,
    Ledger,
    LocalReports,
    PLDAccountant,
    RDPAccountant,
    UnsupportedEventError,
    composed_epsilon,
)
from fastfedrec.accounting.views import SHORT_NAMES, VIEWS
from fastfedrec.cli.outputs import add_details, footer, make_axes
from fastfedrec.core.check import check_integer
from fastfedrec.core.figures import check_plot, save_figure
from fastfedrec.core.text import epsilon_to_json, format_epsilon, format_table
from fastfedrec.mechanisms import BinaryResponse

__all__ = ["add_account"]

# Above this number of rounds the table has powers of ten only: an account of many rounds takes about a second.
_MANY_ROUNDS = 10**5


def add_account(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command and its two forms to the parser of `main`."""
    text = "Privacy cost of a planned run for a user, over rounds."
    kinds = commands.add_parser("account", help=text, description=text).add_subparsers(
        dest="what", required=True, metavar="WHAT"
    )

    def add(name: str, run: Callable[[argparse.Namespace], Any], text: str, example: str) -> argparse.ArgumentParser:
        command = kinds.add_parser(name, parents=[common], help=text, description=text, examples=[example])
        command.set_defaults(run=run)
        return command

    reports = add(
        "reports",
        run_reports,
        "Local reports, without and with a shuffler.",
        "fastfedrec account reports --users 50000 --rounds 20",
    )
    reports.add_argument(
        "--epsilon", dest="nominal_epsilon", type=float, default=2.5, help="epsilon of one report, in nats"
    )
    reports.add_argument("--reports", type=int, default=100, metavar="N", help="number of a user's reports in a round")
    reports.add_argument(
        "--users", type=int, required=True, metavar="N", help="number of users who report in every round"
    )
    _add_run(reports, 20)

    gaussian = add(
        "gaussian",
        run_gaussian,
        "Gaussian noise added by a trusted server.",
        "fastfedrec account gaussian --noise-multiplier 1 --neighboring replace --users 4800 --cohort 20 --rounds 1000",
    )
    gaussian.add_argument(
        "--noise-multiplier",
        type=float,
        required=True,
        metavar="Z",
        help="standard deviation of the noise divided by the sensitivity",
    )
    gaussian.add_argument(
        "--neighboring",
        choices=("replace", "add_remove", "zero_out"),
        required=True,
        help="relation of neighbouring data sets, for one user's data",
    )
    gaussian.add_argument(
        "--users", type=int, metavar="N", help="number of users; with --cohort, sampling without replacement"
    )
    gaussian.add_argument(
        "--cohort", dest="cohort_size", type=int, metavar="M", help="number of users sampled in each round"
    )
    gaussian.add_argument(
        "--sampling-probability", type=float, metavar="Q", help="probability of a user in Poisson sampling"
    )
    _add_run(gaussian, 1)


def _add_run(command: argparse.ArgumentParser, rounds: int) -> None:
    command.add_argument("--rounds", type=int, default=rounds, metavar="N", help="number of rounds")
    command.add_argument("--delta", type=float, default=1e-6, help="delta of approximate guarantees")
    command.add_argument("--plot", type=Path, metavar="FILE", help="plot the cost over rounds (needs matplotlib)")
    add_details(command)


def run_reports(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the cost of binary responses, the reports of every local system of this package."""
    check_plot("--plot", arguments.plot)
    check_integer("--users", arguments.users, low=1)
    check_integer("--reports", arguments.reports, low=1)
    ledger = Ledger(arguments.delta)
    event = LocalReports(
        "binary response",
        BinaryResponse(arguments.nominal_epsilon).epsilon,
        arguments.reports,
        arguments.users,
        separable=True,
    )
    rounds = _milestones(arguments.rounds)
    ledger.record(event)
    ledger.events[event] = arguments.rounds  # the number of uses, instead of one `record` for each round
    curves = {
        name: [composed_epsilon({event: n}, view, ledger.delta) for n in rounds] for view, name in SHORT_NAMES.items()
    }
    text = (
        f"Binary responses at epsilon {arguments.nominal_epsilon:g} each, {arguments.reports:,} of a user in each "
        f"round, from {arguments.users:,} users"
    )
    sentences = [
        f"epsilon: the cost of all rounds to one user, in nats, if all of that user's data are replaced, at delta "
        f"{arguments.delta:g}.",
        "server: it knows who sent each report. shuffled: it does not. public: it sees sums over all users. 'none': no "
        "guarantee.",
    ]
    if not arguments.details:
        sentences.append(
            "They hold under conditions, such as a shuffler that breaks every link; --details prints them."
        )
    else:
        text = f"{ledger.summary().rstrip()}\n\n{text}"
    return _report(arguments, rounds, curves, text, sentences, {"ledger": ledger.to_dict()})


def run_gaussian(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the cost of the Gaussian mechanism by every accountant that supports the event."""
    check_plot("--plot", arguments.plot)
    # Keys: whether --sampling-probability is given, and whether --users or --cohort is.
    sampling = {
        (False, False): "none",
        (True, False): "poisson",
        (False, True): "without_replacement",
    }.get(
        (arguments.sampling_probability is not None, arguments.users is not None or arguments.cohort_size is not None)
    )
    if sampling is None:
        raise ValueError("--sampling-probability and --users with --cohort exclude each other; give one of them")
    event = Gaussian(
        arguments.noise_multiplier,
        neighboring=arguments.neighboring,
        sampling=sampling,  # type: ignore[arg-type]
        sampling_probability=arguments.sampling_probability,
        n_users=arguments.users,
        cohort_size=arguments.cohort_size,
    )
    rounds = _milestones(arguments.rounds)
    # One column for each accountant; an accountant that does not support the event has none.
    curves: dict[str, list[float]] = {}
    refusals = []
    for accountant in (PLDAccountant, RDPAccountant):
        try:
            curves[accountant.__name__.removesuffix("Accountant")] = [
                accountant().compose(event, n).get_epsilon(arguments.delta) for n in rounds
            ]
        except UnsupportedEventError as error:
            refusals.append(str(error))
    if not curves:
        raise UnsupportedEventError("; ".join(refusals))
    sentences = [
        f"epsilon: an upper bound on the cost of all rounds to one user, in nats, at delta {arguments.delta:g}, "
        f"against {VIEWS['public']}.",
        "Each column is an accountant, and the lowest figure holds, if the sampling is secret and the server adds the "
        "noise.",
    ]
    return _report(arguments, rounds, curves, str(event), sentences, {"event": str(event)})


def _milestones(rounds: int) -> list[int]:
    """Return 1, 2, 5, 10, ... up to the number of rounds, which is the last; only powers of ten for many rounds."""
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {rounds}")
    factors = (1, 2, 5) if rounds <= _MANY_ROUNDS else (1,)
    steps = [m * 10**p for p in range(len(str(rounds))) for m in factors]
    return [n for n in steps if n < rounds] + [rounds]


def _report(
    arguments: argparse.Namespace,
    rounds: Sequence[int],
    curves: dict[str, list[float]],
    text: str,
    sentences: Sequence[str],
    details: dict[str, Any],
) -> dict[str, Any] | str:
    if arguments.plot is not None:
        _plot(arguments.plot, rounds, curves)
    if arguments.json:
        # JSON has no infinity, so an infinite epsilon becomes text.
        epsilon = {name: [epsilon_to_json(e) for e in values] for name, values in curves.items()}
        document = {"rounds": list(rounds), "epsilon": epsilon, "delta": arguments.delta} | details
        return document | {"plot": arguments.plot and str(arguments.plot)}
    rows = [(n, *(format_epsilon(values[i]) for values in curves.values())) for i, n in enumerate(rounds)]
    plot = f"\n\nPlot: {arguments.plot}" if arguments.plot is not None else ""
    table = format_table(("rounds", *curves), rows)
    return "\n".join([text, "", table, "", *footer(arguments, *sentences)]) + plot


def _plot(path: Path, rounds: Sequence[int], curves: dict[str, list[float]]) -> None:
    figure, axes = make_axes()
    for name, values in curves.items():
        axes.plot(rounds, values, marker="o", markersize=3, label=name)
    axes.set(xlabel="rounds", ylabel="epsilon (nats)", xscale="log", yscale="log")
    axes.legend()
    save_figure(figure, path)
