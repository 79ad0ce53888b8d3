"""What `fit` and `with_users` take: the door to `Interactions`, and what models say of values."""

import sys
import warnings

import numpy as np

from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.remote_users import RemoteUsers


def check_interactions(
    interactions: InteractionsLike,
    *,
    may_be_empty: bool = False,
    least_users: int = 0,
    item_ids: np.ndarray | None = None,
) -> Interactions:
    """Check what `fit` was given, and make `Interactions` of it.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        What the caller passed, as `fastfedrec.data.conversion.as_interactions` takes it.
    may_be_empty : bool
        Whether nobody need have anything: what a private fit releases must not depend on whether somebody has.
    least_users : int
        How many users there must be, with or without data.
    item_ids : ndarray or None
        Items that a fitted model has.

    Returns
    -------
    Interactions
        With items, and unless it may be empty, with interactions.
    """
    data = as_interactions("interactions", interactions, item_ids=item_ids, is_private=may_be_empty)
    has_to_say = not ((may_be_empty and data.n_items) or isinstance(data, RemoteUsers))
    if has_to_say and data.n_interactions == 0:
        raise ValueError(f"interactions must not be empty, got {data!r}")
    if data.n_users < least_users:
        raise ValueError(f"interactions must have a user, whose number is public, got {data!r}")
    return data


def check_counts(
    model: object,
    interactions: InteractionsLike,
    *,
    is_private: bool,
    least_users: int = 0,
    ignores_values: bool = True,
) -> Interactions:
    """Check what the `fit` of a model of implicit feedback was given, whose values are counts, or are not looked at.

    Parameters
    ----------
    model : fastfedrec.systems.recommender.Recommender
        For messages.
    interactions : Interactions, SciPy sparse matrix or array, or frame
        What the caller passed.
    is_private : bool
        Whether the fit has a guarantee: then it says nothing about values, since one user's may be why there is
        something to say.  A value below 0 is refused all the same, before anything is drawn, recorded or released:
        it is no count, and belongs to other data.
    least_users : int
        As for `check_interactions`.
    ignores_values : bool
        Whether all that are above 0 count alike.

    Returns
    -------
    Interactions
        Without a value below 0.

    Warns
    -----
    UserWarning
        Values vary, and are ignored, by a model without a guarantee.
    """
    data = check_interactions(interactions, may_be_empty=is_private, least_users=least_users)
    check_not_negative(model, data)
    if ignores_values and not is_private and data.values is not None and _vary(data.values):
        name = type(model).__name__
        warnings.warn(
            f"{name} looks at which items each user has, and not at values, which vary here: all above 0 count alike; "
            "call data.binarize(threshold) first, to say which count (in a shell --binarize X)",
            stacklevel=_level_of_caller(),
        )
    return data


def check_not_negative(model: object, data: Interactions) -> None:
    """Raise where a model of implicit feedback was given a value below 0, which is no count.

    Parameters
    ----------
    model : fastfedrec.systems.recommender.Recommender
        For messages.
    data : Interactions
        What it was given.

    Raises
    ------
    ValueError
        The lowest value is named, and what to do.
    """
    if data.values is not None and len(data.values) and (lowest := float(data.values.min())) < 0:
        raise ValueError(
            f"{type(model).__name__} is for implicit feedback: values of interactions must be at least 0, got "
            f"{lowest:g}; call data.positive() or data.binarize(threshold) first, which keep what people like, or use "
            "a model of ratings"
        )


def _level_of_caller() -> int:
    """How far up the code is that called the package, whatever a model's `fit` is wrapped in."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fastfedrec."):
        frame, level = frame.f_back, level + 1
    return level


def _vary(values: np.ndarray) -> bool:
    """Whether values above 0 differ."""
    for part in (values[:4096], values):  # nearly always the first of them tell
        positive = part[part > 0]
        if len(positive) and bool((positive != positive[0]).any()):
            return True
    return False
