"""Checks of the interactions that `fit` and `with_users` get."""

import numpy as np

from fastfedrec.core.interface import choose_words
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.remote_users import RemoteUsers


def check_interactions(
    interactions: InteractionsLike,
    *,
    may_be_empty: bool = False,
    min_users: int = 0,
    item_ids: np.ndarray | None = None,
) -> Interactions:
    """Return the argument of `fit` as `Interactions`, or raise.

    A private fit passes `may_be_empty`, since its behaviour must not depend on whether a user has interactions.
    `min_users` counts users with and without data; `item_ids` are the items of a fitted model.
    """
    data = as_interactions("interactions", interactions, item_ids=item_ids, is_private=may_be_empty)
    needs_interactions = not ((may_be_empty and data.n_items) or isinstance(data, RemoteUsers))
    if needs_interactions and data.n_interactions == 0:
        raise ValueError(f"interactions must not be empty, got {data!r}")
    if data.n_users < min_users:
        raise ValueError(
            f"interactions must have at least one user, got {data!r}; list users without data in user_ids="
        )
    return data


def check_counts(
    model: object,
    interactions: InteractionsLike,
    *,
    is_private: bool,
    min_users: int = 0,
    ignores_values: bool = True,
) -> Interactions:
    """Return the argument of a `fit` for implicit feedback, with values that are counts or ignored, or raise.

    A private fit never warns about values, since one user's values may be the cause.  It refuses a value below 0, which
    is no count, before any draw, record or release.
    """
    data = check_interactions(interactions, may_be_empty=is_private, min_users=min_users)
    check_not_negative(model, data)
    if ignores_values and not is_private and data.values is not None and _vary(data.values):
        ignores = choose_words(f"{type(model).__name__} ignores", "models of implicit feedback ignore")
        binarize = choose_words("call data.binarize(3)", "add --binarize 3")
        warn(
            f"{ignores} values, which vary here: 1 counts like 5. If they are ratings, {binarize} to keep only "
            "those above 3, for example",
        )
    return data


def check_not_negative(model: object, data: Interactions) -> None:
    """Raise if a model of implicit feedback got a value below 0, which is no count."""
    if data.values is not None and len(data.values) and (lowest := float(data.values.min())) < 0:
        raise ValueError(
            f"{type(model).__name__} is for implicit feedback: values of interactions must be at least 0, got "
            f"{lowest:g}; "
            + choose_words(
                "call data.positive() or data.binarize(threshold) first, which keep positive",
                "add --binarize 0, which keeps positive",
            )
            + " feedback, or use a model of ratings"
        )


def _vary(values: np.ndarray) -> bool:
    """Return whether values above 0 differ."""
    for part in (values[:4096], values):  # the first values nearly always decide
        positive = part[part > 0]
        if len(positive) and bool((positive != positive[0]).any()):
            return True
    return False
