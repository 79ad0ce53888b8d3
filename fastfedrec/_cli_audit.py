"""The command ``fastfedrec audit``: what a mechanism of the package demonstrably costs, beside what it claims."""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec._check import check_epsilon
from fastfedrec._version import __version__
from fastfedrec.audit import AuditResult, audit
from fastfedrec.mechanisms import BinaryResponse, Channel, DiscreteLaplace
from fastfedrec.mechanisms.channel import TOTAL
from fastfedrec.randomness import Key
from fastfedrec.testing import ALPHA

_N_PLOTTED = 100_000  # draws from each input, where the loss is not known exactly


@dataclass(frozen=True)
class _Case:
    """A mechanism with the two inputs that are hardest to hide from each other, and the exact table if it has one."""

    mechanism: Any
    inputs: tuple[Any, Any]
    claim: float
    delta: float = 0.0
    table: tuple[Channel, int, int] | None = None

    def draw(self, x: Any, n: int) -> np.ndarray:
        """Outputs of the sampler that ships, from entropy."""
        if hasattr(self.mechanism, "privatize"):
            return self.mechanism.privatize(np.full(n, x))
        return self.mechanism.add_noise(np.full(n, x), key=Key.from_entropy(), purpose="audit")


def _binary_response(epsilon: float) -> _Case:
    channel = BinaryResponse(epsilon)
    return _Case(channel, (1.0, -1.0), epsilon, table=(channel, 0, 1))


def _discrete_laplace(epsilon: float) -> _Case:
    return _Case(DiscreteLaplace(1 / Fraction(epsilon)), (0, 1), epsilon)


_CASES: dict[str, Callable[[float], _Case]] = {
    "binary-response": _binary_response,
    "discrete-laplace": _discrete_laplace,
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
    results["sampler"] = audit(case.draw, *case.inputs, case.claim, alpha=ALPHA, delta=case.delta)
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
        outputs = [case.draw(x, _N_PLOTTED).astype(np.float64) for x in case.inputs]
        edges = np.unique(np.quantile(np.concatenate(outputs), np.linspace(0, 1, 62)[1:-1], method="inverted_cdf"))
        p, q = (
            np.bincount(np.searchsorted(edges, y), minlength=len(edges) + 1).astype(np.float64) / _N_PLOTTED
            for y in outputs
        )
    p, q = p[p > 0], q[p > 0]
    with np.errstate(divide="ignore"):
        loss = np.log(p) - np.log(q)
    order = np.argsort(loss)
    return loss[order], p[order]


def _plot(path: Path, name: str, case: _Case) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("--plot needs matplotlib: pip install 'fastfedrec[plot]'") from None
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"--plot {path} must be a file in a folder that exists")
    loss, probability = _loss_distribution(case)
    finite = np.isfinite(loss)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.vlines(loss[finite], 0, probability[finite], linewidth=2)
    for sign in (-1, 1):
        axes.axvline(
            sign * case.claim, color="black", linestyle="--", linewidth=1, label=f"+-{case.claim:g}, the claim"
        )
    axes.set(xlabel="privacy loss of an output (nats)", ylabel="probability", ylim=(0, None))
    source = "exact" if case.table is not None else f"estimated from {_N_PLOTTED:,} draws from each input"
    axes.set_title(f"{name}, inputs {case.inputs[0]} and {case.inputs[1]}: {source}", fontsize="medium")
    axes.legend(handles=axes.lines[:1])
    figure.savefig(path, dpi=150)
