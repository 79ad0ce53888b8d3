"""The runs behind `figures`: each trains what a few points need, and is kept when it has finished."""

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
from fastfedrec.studies.reproduce.side_by_side import kept
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity
from fastfedrec.systems.privrec.model import PrivRec

ROUNDS, EPOCHS, COHORT = "rounds (E1)", "local epochs (E2)", "cohort (M)"
CUTOFFS = (5, 10, 20, 30)
ACTIVITY = (20, 30, 50, 100)  # a test user of Figure 8 has fewer items held out than this
PRIVREC, SGD, POPULARITY, DP_POPULARITY = "PrivRec", "PrivRec-SGD", "popularity", "DP popularity"
FIRST_ORDER, NN_SELF = "first-order MAML", "NN-SELF"
METHODS = {PRIVREC: "reptile", FIRST_ORDER: "first-order-maml", NN_SELF: "maml"}  # of Figure 9
ONE, START = "DP-PrivRec-One", "DP-PrivRec-One, private popularity fine-tuned"
_TIMED_ROUNDS = 3

Point = dict[str, Any]


def first_test_users(split: PersonalizationSplit, n_users: int) -> PersonalizationSplit:
    """The same split, tested on no more users than that."""
    return only_test_users(split, split.test_users[:n_users])


def only_test_users(split: PersonalizationSplit, users: np.ndarray) -> PersonalizationSplit:
    """The same split, tested on some of its users."""
    held_out = split.held_out
    if isinstance(held_out, InteractionLog):
        kept_entries: Any = held_out.keep_entries(np.isin(held_out.users, users))
    else:
        rows = np.repeat(np.arange(held_out.n_users), held_out.interactions_per_user())
        kept_entries = held_out.keep_interactions(np.isin(rows, users))
    return replace(split, test_users=users, held_out=kept_entries)


def describe_split(split: PersonalizationSplit, seed: int, *, quick: bool) -> tuple[str, dict[str, Any]]:
    """The first line of a page, and what a run depends on besides its model."""
    visited = split.visited
    checksum = zlib.crc32(visited.indices.tobytes(), zlib.crc32(visited.indptr.tobytes()))
    source = f"The data given: {visited!r}, {len(split.test_users):,} test users, seed {seed}"
    return source, {"version": __version__, "data": checksum, "seed": seed, "quick": quick}


def fit_devices(model: Any, split: PersonalizationSplit, key: Key, n_threads: int, **options: Any) -> Any:
    """Fit on the train users and fine-tune on each test user's device; what has no devices, on all known positives."""
    if not isinstance(model, PrivRec):
        return model.fit(split.known_positives, key=key, n_threads=n_threads)
    model.fit(split.train, key=key, n_threads=n_threads, **options)
    return model.personalize(split.personal, key=key, n_threads=n_threads)


