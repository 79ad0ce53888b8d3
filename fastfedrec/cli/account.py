"""The command ``fastfedrec account``: what a run would cost, before any run."""

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
from fastfedrec.cli.outputs import make_axes
from fastfedrec.core.check import check_integer
from fastfedrec.core.text import epsilon_to_json, format_epsilon, format_table
from fastfedrec.mechanisms import BinaryResponse

__all__ = ["add_account"]

_MANY_ROUNDS = 10**5


def add_account(commands: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command and its two forms to the parser of `main`."""
    text = "What a run would cost a user in privacy, before any run, with the curve over rounds."
    kinds = commands.add_parser("account", help=text, description=text).add_subparsers(required=True, metavar="WHAT")

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
    reports.add_argument("--epsilon", type=float, default=2.5, help="of one report, in nats")
    reports.add_argument("--reports", type=int, default=100, metavar="N", help="reports of a user in a round")
    reports.add_argument("--users", type=int, required=True, metavar="N", help="users who report in every round")
    _add_run(reports, 20)

    gaussian = add(
        "gaussian",
        run_gaussian,
        "Gaussian noise added by a trusted server.",
        "fastfedrec account gaussian --noise-multiplier 1 --neighboring replace --users 4800 --cohort 20 --rounds 1000",
    )
    gaussian.add_argument(
        "--noise-multiplier", type=float, required=True, metavar="Z", help="stddev of the noise / sensitivity"
    )
    gaussian.add_argument(
        "--neighboring", choices=("replace", "add_remove", "zero_out"), required=True, help="a user's data"
    )
    gaussian.add_argument("--users", type=int, metavar="N", help="with --cohort: fixed size without replacement")
    gaussian.add_argument("--cohort", type=int, metavar="M", help="users drawn in each round")
    gaussian.add_argument("--sampling-probability", type=float, metavar="Q", help="Poisson sampling")
    _add_run(gaussian, 1)


def _add_run(command: argparse.ArgumentParser, rounds: int) -> None:
    command.add_argument("--rounds", type=int, default=rounds, metavar="N", help="how many")
    command.add_argument("--delta", type=float, default=1e-6, help="for figures that are not pure")
    command.add_argument("--plot", type=Path, metavar="FILE", help="draw the cost over rounds (needs matplotlib)")


def run_reports(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Answer for binary responses, as every system here sends them."""
    check_integer("--users", arguments.users, low=1)
    check_integer("--reports", arguments.reports, low=1)
    ledger = Ledger(arguments.delta)
    event = LocalReports(
        "binary response", BinaryResponse(arguments.epsilon).epsilon, arguments.reports, arguments.users, separable=True
    )
    rounds = _milestones(arguments.rounds)
    ledger.record(event)
    ledger.events[event] = arguments.rounds
    curves = {
        name: [composed_epsilon({event: n}, view, ledger.delta) for n in rounds] for view, name in SHORT_NAMES.items()
    }
    return _report(arguments, rounds, curves, ledger.summary(), {"ledger": ledger.to_dict()})


def run_gaussian(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Answer for the Gaussian mechanism by every accountant that can."""
    sampling = {
        (False, False): "none",
        (True, False): "poisson",
        (False, True): "without_replacement",
    }.get((arguments.sampling_probability is not None, arguments.users is not None or arguments.cohort is not None))
    if sampling is None:
        raise ValueError("--sampling-probability and --users with --cohort exclude each other; give one sampling")
    event = Gaussian(
        arguments.noise_multiplier,
        neighboring=arguments.neighboring,
        sampling=sampling,  # type: ignore[arg-type]
        sampling_probability=arguments.sampling_probability,
        n_users=arguments.users,
        cohort_size=arguments.cohort,
    )
    rounds = _milestones(arguments.rounds)
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
    text = (
        f"{event}\nepsilon in nats at delta {arguments.delta:g}, against {VIEWS['public']}; upper bounds, the lower "
        "one holds\nif the sampling is secret and the server adds the noise"
    )
    return _report(arguments, rounds, curves, text, {"event": str(event)})


def _milestones(rounds: int) -> list[int]:
    """1, 2, 5, 10, ..., of many rounds powers of ten alone, up to the number of rounds, which is the last."""
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {rounds}")
    factors = (1, 2, 5) if rounds <= _MANY_ROUNDS else (1,)  # accounts of many rounds take about a second each
    steps = [m * 10**p for p in range(len(str(rounds))) for m in factors]
    return [n for n in steps if n < rounds] + [rounds]


def _report(
    arguments: argparse.Namespace,
    rounds: Sequence[int],
    curves: dict[str, list[float]],
    text: str,
    details: dict[str, Any],
) -> dict[str, Any] | str:
    if arguments.plot is not None:
        _plot(arguments.plot, rounds, curves)
    if arguments.json:
        epsilon = {name: [epsilon_to_json(e) for e in values] for name, values in curves.items()}
        document = {"rounds": list(rounds), "epsilon": epsilon, "delta": arguments.delta} | details
        return document | {"plot": arguments.plot and str(arguments.plot)}
    rows = [(n, *(format_epsilon(values[i]) for values in curves.values())) for i, n in enumerate(rounds)]
    plot = f"\n\nPlot: {arguments.plot}" if arguments.plot is not None else ""
    return text + "\n\nover rounds:\n" + format_table(("rounds", *curves), rows) + plot


def _plot(path: Path, rounds: Sequence[int], curves: dict[str, list[float]]) -> None:
    figure, axes = make_axes()
    for name, values in curves.items():
        axes.plot(rounds, values, marker="o", markersize=3, label=name)
    axes.set(xlabel="rounds", ylabel="epsilon (nats)", xscale="log", yscale="log")
    axes.legend()
    figure.savefig(path, dpi=150)
