"""The runs behind `figures`: each one trains the models of a few points, and is stored when it has finished."""

import functools
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_to_json
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.evaluation.new_users import METRICS, PersonalizationSplit, evaluate_personalized
from fastfedrec.rounds.system import DivergenceError
from fastfedrec.studies.files import run_or_load
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity
from fastfedrec.systems.privrec.model import PrivRec

ROUNDS, EPOCHS, COHORT = "rounds (E1)", "local epochs (E2)", "cohort (M)"
CUTOFFS = (5, 10, 20, 30)
ACTIVITY = (20, 30, 50, 100)  # strict upper bounds on the number of held-out items of a test user in Figure 8
PRIVREC, SGD, POPULARITY, DP_POPULARITY = "PrivRec", "PrivRec-SGD", "popularity", "DP popularity"
FIRST_ORDER, NN_SELF = "first-order MAML", "NN-SELF"
METHODS = {PRIVREC: "reptile", FIRST_ORDER: "first-order-maml", NN_SELF: "maml"}  # methods of Figure 9
ONE, START = "DP-PrivRec-One", "DP-PrivRec-One, private popularity fine-tuned"
_TIMED_ROUNDS = 3  # timed rounds after a first one; the fastest counts

Point = dict[str, Any]


def first_test_users(split: PersonalizationSplit, n_users: int) -> PersonalizationSplit:
    """Return the split with at most `n_users` test users."""
    return only_test_users(split, split.test_users[:n_users])


def only_test_users(split: PersonalizationSplit, users: np.ndarray) -> PersonalizationSplit:
    """Return the split with some of its test users."""
    held_out = split.held_out
    if isinstance(held_out, InteractionLog):
        tested_entries: Any = held_out.keep_entries(np.isin(held_out.users, users))
    else:
        rows = np.repeat(np.arange(held_out.n_users), held_out.interactions_per_user())
        tested_entries = held_out.keep_interactions(np.isin(rows, users))
    return replace(split, test_users=users, held_out=tested_entries)


def describe_split(split: PersonalizationSplit, seed: int, *, quick: bool) -> tuple[str, dict[str, Any]]:
    """Return the first line of a page, and the settings of a run except its model."""
    visited = split.visited
    # The sparsity pattern identifies the data.
    checksum = zlib.crc32(visited.indices.tobytes(), zlib.crc32(visited.indptr.tobytes()))
    source = f"The data given: {visited!r}, {len(split.test_users):,} test users, seed {seed}"
    return source, {"version": __version__, "data": checksum, "seed": seed, "quick": quick}


def fit_devices(model: Any, split: PersonalizationSplit, key: Key, n_threads: int, **options: Any) -> Any:
    """Fit on the train users and fine-tune on each test user's device."""
    # Systems without devices are fitted on the known positives of all users instead.
    if not isinstance(model, PrivRec):
        return model.fit(split.known_positives, key=key, n_threads=n_threads)
    model.fit(split.train, key=key, n_threads=n_threads, **options)
    return model.personalize(split.personal, key=key, n_threads=n_threads)