@dataclass(frozen=True)
class Runs:
    """Trains models on one split, and evaluates them."""

    split: PersonalizationSplit
    key: Key
    n_threads: int
    folder: str | Path | None
    settings: dict[str, Any]

    def sweeps(self, base: PrivRec, sweeps: Mapping[str, Sequence[int]]) -> Iterator[Callable[[], list[Point]]]:
        """Figure 3: one parameter at a time."""
        yield functools.partial(self._over_rounds, base, sweeps[ROUNDS])
        for panel, name in ((EPOCHS, "local_epochs"), (COHORT, "cohort_size")):
            for value in sweeps[panel]:
                yield functools.partial(self._one_value, base, panel, name, value)

    def _over_rounds(self, base: PrivRec, rounds: Sequence[int]) -> list[Point]:
        model = _changed(base, n_rounds=max(rounds))

        def run() -> list[float]:
            found: list[float] = []

            def after_round(fitted: PrivRec, number: int) -> None:
                if number + 1 in rounds:
                    found.append(self._evaluated(fitted)["hr@20"])

            model.fit(self.split.train, key=self.key, n_threads=self.n_threads, callback=after_round)
            return found

        values = self._kept("figure-3-rounds", [repr(model), *rounds], run)
        return [_point(ROUNDS, PRIVREC, x, value) for x, value in zip(rounds, values, strict=True)]

    def _one_value(self, base: PrivRec, panel: str, name: str, value: int) -> list[Point]:
        model = _changed(base, **{name: value})
        found = self._trained(f"figure-3-{name}-{value}", model)
        return [_point(panel, PRIVREC, value, found["hr@20"])]

    def at_epsilon(
        self, name: str, model: Any, epsilon: float, *, panel: str, where: Sequence[float] | None = None
    ) -> list[Point]:
        """Figures 4 to 7: a model's Hits over cutoffs, or Hits@20 at one epsilon, or at all of `where`."""
        found = self._trained(f"{name}-{epsilon:g}".replace(" ", "-").replace(",", ""), model)
        cost = found["epsilon"]
        if panel == "k":
            return [_point(panel, name, k, found[f"hr@{k}"], cost) for k in CUTOFFS]
        return [_point(panel, name, x, found["hr@20"], cost) for x in where or (epsilon,)]

    def published(self, base: PrivRec, clip_norm: float) -> dict[str, Any]:
        """How a run with the paper's private parameters ends."""
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

        return {"clip_norm": clip_norm, "ends": self._kept("published-noise", repr(model), run)}

    def by_activity(self, name: str, model: Any) -> list[Point]:
        """Figure 8: Hits@20 of test users with few items held out."""
        visited, known = self.split.visited, self.split.known
        assert not isinstance(known, InteractionLog)
        n_held_out = (visited.interactions_per_user() - known.interactions_per_user())[self.split.test_users]

        def run() -> list[float]:
            fitted, found = fit_devices(model, self.split, self.key, self.n_threads), []
            for bound in ACTIVITY:
                part = only_test_users(self.split, self.split.test_users[n_held_out < bound])
                is_there = isinstance(part.held_out, Interactions) and part.held_out.n_interactions > 0
                found.append(_hits(fitted, part, self.n_threads)["hr@20"] if is_there else 0.0)
            return found

        values = self._kept(f"figure-8-{name}", repr(model), run)
        return [_point("fewer items held out than", name, x, value) for x, value in zip(ACTIVITY, values, strict=True)]

    def milliseconds(self, base: PrivRec, name: str, cohort_size: int, n_threads: int) -> list[Point]:
        """Figure 9: the fastest of a few rounds; of one thread processor time, so that one round is enough."""
        clock, how, n_timed = (time.perf_counter, "wall", _TIMED_ROUNDS)
        if n_threads == 1:
            clock, how, n_timed = (time.process_time, "processor", 1)
        model = _changed(base, meta=METHODS[name], cohort_size=cohort_size, n_rounds=n_timed + 1)

        def run() -> float:
            ends: list[float] = []
            options: dict[str, Any] = {"callback": lambda *_: ends.append(clock())}
            model.fit(self.split.train, key=self.key, n_threads=n_threads, **options)
            return 1000 * float(np.diff(ends).min())

        what = [how, repr(model)]
        value = self._kept(f"figure-9-{model.meta}-{cohort_size}-threads-{n_threads}", what, run)
        return [_point(COHORT, timed(name, n_threads), cohort_size, value)]

    # ---- one model ----------------------------------------------------------------------------------------------

    def _trained(self, name: str, model: Any) -> dict[str, Any]:
        def run() -> dict[str, Any]:
            fitted = fit_devices(model, self.split, self.key, self.n_threads)
            cost = fitted.ledger_.epsilon("public")
            return _hits(fitted, self.split, self.n_threads) | {"epsilon": epsilon_to_json(cost)}

        return self._kept(name, repr(model), run)

    def _evaluated(self, model: PrivRec) -> dict[str, float]:
        devices = model.personalize(self.split.personal, key=self.key, n_threads=self.n_threads)
        return _hits(devices, self.split, self.n_threads)

    def _kept(self, name: str, what: Any, run: Callable[[], Any]) -> Any:
        tested = len(self.split.test_users)
        return kept(self.folder, name, self.settings | {"what": what, "test_users": tested}, run)


def private_models(models: Mapping[str, Any], epsilons: Sequence[float]) -> list[tuple[str, Any, float]]:
    """Name, model and epsilon of the curves of Figures 4 to 7; those without privacy come once, with epsilon 0."""
    base, start = models[f"{ONE}, epsilon 2"], models[f"{START}, epsilon 2"]
    found: list[tuple[str, Any, float]] = [(PRIVREC, models[PRIVREC], 0.0), (POPULARITY, Popularity(), 0.0)]
    for epsilon in epsilons:
        found.append((ONE, _changed(base, target_epsilon=epsilon), epsilon))
        found.append((START, _changed(start, popularity_epsilon=epsilon), epsilon))
        found.append((DP_POPULARITY, DPPopularity(epsilon / 2), epsilon))  # for replacing a user, which costs twice
    return found


def timed(name: str, n_threads: int) -> str:
    """A curve of Figure 9."""
    return f"{name}, {n_threads} thread{'s' if n_threads > 1 else ''}"


def _changed(model: PrivRec, **parameters: Any) -> PrivRec:
    return PrivRec(**(model.get_params() | parameters))


def _hits(model: Any, split: PersonalizationSplit, n_threads: int) -> dict[str, float]:
    return evaluate_personalized(model, split, metrics=METRICS[:4], n_threads=n_threads)["all"]


def _point(panel: str, model: str, x: float, value: float, epsilon: float | None = None) -> Point:
    return {"panel": panel, "model": model, "x": x, "value": value, "epsilon": epsilon}
