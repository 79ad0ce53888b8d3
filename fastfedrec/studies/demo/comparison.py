"""Utility and true privacy cost of systems of each trust model on one population."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import LeaveOneOut, evaluate
from fastfedrec.systems.baselines.implicit_als import ImplicitALS
from fastfedrec.systems.baselines.item_models import EASE
from fastfedrec.systems.baselines.popularity import Popularity, split_epsilon
from fastfedrec.systems.dplcf import DPLCF
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP
from fastfedrec.systems.private_recommender.recipes import calibrated, recipes_of
from fastfedrec.systems.recommender import Recommender
from fastfedrec.systems.registry import make_system

__all__ = ["METRICS", "Result", "Run", "line_up", "measure", "verdicts"]

METRICS = ("hr@10", "ndcg@10")
DELTA = 1e-6
HONEST_FRACTION, DROPOUT_FRACTION = 0.7, 0.05  # of the nodes that add shares of the noise
_MAX_USEFUL_EPSILON = 10.0  # nats; above it an adversary's best guess is right in at least 99.995% of cases
PUBLISHED = "FMFLDP"  # measured at its published setting, not calibrated to a true epsilon
#: True epsilons in nats, for replacing all data of one user, of each system that is calibrated to one.
TARGETS: dict[str, dict[str, tuple[float, ...]]] = {
    "central": {"DPGram": (0.5, 1.0, 2.0), "DPPopularity": (0.5, 1.0, 2.0)},
    "aggregator": {"DPGram": (1.0, 2.0)},
    "shuffle": {"ShuffledGram": (1.0, 2.0), "DPPopularity": (1.0, 2.0)},
    "local": {"DPPopularity": (1.0, 2.0)},
}


@dataclass(frozen=True)
class Run:
    """One fit, and the trust models that its cost is reported in."""

    model: Recommender  # unfitted
    trusts: tuple[str, ...]  # "none", "central", "aggregator", "shuffle" or "local"


@dataclass(frozen=True)
class Result:
    """A row of the table: one fit in one trust model."""

    trust: str  # "none" without a guarantee
    system: str  # name of the class
    setting: str  # the system as Python code
    # True cost of the whole run in nats, for replacing all data of one user, against the adversary of `trust`;
    # infinite without a guarantee.
    epsilon: float
    metrics: dict[str, float]
    bytes_down: int | None  # of one client in the whole run; None if the system counts no bytes
    bytes_up: int | None
    seconds: float  # duration of the fit of all clients


def line_up(n_users: int, n_items: int) -> list[Run]:
    """Return the fits on a population of this public size, from systems without privacy to local reports."""
    runs = [Run(model, ("none",)) for model in (Popularity(), EASE(), ImplicitALS())]
    for trust, systems in TARGETS.items():
        for recipe in recipes_of(trust, HONEST_FRACTION, DROPOUT_FRACTION):
            for epsilon in systems.get(recipe.system, ()):
                planned = calibrated(recipe, epsilon, DELTA, n_users, n_items)
                if planned is not None:  # None: no setting reaches this epsilon with this number of users
                    runs.append(Run(make_system(recipe.system, planned[0]), (trust,)))
    published = FMFLDP()
    total = published.n_rounds * published.n_reports * float(published.epsilon or 0)
    runs.append(Run(published, ("shuffle", "local")))
    runs.append(Run(DPLCF(split_epsilon(total, n_items)), ("local",)))
    return runs


def measure(
    data: Interactions, *, key: Key, noise_key: Key | None, show_progress: bool, runs: list[Run] | None = None
) -> list[Result]:
    """Fit every system on all but one item of each user, rank that item among all unseen ones, and return the rows.

    `key` draws the split, which no guarantee depends on; `noise_key` draws the noise, from entropy if it is None.
    """
    train, test = next(LeaveOneOut().split(data, key=key))
    runs = line_up(train.n_users, train.n_items) if runs is None else runs
    results: list[Result] = []
    for number in progress_rounds(len(runs), show=show_progress, description="demo", unit="fit"):
        results += _results(runs[number], train, test, key, noise_key)
    order = ("none", "central", "aggregator", "shuffle", "local")
    return sorted(results, key=lambda result: order.index(result.trust))


def _results(run: Run, train: Interactions, test: Interactions, key: Key, noise_key: Key | None) -> Iterator[Result]:
    model: Any = run.model
    started = time.perf_counter()
    model.fit(train, key=noise_key)
    seconds = time.perf_counter() - started
    metrics = dict(evaluate(model, train, test, metrics=METRICS, key=key))
    traffic = getattr(model, "communication_", None)
    byte_totals = traffic.to_dict() if traffic is not None and traffic.rounds else {}
    for trust in run.trusts:
        yield Result(
            trust, type(model).__name__, repr(model),
            math.inf if trust == "none" else model.ledger_.epsilon(trust), metrics,
            byte_totals.get("download_per_client"), byte_totals.get("upload_per_client"), seconds,
        )  # fmt: skip


# ---- what it means --------------------------------------------------------------------------------------------------


def verdicts(results: list[Result], n_tested: int) -> list[str]:
    """Describe the best system of each trust model, compared with popularity and with systems without privacy."""
    metric, not_private = METRICS[0], [result for result in results if result.trust == "none"]
    popular = next(result for result in not_private if result.system == "Popularity").metrics[metric]
    ceiling = max(not_private, key=lambda result: result.metrics[metric])
    # The first sentence has the range between popularity and the best model without privacy.
    sentences = [
        f"Without privacy, {ceiling.system} has the held-out item among its first ten for "
        f"{ceiling.metrics[metric]:.1%} of the users; one list of popular items for all users has it for {popular:.1%}."
    ]
    parties = {
        "central": "With a trusted server", "aggregator": f"With noise of nodes, {HONEST_FRACTION:.0%} of them honest",
        "shuffle": "Behind a shuffler", "local": "Without a trusted party",
    }  # fmt: skip
    for trust, party in parties.items():
        # A trust model with large epsilons alone has no sentence.
        useful = [r for r in results if r.trust == trust and r.epsilon <= _MAX_USEFUL_EPSILON]
        if not useful:
            continue
        best = max(useful, key=lambda result: result.metrics[metric])
        sentences.append(
            f"{party}, at a true epsilon of {best.epsilon:.3g}, {best.system} has {best.metrics[metric]:.1%}, "
            f"{_relation(best.metrics[metric], popular, n_tested)} that list."
        )
    for shuffled in results:
        local_results = [r for r in results if r.trust == "local" and r.setting == shuffled.setting]
        if shuffled.trust == "shuffle" and shuffled.system == PUBLISHED and local_results:
            sentences.append(
                f"FMF-LDP as published has {shuffled.metrics[metric]:.1%}. Each report has a small epsilon, but "
                f"a user's reports add up: to {local_results[0].epsilon:,.0f} against a server that links reports to "
                f"users, which is no bound in practice, and to {shuffled.epsilon:.2f} if a shuffler breaks every link."
            )
    return sentences


def _relation(private: float, popular: float, n_tested: int) -> str:
    # Two standard errors of a difference of two shares; it is smaller if the same users favour both models.
    margin = 2 * math.sqrt(2 * 0.25 / max(n_tested, 1))
    if abs(private - popular) <= margin:
        return "no clear difference from"
    return f"{private / popular:.1f} times as much as" if private > popular else "less than"
