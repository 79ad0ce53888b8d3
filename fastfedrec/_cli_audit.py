"""The command ``fastfedrec audit``: what a mechanism of the package demonstrably costs, beside what it claims."""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec._check import check_epsilon
from fastfedrec._version import __version__
from fastfedrec.accounting import Accountant, Gaussian, PLDAccountant, ZCDPAccountant, calibrate_noise_multiplier
from fastfedrec.audit import AuditResult, audit
from fastfedrec.mechanisms import (
    GRR,
    OUE,
    BayesKary,
    BinaryResponse,
    Channel,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Hybrid,
    OptimalKary,
    Piecewise,
    RoundedGaussian,
    SubsetSelection,
    TruncatedGeometric,
)
from fastfedrec.mechanisms.channel import TOTAL
from fastfedrec.testing import ALPHA

_N_PLOTTED = 100_000  # draws from each input, where the loss is not known exactly
_N_SELECTIONS = 20_000  # releases that are drawn one at a time
_N_VALUES = 10
_DELTA = 1e-6  # of Gaussian noise
_SENSITIVITY = 20  # so that Gaussian noise is many steps of its grid wide


@dataclass(frozen=True)
class _Case:
    """A sampler with two inputs that are hard to hide from each other, and the exact table if there is one."""

    draw: Callable[[Any, int], np.ndarray]
    inputs: tuple[Any, Any]
    claim: float
    delta: float = 0.0
    measure: str = "epsilon"
    n: int | None = None
    table: tuple[Channel, int, int] | None = None


def _privatize(mechanism: Any) -> Callable[[Any, int], np.ndarray]:
    """Outputs of the sampler that ships, from entropy."""
    return lambda x, n: mechanism.privatize(np.full(n, x))


def _binary_response(epsilon: float) -> _Case:
    channel = BinaryResponse(epsilon)
    return _Case(_privatize(channel), (1.0, -1.0), epsilon, table=(channel, 0, 1))


def _grr(epsilon: float) -> _Case:
    oracle = GRR(epsilon, _N_VALUES)
    return _Case(_privatize(oracle), (0, 1), epsilon, table=(oracle.channel(), 0, 1))


def _oue(epsilon: float) -> _Case:
    return _Case(_privatize(OUE(epsilon, _N_VALUES)), (0, 1), epsilon)


def _subset_selection(epsilon: float) -> _Case:
    draw = _privatize(SubsetSelection(epsilon, _N_VALUES))

    def draw_bits(x: Any, n: int) -> np.ndarray:
        reports = draw(x, n)
        return np.stack([(reports == v).any(axis=1) for v in (0, 1)], axis=1)  # all that tells 0 and 1 apart

    return _Case(draw_bits, (0, 1), epsilon)


def _on_five_grades(kind: type[BayesKary] | type[OptimalKary] | type[TruncatedGeometric], epsilon: float) -> _Case:
    channel = kind(epsilon, 5)
    return _Case(_privatize(channel), (0, 4), epsilon, table=(channel, 0, 4))


def _continuous(kind: type[Piecewise], epsilon: float) -> _Case:
    mechanism = kind(epsilon)
    return _Case(_privatize(mechanism), (-1.0, 1.0), epsilon, table=(mechanism.channel([-1.0, 1.0]), 0, 1))


def _discrete_laplace(sampler: str, epsilon: float) -> _Case:
    noise = DiscreteLaplace(1 / Fraction(epsilon), sampler=sampler)
    return _Case(_privatize(noise), (0, 1), epsilon, noise.delta(epsilon))


def _noise_multiplier(epsilon: float, accountant: type[Accountant]) -> float:
    event = Gaussian(1.0, neighboring="add_remove", sampling="none")
    return calibrate_noise_multiplier(event, epsilon=epsilon, delta=_DELTA, accountant=accountant)


def _discrete_gaussian(epsilon: float) -> _Case:
    stddev = _SENSITIVITY * _noise_multiplier(epsilon, ZCDPAccountant)
    noise = DiscreteGaussian(stddev, sampler="table")
    return _Case(_privatize(noise), (0, _SENSITIVITY), epsilon, _DELTA + noise.delta(epsilon))


def _rounded_gaussian(epsilon: float) -> _Case:
    # The claim in mu is exact for it and far easier to test than (epsilon, delta).
    noise = RoundedGaussian(_SENSITIVITY * _noise_multiplier(epsilon, PLDAccountant))
    return _Case(_privatize(noise), (0, _SENSITIVITY), 1 / noise.noise_multiplier(_SENSITIVITY), measure="mu")


def _exponential_mechanism(epsilon: float) -> _Case:
    mechanism = ExponentialMechanism(epsilon)
    scores = [[1] + [0] * (_N_VALUES - 1), [0] + [1] * (_N_VALUES - 1)]  # each score changes by 1

    def draw(x: Any, n: int) -> np.ndarray:
        return np.concatenate([mechanism.privatize(x) for _ in range(n)])

    return _Case(draw, (scores[0], scores[1]), epsilon, n=_N_SELECTIONS)