@dataclass(frozen=True)
class Runs:
    """Runs that train models on one split and evaluate them."""

    split: PersonalizationSplit
    key: Key
    n_threads: int
    folder: str | Path | None
    settings: dict[str, Any]

    def sweeps(self, base: PrivRec, sweeps: Mapping[str, Sequence[int]]) -> Iterator[Callable[[], list[Point]]]:
        """Yield the runs of Figure 3, which varies one parameter at a time."""
        yield functools.partial(self._over_rounds, base, sweeps[ROUNDS])
        for panel, name in ((EPOCHS, "local_epochs"), (COHORT, "cohort_size")):
            for value in sweeps[panel]:
                yield functools.partial(self._one_value, base, panel, name, value)

    def _over_rounds(self, base: PrivRec, rounds: Sequence[int]) -> list[Point]:
        model = _changed(base, n_rounds=max(rounds))

        def run() -> list[float]:
            hits: list[float] = []

            def after_round(fitted: PrivRec, number: int) -> None:
                if number + 1 in rounds:
                    hits.append(self._evaluate(fitted)["hr@20"])

            # One fit yields the points of all rounds.
            model.fit(self.split.train, key=self.key, n_threads=self.n_threads, callback=after_round)
            return hits

        values = self._run_or_load("figure-3-rounds", [repr(model), *rounds], run)
        return [_point(ROUNDS, PRIVREC, x, value) for x, value in zip(rounds, values, strict=True)]

    def _one_value(self, base: PrivRec, panel: str, name: str, value: int) -> list[Point]:
        model = _changed(base, **{name: value})
        figures = self._train_and_evaluate(f"figure-3-{name}-{value}", model)
        return [_point(panel, PRIVREC, value, figures["hr@20"])]

    def at_epsilon(
        self, name: str, model: Any, epsilon: float, *, panel: str, x_values: Sequence[float] | None = None
    ) -> list[Point]:
        """Return points of Figures 4 to 7: Hits of a model over cutoffs, or Hits@20 at `epsilon` or all `x_values`."""
        figures = self._train_and_evaluate(f"{name}-{epsilon:g}".replace(" ", "-").replace(",", ""), model)
        cost = figures["epsilon"]
        if panel == "k":
            return [_point(panel, name, k, figures[f"hr@{k}"], cost) for k in CUTOFFS]
        return [_point(panel, name, x, figures["hr@20"], cost) for x in x_values or (epsilon,)]

    def published(self, base: PrivRec, clip_norm: float) -> dict[str, Any]:
        """Run the paper's private parameters, and describe how the run ends."""
        model = _changed(
            base, target_epsilon=None, noise_multiplier=1.0, clip_norm=clip_norm,
            cohort_size=min(30, len(self.split.train_users)),
        )  # fmt: skip

        def run() -> str:
            try:
                model.fit(self.split.train, key=self.key, n_threads=self.n_threads)
            except DivergenceError as error:
                return str(error)
            return "training ended"

        return {"clip_norm": clip_norm, "ends": self._run_or_load("published-noise", repr(model), run)}

    def by_activity(self, name: str, model: Any) -> list[Point]:
        """Return the points of Figure 8: Hits@20 of test users with few held-out items."""
        visited, known = self.split.visited, self.split.known
        assert not isinstance(known, InteractionLog)
        # Each visited item is either known or held out.
        n_held_out = (visited.interactions_per_user() - known.interactions_per_user())[self.split.test_users]

        def run() -> list[float]:
            fitted, hits = fit_devices(model, self.split, self.key, self.n_threads), []
            for bound in ACTIVITY:
                active_split = only_test_users(self.split, self.split.test_users[n_held_out < bound])
                is_there = isinstance(active_split.held_out, Interactions) and active_split.held_out.n_interactions > 0
                hits.append(_hits(fitted, active_split, self.n_threads)["hr@20"] if is_there else 0.0)
            return hits

        values = self._run_or_load(f"figure-8-{name}", repr(model), run)
        return [_point("fewer items held out than", name, x, value) for x, value in zip(ACTIVITY, values, strict=True)]

    def milliseconds(self, base: PrivRec, name: str, cohort_size: int, n_threads: int) -> list[Point]:
        """Return the point of Figure 9 for one method: the duration of the fastest of a few rounds."""
        # Processor time of one thread does not depend on other processes, so one round is enough.
        clock, clock_name, n_timed = (time.perf_counter, "wall", _TIMED_ROUNDS)
        if n_threads == 1:
            clock, clock_name, n_timed = (time.process_time, "processor", 1)
        model = _changed(base, meta=METHODS[name], cohort_size=cohort_size, n_rounds=n_timed + 1)

        def run() -> float:
            ends: list[float] = []
            options: dict[str, Any] = {"callback": lambda *_: ends.append(clock())}
            model.fit(self.split.train, key=self.key, n_threads=n_threads, **options)
            return 1000 * float(np.diff(ends).min())

        # Durations of different clocks are stored separately.
        identity = [clock_name, repr(model)]
        value = self._run_or_load(f"figure-9-{model.meta}-{cohort_size}-threads-{n_threads}", identity, run)
        return [_point(COHORT, curve_name(name, n_threads), cohort_size, value)]

    # ---- one model ----------------------------------------------------------------------------------------------

    def _train_and_evaluate(self, name: str, model: Any) -> dict[str, Any]:
        def run() -> dict[str, Any]:
            fitted = fit_devices(model, self.split, self.key, self.n_threads)
            cost = fitted.ledger_.epsilon("public")
            return _hits(fitted, self.split, self.n_threads) | {"epsilon": epsilon_to_json(cost)}

        return self._run_or_load(name, repr(model), run)

    def _evaluate(self, model: PrivRec) -> dict[str, float]:
        devices = model.personalize(self.split.personal, key=self.key, n_threads=self.n_threads)
        return _hits(devices, self.split, self.n_threads)

    def _run_or_load(self, name: str, identity: Any, run: Callable[[], Any]) -> Any:
        n_tested = len(self.split.test_users)
        return run_or_load(self.folder, name, self.settings | {"what": identity, "test_users": n_tested}, run)


def private_models(models: Mapping[str, Any], epsilons: Sequence[float]) -> list[tuple[str, Any, float]]:
    """Return name, model and epsilon of the curves of Figures 4 to 7; models without privacy have epsilon 0."""
    base, start = models[f"{ONE}, epsilon 2"], models[f"{START}, epsilon 2"]
    curves: list[tuple[str, Any, float]] = [(PRIVREC, models[PRIVREC], 0.0), (POPULARITY, Popularity(), 0.0)]
    for epsilon in epsilons:
        curves.append((ONE, _changed(base, target_epsilon=epsilon), epsilon))
        curves.append((START, _changed(start, popularity_epsilon=epsilon), epsilon))
        # Replacing a user costs DPPopularity twice its epsilon.
        curves.append((DP_POPULARITY, DPPopularity(epsilon / 2), epsilon))
    return curves


def curve_name(name: str, n_threads: int) -> str:
    """Return the name of a curve of Figure 9."""
    return f"{name}, {n_threads} thread{'s' if n_threads > 1 else ''}"


def _changed(model: PrivRec, **parameters: Any) -> PrivRec:
    return PrivRec(**(model.get_params() | parameters))


def _hits(model: Any, split: PersonalizationSplit, n_threads: int) -> dict[str, float]:
    return evaluate_personalized(model, split, metrics=METRICS[:4], n_threads=n_threads)["all"]


def _point(panel: str, model: str, x: float, value: float, epsilon: float | None = None) -> Point:
    return {"panel": panel, "model": model, "x": x, "value": value, "epsilon": epsilon}
