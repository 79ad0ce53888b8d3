"""Members and others: who is drawn, what is fitted, and how a fitted model answers for any user's profile."""

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastfedrec.accounting import Ledger, UnsupportedEventError
from fastfedrec.compute import ranking
from fastfedrec.core.check import check_instance
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.new_users import score_rows
from fastfedrec.systems.recommender import Recommender

USERS = "membership.users"
FITS = "membership.fits"
MEMBERS = "membership.members"
_BLOCK_CELLS = 2**22  # scores held at once
_DELTAS = (1e-2, 1e-3, 1e-4, 1e-6, 1e-8)  # at which a ledger is asked for its epsilon

Query = Callable[[Any, Interactions, Key], Any]


def new_model(model: Any) -> Any:
    """A model like this one that is not fitted: from a factory, from its parameters, or a copy."""
    if inspect.isclass(model) or not hasattr(model, "fit"):
        if not callable(model):
            raise TypeError(
                f"model must have a method fit, or be a function that returns such a model, got {type(model).__name__}"
            )
        model = model()
        if not hasattr(model, "fit"):
            raise TypeError(f"model() must return something with a method fit, got {type(model).__name__}")
        return model
    return type(model)(**model.get_params()) if hasattr(model, "get_params") else copy.deepcopy(model)


def keyed(key: Key, number: int) -> Key:
    """The key of one fit: no two models may draw the same noise."""
    if not key.is_simulation:
        return Key.from_entropy()
    return Key.from_seed(int(key.words(FITS, round=number, size=1)[0] >> np.uint64(1)))


def draw_members(n_users: int, share: float, key: Key, number: int) -> np.ndarray:
    """Who of the users is a member of model `number`, as a mask; at least one on each side, but for a share of 1."""
    n = n_users if share == 1 else min(max(round(share * n_users), 1), n_users - 1)
    mask = np.zeros(n_users, dtype=bool)
    mask[key.permutation(MEMBERS, round=number, size=n_users)[:n]] = True
    return mask


def split_users(data: Interactions, n_aside: int, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the users whom the attacker has, and of those of the target, who are others."""
    order = key.permutation(USERS, size=data.n_users)
    return np.sort(order[:n_aside]), np.sort(order[n_aside:])


class Runs:
    """Fits models on members, and asks them about everybody."""

    def __init__(self, model: Any, query: Query | None, key: Key, n_threads: int):
        self.model, self.query, self.key, self.n_threads = model, query, key, n_threads

    def fit(self, data: Interactions, number: int) -> Any:
        """A new model on these users."""
        model = new_model(self.model)
        _call(model.fit, data, key=keyed(self.key, 2 * number), n_threads=self.n_threads)
        return model

    def serve(self, model: Any, profiles: Interactions, number: int) -> Any:
        """What answers for these users; members and others are asked in the same way."""
        key = keyed(self.key, 2 * number + 1)
        if self.query is not None:
            return self.query(model, profiles, key)
        for name in ("personalize", "with_users", "serve"):
            serves = name != "with_users" or getattr(model, "serves_others", True)
            if serves and callable(method := getattr(model, name, None)):
                return _call(method, profiles, key=key, n_threads=self.n_threads)
        if isinstance(model, Recommender):
            raise TypeError(
                f"{type(model).__name__} answers only for the users it was fitted on; pass query=, a function of the "
                "fitted model, profiles and a key that returns something with score for these profiles"
            )
        return model


def _call(method: Callable[..., Any], data: Interactions, **options: Any) -> Any:
    """Call with the options that the method knows."""
    parameters = inspect.signature(method).parameters
    return method(data, **{name: value for name, value in options.items() if name in parameters})


def score_blocks(served: Any, profiles: Interactions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows, and scores of all items for them, a block at a time."""
    is_ours = isinstance(served, Recommender)
    if is_ours and not np.array_equal(served.interactions_.item_ids, profiles.item_ids):
        raise ValueError("query must return a model of the same items, in their order")
    # Looking up each id of each pair takes longer than the scores themselves.
    places = served.interactions_.user_index(profiles.user_ids) if is_ours else None
    step = max(1, _BLOCK_CELLS // profiles.n_items)
    for start in range(0, profiles.n_users, step):
        rows = np.arange(start, min(start + step, profiles.n_users))
        yield rows, score_rows(served, profiles, rows) if places is None else _finite(served, places[rows])


def _finite(served: Recommender, places: np.ndarray) -> np.ndarray:
    scores = served._fitted()._score_block(places)
    if not np.isfinite(scores).all():
        raise ValueError(f"{type(served).__name__} returned a score that is not finite; has the model diverged?")
    return scores


def best_items(served: Any, profiles: Interactions, n: int, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """The best items of every user, own ones included, and their scores."""
    found = [ranking.top_k(scores, n, n_threads=n_threads) for _, scores in score_blocks(served, profiles)]
    items, scores = (np.concatenate(part) for part in zip(*found, strict=True))
    return items, scores


def stated_guarantee(model: Any, against: str) -> tuple[tuple[float, float], ...]:
    """Return the (epsilon, delta) of the fitted target's ledger: of pure epsilons, and at several delta."""
    ledger = getattr(model, "ledger_", None)
    if ledger is None:
        return ()
    check_instance("ledger_", ledger, Ledger, "pass guarantee=[(epsilon, delta)]")
    found = []
    for delta in (0.0, *_DELTAS):
        try:
            epsilon = ledger.epsilon(against, delta)
        except UnsupportedEventError:  # no figure is no guarantee
            continue
        if np.isfinite(epsilon):
            found.append((float(epsilon), delta))
    return tuple(found)
