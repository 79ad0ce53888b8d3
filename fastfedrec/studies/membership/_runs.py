"""Draws of members, fits of models, and scores of a fitted model for any user's profile."""

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
_BLOCK_CELLS = 2**22  # maximum number of scores in memory at once
_DELTAS = (1e-2, 1e-3, 1e-4, 1e-6, 1e-8)  # values of delta at which a ledger's epsilon is computed

Query = Callable[[Any, Interactions, Key], Any]


def new_model(model: Any) -> Any:
    """Return an unfitted model like this one: from a factory, from its parameters, or as a copy."""
    if inspect.isclass(model) or not hasattr(model, "fit"):
        if not callable(model):
            raise TypeError(
                f"model must have a method fit, or be a function that returns such a model, got {type(model).__name__}"
            )
        model = model()
        if not hasattr(model, "fit"):
            raise TypeError(f"model() must return something with a method fit, got {type(model).__name__}")
        return model
    # A model without `get_params` is copied whole, so it must not be fitted yet.
    return type(model)(**model.get_params()) if hasattr(model, "get_params") else copy.deepcopy(model)


def fit_key(key: Key, number: int) -> Key:
    """Return the key of one fit; each model draws its own noise."""
    if not key.is_simulation:
        return Key.from_entropy()
    return Key.from_seed(int(key.words(FITS, round=number, size=1)[0] >> np.uint64(1)))


def draw_members(n_users: int, share: float, key: Key, number: int) -> np.ndarray:
    """Draw the members of model `number` and return them as a mask."""
    # Both sides have at least one user, except for a share of 1.
    n = n_users if share == 1 else min(max(round(share * n_users), 1), n_users - 1)
    mask = np.zeros(n_users, dtype=bool)
    mask[key.permutation(MEMBERS, round=number, size=n_users)[:n]] = True
    return mask


def split_users(data: Interactions, n_aside: int, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """Split the users at random; return the rows of the attacker's users and of the target's."""
    order = key.permutation(USERS, size=data.n_users)
    return np.sort(order[:n_aside]), np.sort(order[n_aside:])


class Runs:
    """Fits of a model on members, and queries of the fitted models for all users."""

    def __init__(self, model: Any, query: Query | None, key: Key, n_threads: int):
        self.model, self.query, self.key, self.n_threads = model, query, key, n_threads

    def fit(self, data: Interactions, number: int) -> Any:
        """Fit a new model on these users."""
        model = new_model(self.model)
        _call(model.fit, data, key=fit_key(self.key, 2 * number), n_threads=self.n_threads)
        return model

    def serve(self, model: Any, profiles: Interactions, number: int) -> Any:
        """Return an object that scores items for these users, in the same way for members and non-members."""
        key = fit_key(self.key, 2 * number + 1)
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
    """Call the method with the options that its signature accepts."""
    parameters = inspect.signature(method).parameters
    return method(data, **{name: value for name, value in options.items() if name in parameters})


def score_blocks(served: Any, profiles: Interactions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks of rows and their scores of all items."""
    is_ours = isinstance(served, Recommender)
    if is_ours and not np.array_equal(served.interactions_.item_ids, profiles.item_ids):
        raise ValueError("query must return a model of the same items, in their order")
    # The user ids are looked up once: a look-up for each pair takes longer than the scores themselves.
    user_rows = served.interactions_.user_index(profiles.user_ids) if is_ours else None
    step = max(1, _BLOCK_CELLS // profiles.n_items)
    for start in range(0, profiles.n_users, step):
        rows = np.arange(start, min(start + step, profiles.n_users))
        yield rows, score_rows(served, profiles, rows) if user_rows is None else _score_rows(served, user_rows[rows])


def _score_rows(served: Recommender, user_rows: np.ndarray) -> np.ndarray:
    scores = served._fitted()._served().score_block(user_rows)
    if not np.isfinite(scores).all():
        raise ValueError(f"{type(served).__name__} returned a score that is not finite; has the model diverged?")
    return scores


def best_items(served: Any, profiles: Interactions, n: int, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `n` best items of every user and their scores, including items that the user has."""
    blocks = [ranking.top_k(scores, n, n_threads=n_threads) for _, scores in score_blocks(served, profiles)]
    items, scores = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return items, scores


def stated_guarantee(model: Any, against: str) -> tuple[tuple[float, float], ...]:
    """Return the finite (epsilon, delta) pairs of the fitted target's ledger, at delta 0 and at `_DELTAS`."""
    ledger = getattr(model, "ledger_", None)
    if ledger is None:
        return ()
    check_instance("ledger_", ledger, Ledger, "pass guarantee=[(epsilon, delta)]")
    pairs = []
    for delta in (0.0, *_DELTAS):
        try:
            epsilon = ledger.epsilon(against, delta)
        except UnsupportedEventError:  # an event without an accountant has no guarantee
            continue
        if np.isfinite(epsilon):
            pairs.append((float(epsilon), delta))
    return tuple(pairs)