_CASES: dict[str, Callable[[float], _Case]] = {
    "binary-response": _binary_response,
    "grr": _grr,
    "oue": _oue,
    "subset-selection": _subset_selection,
    "optimal-kary": partial(_on_five_grades, OptimalKary),
    "bayes-kary": partial(_on_five_grades, BayesKary),
    "truncated-geometric": partial(_on_five_grades, TruncatedGeometric),
    "piecewise": partial(_continuous, Piecewise),
    "hybrid": partial(_continuous, Hybrid),
    "discrete-laplace": partial(_discrete_laplace, "exact"),
    "discrete-laplace-table": partial(_discrete_laplace, "table"),
    "discrete-gaussian": _discrete_gaussian,
    "rounded-gaussian": _rounded_gaussian,
    "exponential-mechanism": _exponential_mechanism,
}


def add_audit(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `cli`."""
    command = add(
        "audit", run_audit, "Look for evidence against a mechanism's claim, on its exact table and by drawing."
    )
    command.add_argument("mechanism", metavar="NAME", help=", ".join(_CASES))
    command.add_argument("--epsilon", type=float, default=1.0, metavar="E", help="claimed for one output, in nats (1)")
    command.add_argument("--plot", type=Path, metavar="FILE", help="draw the privacy loss (needs matplotlib)")


def run_audit(arguments: argparse.Namespace) -> None:
    """Audit the table where there is one, and the sampler; at `ALPHA`, so that a sound one is never called broken."""
    if arguments.mechanism not in _CASES:
        raise ValueError(f"unknown mechanism {arguments.mechanism!r}; there are {', '.join(_CASES)}")
    case = _CASES[arguments.mechanism](check_epsilon("--epsilon", arguments.epsilon))
    if arguments.plot is not None:
        _plot(arguments.plot, arguments.mechanism, case)
    results: dict[str, AuditResult] = {}
    if case.table is not None:
        results["table"] = audit(*case.table, case.claim, delta=case.delta)
    results["sampler"] = audit(
        case.draw, *case.inputs, case.claim, case.n, ALPHA, delta=case.delta, measure=case.measure
    )
    if arguments.json:
        document = {
            "version": __version__,
            "mechanism": arguments.mechanism,
            "inputs": list(case.inputs),
            "results": {name: result.to_dict() for name, result in results.items()},
            "plot": None if arguments.plot is None else str(arguments.plot),
        }
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    print(f"{arguments.mechanism}, inputs {case.inputs[0]} and {case.inputs[1]}")
    for name, result in results.items():
        print(f"\n{name}\n{result}")
    if arguments.plot is not None:
        print(f"\nPlot: {arguments.plot}")


def _loss_distribution(case: _Case) -> tuple[np.ndarray, np.ndarray]:
    """Values of log(P(y | first) / P(y | second)), increasing, and their probabilities on the first input."""
    if case.table is not None:
        channel, x0, x1 = case.table
        p, q = (np.array([c / TOTAL for c in channel.counts[x]]) for x in (x0, x1))
    else:
        # Rare outputs are counted together: the ratio of two small counts says nothing.
        n = case.n or _N_PLOTTED
        outputs = [_score(case.draw(x, n)) for x in case.inputs]
        edges = np.unique(np.quantile(np.concatenate(outputs), np.linspace(0, 1, 62)[1:-1], method="inverted_cdf"))
        p, q = (
            np.bincount(np.searchsorted(edges, y), minlength=len(edges) + 1).astype(np.float64) / n for y in outputs
        )
    p, q = p[p > 0], q[p > 0]
    with np.errstate(divide="ignore"):
        loss = np.log(p) - np.log(q)
    values, codes = np.unique(loss.round(12), return_inverse=True)
    return values, np.bincount(codes, weights=p)


def _score(outputs: np.ndarray) -> np.ndarray:
    """One number of each output that decides its likelihood ratio: of rows of bits, the two inputs' own (0 and 1)."""
    outputs = outputs.astype(np.float64)
    return outputs[:, 0] - outputs[:, 1] if outputs.ndim == 2 else outputs


def _plot(path: Path, name: str, case: _Case) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("--plot needs matplotlib: pip install 'fastfedrec[plot]'") from None
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"--plot {path} must be a file in a folder that exists")
    loss, probability = _loss_distribution(case)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.step(loss, np.cumsum(probability), where="post")
    if case.measure == "epsilon":  # a claim in mu bounds no single loss
        for sign in (-1, 1):
            axes.axvline(sign * case.claim, color="black", linestyle="--", linewidth=1, label="the claim, +-epsilon")
        axes.legend(handles=axes.lines[-1:])
    axes.set(xlabel="privacy loss of an output (nats)", ylabel="probability of at most this loss", ylim=(0, 1.02))
    source = "exact" if case.table is not None else f"estimated from {case.n or _N_PLOTTED:,} draws from each input"
    axes.set_title(f"{name}, inputs {case.inputs[0]} and {case.inputs[1]}: {source}", fontsize="medium")
    figure.savefig(path, dpi=150)
