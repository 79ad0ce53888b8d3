"""The command ``fastfedrec audit``: a lower bound on a mechanism's privacy cost, compared with its claim."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.accounting import Gaussian, PLDAccountant, calibrate_noise_multiplier
from fastfedrec.audit import AuditResult, audit
from fastfedrec.audit.cases import CASES, Case
from fastfedrec.audit.draws import draw_outputs
from fastfedrec.cli.outputs import make_axes, show
from fastfedrec.core.check import check_epsilon, check_integer
from fastfedrec.core.figures import check_plot, save_figure
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import did_you_mean
from fastfedrec.core.version import __version__
from fastfedrec.mechanisms.channels.channel import TOTAL
from fastfedrec.systems.registry import SYSTEMS
from fastfedrec.testing import ALPHA

__all__ = ["add_audit"]

_ALL = "all"
# Draws from each input for a plot, if the distribution of the loss is not known exactly.
_N_PLOTTED = 100_000
# Delta at which --epsilon of Gaussian noise is converted to mu.
_DELTA = 1e-6


def add_audit(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "audit",
        run_audit,
        "Test a mechanism's privacy claim by its exact probability table and by random draws.",
        ["fastfedrec audit binary-response --epsilon 2", "fastfedrec audit discrete-gaussian --half-noise"],
    )
    command.add_argument("mechanism", metavar="NAME", help=f"{', '.join(CASES)}; or {_ALL}, for a table of all")
    command.add_argument(
        "--epsilon",
        type=float,
        default=None,
        metavar="E",
        help=f"claimed epsilon of one output, in nats (1); for Gaussian noise, the mu that equals (E, {_DELTA:g}) is "
        "audited",
    )
    command.add_argument(
        "--half-noise", action="store_true", help="audit the mechanism with half of its noise, a fault to detect"
    )
    command.add_argument(
        "--seed", type=int, metavar="N", help="seed of a repeatable audit; without it, random bits come from entropy"
    )
    command.add_argument("--plot", type=Path, metavar="FILE", help="plot the privacy loss (needs matplotlib)")


def run_audit(arguments: argparse.Namespace) -> dict[str, Any] | str | None:
    """Audit the probability table, if there is one, and the sampler, with false-alarm probability `ALPHA`."""
    check_plot("--plot", arguments.plot)
    seed = None if arguments.seed is None else check_integer("--seed", arguments.seed, low=0)
    if arguments.mechanism == _ALL:
        if arguments.epsilon is not None or arguments.plot is not None or arguments.half_noise:
            raise ValueError(
                "--epsilon, --half-noise and --plot are for one mechanism, and 'all' claims 1 for each; leave them out"
            )
        _print_all(seed, as_json=arguments.json)
        return None
    if arguments.mechanism not in CASES:
        meant = did_you_mean(arguments.mechanism, [*CASES, _ALL])
        if arguments.mechanism in SYSTEMS or arguments.mechanism.endswith(".npz"):
            raise ValueError(
                f"{arguments.mechanism!r} is a whole model, and audit tests single mechanisms; attack models with "
                "fastfedrec.attacks in Python, and see their cost with fastfedrec ledger FILE"
            )
        raise ValueError(
            f"unknown mechanism {arguments.mechanism!r}{meant}; there are {', '.join(CASES)}, and {_ALL}; audit your "
            "own mechanism in Python, by fastfedrec.audit.audit(mechanism, x0, x1, claim)"
        )
    entry = CASES[arguments.mechanism]
    claim = check_epsilon("--epsilon", 1.0 if arguments.epsilon is None else arguments.epsilon)
    # A Gaussian mechanism claims mu-GDP: --epsilon is converted to the mu of noise with this (epsilon, delta).
    if entry.measure == "mu":
        event = Gaussian(1.0, neighboring="add_remove", sampling="none")
        claim = 1 / calibrate_noise_multiplier(event, epsilon=claim, delta=_DELTA, accountant=PLDAccountant)
    # A factor of 2 halves the noise but not the claim.
    case = entry.make(claim, 2 if arguments.half_noise else 1, _key(seed))
    if arguments.plot is not None:
        _plot(arguments.plot, arguments.mechanism, case)
    results: dict[str, AuditResult] = {}
    if case.table is not None:
        results["table"] = audit(*case.table, case.claim, delta=case.delta)
    results["sampler"] = audit_case(case)
    if arguments.json:
        return {
            "version": __version__,
            "mechanism": arguments.mechanism,
            "half_noise": arguments.half_noise,
            "inputs": list(case.inputs),
            "results": {name: result.to_dict() for name, result in results.items()},
            "plot": None if arguments.plot is None else str(arguments.plot),
        }
    broken = f", with half of its noise ({entry.broken})" if arguments.half_noise else ""
    parts = [f"{arguments.mechanism}{broken}, inputs {case.inputs[0]} and {case.inputs[1]}"]
    parts += [f"{name}\n{result}" for name, result in results.items()]
    return "\n\n".join([*parts, *([f"Plot: {arguments.plot}"] if arguments.plot is not None else [])])


def audit_case(case: Case, n: int | None = None) -> AuditResult:
    """Audit a case's sampler with false-alarm probability `ALPHA` and `n` draws, by default the case's number."""
    return audit(
        case.mechanism,
        *case.inputs,
        case.claim,
        n or case.n,
        ALPHA,
        delta=case.delta,
        measure=case.measure,
        key=case.key,
    )


def _key(seed: int | None) -> Key | None:
    return None if seed is None else Key.from_seed(seed)


def _print_all(seed: int | None, *, as_json: bool) -> None:
    """Print audits of every mechanism at claim 1, with full noise and with half of it."""
    rows = []
    if not as_json:
        show("| mechanism | claim | full noise | | half the noise is | bound | |\n|---|---|---|---|---|---|---|")
    for name, entry in CASES.items():
        whole, half = (audit_case(entry.make(1.0, factor, _key(seed))) for factor in (1, 2))
        if as_json:
            row = {"mechanism": name, "half_noise_is": entry.broken, "is_sound": entry.is_sound}
            rows.append(row | {"full_noise": whole.to_dict(), "half_noise": half.to_dict()})
        else:
            show(
                f"| `{name}` | {whole.measure} 1 | {whole.lower_bound:.2f} | {whole.verdict} "
                f"| {entry.broken} | {half.lower_bound:.2f} | {half.verdict} |"
            )
    if as_json:
        show({"version": __version__, "mechanisms": rows})


def _loss_distribution(name: str, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending values of log(P(y | first) / P(y | second)) and their probabilities on the first input."""
    if case.table is not None:
        channel, x0, x1 = case.table
        p, q = (np.array([c / TOTAL for c in channel.counts[x]]) for x in (x0, x1))
    else:
        # Rare outputs share a bin, since the ratio of two small counts is too noisy.
        outputs = [_score(name, y.parts[0]) for y in draw_outputs(case.mechanism, case.inputs, _N_PLOTTED, case.key)]
        edges = np.unique(np.quantile(np.concatenate(outputs), np.linspace(0, 1, 62)[1:-1], method="inverted_cdf"))
        p, q = (
            np.bincount(np.searchsorted(edges, y), minlength=len(edges) + 1).astype(np.float64) / _N_PLOTTED
            for y in outputs
        )
    # Outputs of probability 0 on the first input have no loss; 0 on the second means an infinite loss.
    p, q = p[p > 0], q[p > 0]
    # log(p) - log(0) is the infinite loss.
    with np.errstate(divide="ignore"):
        loss = np.log(p) - np.log(q)
    # Losses that differ only by rounding are one step of the distribution.
    values, codes = np.unique(loss.round(12), return_inverse=True)
    return values, np.bincount(codes, weights=p)


