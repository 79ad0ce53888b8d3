"""Systems of each trust model on one population: how useful each is, and what it costs."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import LeaveOneOut, evaluate
from fastfedrec.systems.baselines.implicit_als import ImplicitALS
from fastfedrec.systems.baselines.item_models import EASE
from fastfedrec.systems.baselines.popularity import Popularity, split_epsilon
from fastfedrec.systems.dplcf import DPLCF
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP
from fastfedrec.systems.private_recommender.recipes import RECIPES, calibrated
from fastfedrec.systems.recommender import Recommender
from fastfedrec.systems.registry import make_system

__all__ = ["METRICS", "Result", "Run", "line_up", "measure", "verdicts"]

METRICS = ("hr@10", "ndcg@10")
DELTA = 1e-6
_MOST_USEFUL = 10.0  # nats; beyond it whoever must guess is right 99.995 times of 100
PUBLISHED = "FMFLDP"  # at its published setting, whose true cost nobody chooses
#: True epsilons, in nats, for replacing all data of one user, of each system that can be asked for one.
TARGETS: dict[str, dict[str, tuple[float, ...]]] = {
    "central": {"DPGram": (0.5, 1.0, 2.0), "DPPopularity": (0.5, 1.0, 2.0)},
    "shuffle": {"ShuffledSketchGram": (1.0, 2.0), "DPPopularity": (1.0, 2.0)},
    "local": {"DPPopularity": (1.0, 2.0)},
}


@dataclass(frozen=True)
class Run:
    """One fit, and the trust models in which its cost is told.

    Parameters
    ----------
    model : Recommender
        Not fitted.
    trusts : tuple of str
        Of "none", "central", "shuffle" and "local".
    """

    model: Recommender
    trusts: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A row of the table.

    Parameters
    ----------
    trust : str
        "none" where there is no guarantee.
    system, setting : str
        Its class, and how one would write it in Python.
    epsilon : float
        True cost of the whole run, in nats, for replacing all data of one user, against whom `trust` protects from;
        infinite without a guarantee.
    metrics : dict of str to float
        By name.
    bytes_down, bytes_up : int or None
        Of one client in the whole run; None where it counts none.
    seconds : float
        Of the fit of all clients.
    """

    trust: str
    system: str
    setting: str
    epsilon: float
    metrics: dict[str, float]
    bytes_down: int | None
    bytes_up: int | None
    seconds: float


def line_up(n_users: int, n_items: int) -> list[Run]:
    """What is fitted on a population of this size.

    Parameters
    ----------
    n_users, n_items : int
        Public sizes.

    Returns
    -------
    list of Run
        Without a guarantee first, then by whom is trusted with most.
    """
    runs = [Run(model, ("none",)) for model in (Popularity(), EASE(), ImplicitALS())]
    for trust, systems in TARGETS.items():
        for recipe in RECIPES:
            if recipe.trust != trust:
                continue
            for epsilon in systems.get(recipe.system, ()):
                planned = calibrated(recipe, epsilon, DELTA, n_users, n_items)
                if planned is not None:  # no setting is so cheap with so few users
                    runs.append(Run(make_system(recipe.system, planned[0]), (trust,)))
    published = FMFLDP()
    total = published.n_rounds * published.n_reports * float(published.epsilon or 0)
    runs.append(Run(published, ("shuffle", "local")))
    runs.append(Run(DPLCF(split_epsilon(total, n_items)), ("local",)))
    return runs


def measure(
    data: Interactions, *, key: Key, noise_key: Key | None, show_progress: bool, runs: list[Run] | None = None
) -> list[Result]:
    """Fit every system on all but one item of each user, and rank that item among all unseen ones.

    Parameters
    ----------
    data : Interactions
        Of generated people.
    key : Key
        Of the split, which nobody's privacy rests on.
    noise_key : Key or None
        Of fits; None draws from entropy.
    show_progress : bool
        Draw a bar over the fits.
    runs : list of Run or None
        None takes `line_up`.

    Returns
    -------
    list of Result
        One for each run and trust model.
    """
    train, test = next(LeaveOneOut().split(data, key=key))
    runs = line_up(train.n_users, train.n_items) if runs is None else runs
    results: list[Result] = []
    for number in progress_rounds(len(runs), show=show_progress, description="demo", unit="fit"):
        results += _results(runs[number], train, test, key, noise_key)
    order = ("none", "central", "shuffle", "local")
    return sorted(results, key=lambda result: order.index(result.trust))


def _results(run: Run, train: Interactions, test: Interactions, key: Key, noise_key: Key | None) -> Iterator[Result]:
    model: Any = run.model
    started = time.perf_counter()
    model.fit(train, key=noise_key)
    seconds = time.perf_counter() - started
    metrics = dict(evaluate(model, train, test, metrics=METRICS, key=key))
    traffic = getattr(model, "communication_", None)
    moved = traffic.to_dict() if traffic is not None and traffic.rounds else {}
    for trust in run.trusts:
        yield Result(
            trust, type(model).__name__, repr(model),
            math.inf if trust == "none" else model.ledger_.epsilon(TRUST_VIEWS[trust]), metrics,
            moved.get("download_per_client"), moved.get("upload_per_client"), seconds,
        )  # fmt: skip


# ---- what it means --------------------------------------------------------------------------------------------------


def verdicts(results: list[Result], n_tested: int) -> list[str]:
    """What the figures say, in sentences.

    Parameters
    ----------
    results : list of Result
        Of `measure`.
    n_tested : int
        Users who were tested.

    Returns
    -------
    list of str
        The best private system of each trust model beside popularity and the best without privacy; what the published
        setting costs.
    """
    metric, free = METRICS[0], [result for result in results if result.trust == "none"]
    popular = next(result for result in free if result.system == "Popularity").metrics[metric]
    ceiling = max(free, key=lambda result: result.metrics[metric])
    sentences = [
        f"Without privacy, {ceiling.system} has the item that was held out among its first ten for "
        f"{ceiling.metrics[metric]:.1%} of the users; one list of what is popular, the same for all, for {popular:.1%}."
    ]
    words = {"central": "With a trusted server", "shuffle": "Behind a shuffler", "local": "Trusting nobody"}
    for trust, who in words.items():
        useful = [r for r in results if r.trust == trust and r.epsilon <= _MOST_USEFUL]
        if not useful:
            continue
        best = max(useful, key=lambda result: result.metrics[metric])
        sentences.append(
            f"{who}, at a true epsilon of {best.epsilon:.3g}, {best.system} has {best.metrics[metric]:.1%}, "
            f"{_relation(best.metrics[metric], popular, n_tested)} that list."
        )
    for shuffled in results:
        alone = [r for r in results if r.trust == "local" and r.setting == shuffled.setting]
        if shuffled.trust == "shuffle" and shuffled.system == PUBLISHED and alone:
            sentences.append(
                f"FMF-LDP as it was published has {shuffled.metrics[metric]:.1%}. Each report has a small epsilon, but "
                f"a user's reports add up: to {alone[0].epsilon:,.0f} against a server that sees who sent what, which "
                f"bounds nothing, and to {shuffled.epsilon:.2f} if a shuffler breaks every link."
            )
    return sentences


def _relation(private: float, popular: float, n_tested: int) -> str:
    # Two standard errors of a difference of two shares, which is less where the same users favour both models.
    margin = 2 * math.sqrt(2 * 0.25 / max(n_tested, 1))
    if abs(private - popular) <= margin:
        return "no clear difference from"
    return f"{private / popular:.1f} times as much as" if private > popular else "less than"