def _score(name: str, outputs: np.ndarray) -> np.ndarray:
    """Return a statistic of each output that determines its likelihood ratio, at least approximately."""
    if name == "subset-selection":  # sets of values
        return (outputs == 0).any(axis=1).astype(np.float64) - (outputs == 1).any(axis=1)
    if name == "exponential-mechanism-two":
        return (outputs < 2).sum(axis=1).astype(np.float64)
    outputs = outputs.astype(np.float64)
    if name == "oue":  # bits
        return outputs[:, 0] - outputs[:, 1]
    return outputs.sum(axis=1)


def _plot(path: Path, name: str, case: Case) -> None:
    figure, axes = make_axes()
    loss, probability = _loss_distribution(name, case)
    axes.step(loss, np.cumsum(probability), where="post")
    if case.measure == "epsilon":  # a claim in mu does not bound the loss of a single output
        for sign in (-1, 1):
            axes.axvline(sign * case.claim, color="black", linestyle="--", linewidth=1, label="claim, +-epsilon")
        axes.legend(handles=axes.lines[-1:])
    axes.set(xlabel="privacy loss of an output (nats)", ylabel="probability of at most this loss", ylim=(0, 1.02))
    source = "exact" if case.table is not None else f"estimated from {_N_PLOTTED:,} draws from each input"
    axes.set_title(f"{name}, inputs {case.inputs[0]} and {case.inputs[1]}: {source}", fontsize="medium")
    save_figure(figure, path)
