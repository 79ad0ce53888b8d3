"""Membership inference attacks on any model with `fit` and `score`.

Both attacks draw members and non-members from the given users, fit the model on the members alone, and query the fitted
model for all of them in the same way.  `fastfedrec.attacks` exports both; see docs/how-to/attack-a-model.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastfedrec.accounting.views import check_view
from fastfedrec.core.check import check_choice, check_flag, check_integer, check_real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.membership._figures import Estimate, RocCurve, ceiling_scores
from fastfedrec.studies.membership._losses import user_losses
from fastfedrec.studies.membership._results import MembershipResult
from fastfedrec.studies.membership._runs import (
    Query,
    Runs,
    best_items,
    draw_members,
    new_model,
    split_users,
    stated_guarantee,
)

__all__ = ["Estimate", "MembershipResult", "membership_loss", "membership_shadow"]

_FOREST = "membership.forest"
# Minimum number of users in a leaf of the forest; smaller leaves memorise single shadow users.
_MIN_LEAF_USERS = 5
# Maximum number of values of a feature that are one-hot encoded.
_MAX_FEATURE_COLUMNS = 64
# False positive rates at which the true positive rate is reported.
_RATES = (0.01, 0.001)
_LOSSES = ("rank", "cross_entropy", "squared")


def membership_shadow(
    model: Any,
    data: InteractionsLike,
    *,
    n_shadows: int = 4,
    n_shadow_users: int | None = None,
    shadow_members: float = 0.5,
    n_top: int = 10,
    features: Sequence[str] | None = None,
    history: bool = True,
    query: Query | None = None,
    threshold: float = 0.0,
    n_trees: int = 200,
    guarantee: Sequence[tuple[float, float]] | None = None,
    against: str = "public",
    alpha: float = 0.05,
    n_bootstrap: int = 1000,
    key: Key | None = None,
    n_threads: int = 0,
    show_progress: bool = False,
) -> MembershipResult:
    """Train a classifier on the answers of shadow models, and classify the target model's users with it.

    Parameters
    ----------
    model : object or callable
        Unfitted target model with a method ``fit(interactions)``, copied by its `get_params`; or a function that
        returns such a model.  `key` and `n_threads` are passed to `fit` if it accepts them.
    data : Interactions, SciPy sparse matrix or array, or frame
        The population.  Some of its users belong to the attacker; half of the remaining users become members of the
        target.
    n_shadows : int
        Number of shadow models that the attacker fits, each on different members.
    n_shadow_users : int or None
        Number of users with data known to the attacker; None for half of all users.
    shadow_members : float
        Share of the attacker's users that each shadow model is fitted on, between 0 and 1.
    n_top : int
        Number of best-scored items in each answer, including items that the user has.
    features : sequence of str or None
        Columns of `data.user_features` that the attacker knows; None for all.
    history : bool
        Whether the attacker also knows the items of each user.  If False, it sees only features and answers.
    query : callable or None
        ``query(fitted_model, profiles, key)`` returns an object with `score` or `score_items` for these users.
        None uses the model's own `personalize`, `with_users` or `serve`, or else the fitted model itself.
    threshold : float
        A user has an item if its value is above this threshold.
    n_trees : int
        Number of trees of the random forest.
    guarantee : sequence of (float, float) or None
        Guarantee of the target, as (epsilon, delta) for replacing all data of one user; None reads the target's
        `ledger_`, if it has one.
    against : {"server", "shuffled_server", "public", "key_holder"} or {"local", "shuffle", "central", "aggregator"}
        View for which the guarantee is read, as in `Ledger.epsilon`; the attacks see the final model alone.
    alpha : float
        Approximate probability that an interval misses the true value; in (0, .5].
    n_bootstrap : int
        Number of bootstrap replicates for the intervals of advantage and true positive rates, at least 100.
    key : Key or None
        Source of every draw; a seed's key repeats the attack bit for bit, None draws from entropy.
    n_threads : int
        Number of threads; 0 for all.
    show_progress : bool
        Draw a progress bar over the models (needs tqdm).

    Returns
    -------
    MembershipResult
        Figures of the attack.  Its control is the same forest on profiles alone, which must be at chance.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.
    TypeError
        If the model answers only for users it was fitted on and there is no `query`.

    Notes
    -----
    The forest sees the features: one column per value, or the values' codes if there are more than 64.  With `history`
    it also sees the number of the user's items and their mean popularity.  For each of the best items it sees the
    item's index, its popularity among the attacker's users, its score, and with `history` whether the user has it.
    Members are exactly half of the target's users, drawn at random.  A score that does not depend on the fit therefore
    has an AUC of .5 in expectation.

    References
    ----------
    .. [1] Shokri, Stronati, Song, Shmatikov, "Membership inference attacks against machine learning models", IEEE
       S&P 2017.
    .. [2] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", The VLDB
       Journal, 2021, section 4.6.

    Examples
    --------
    >>> from fastfedrec import Key, Popularity, attacks, datasets
    >>> data = datasets.generate_implicit(200, 50, key=Key.from_seed(1))
    >>> found = attacks.membership_shadow(Popularity(), data, n_shadows=2, key=Key.from_seed(1))
    >>> found.n_members, found.n_non_members, found.auc.low < 0.5 < found.auc.high
    (50, 50, True)
    """
    forest = _import_forest()
    data = as_interactions("data", data)
    checked = _CheckedOptions(model, data, query, threshold, guarantee, against, alpha, n_bootstrap, key, n_threads)
    n_shadows = check_integer("n_shadows", n_shadows, low=1)
    shadow_members = check_real("shadow_members", shadow_members, low=0.0, high=1.0, exclusive=True)
    n_top = check_integer("n_top", n_top, low=1, high=data.n_items)
    n_trees = check_integer("n_trees", n_trees, low=1)
    history, show_progress = check_flag("history", history), check_flag("show_progress", show_progress)
    attacker_rows, target_rows = split_users(data, _n_aside("n_shadow_users", n_shadow_users, data), checked.key)
    shadow_data, target_data = data.select_users(attacker_rows), data.select_users(target_rows)
    # The attacker knows popularity among its own users alone, so the target's users are not counted.
    popularity = np.log1p(shadow_data.binarize(checked.threshold).interactions_per_item())
    profiles = [
        _profile_columns(part, data, _check_features(features, data), popularity, history, checked.threshold)
        for part in (shadow_data, target_data)
    ]
    # Answers of each shadow model and then of the target, with the membership of their users.
    answers: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for number in progress_rounds(n_shadows + 1, show=show_progress, description="shadow models", unit="model"):
        model_data, share = (shadow_data, shadow_members) if number < n_shadows else (target_data, 0.5)
        labels.append(draw_members(model_data.n_users, share, checked.key, number))
        fitted = checked.runs.fit(model_data.select_users(labels[-1]), number)
        items, scores = best_items(checked.runs.serve(fitted, model_data, number), model_data, n_top, checked.n_threads)
        parts = [items, popularity[items], scores]
        if history:
            parts.append(_has(model_data.binarize(checked.threshold), items))
        answers.append(np.concatenate(parts, axis=1))
    predictions = []
    # The second forest is the control: it is trained on profiles without any model's answers.
    for with_answers in (True, False):
        rows = [
            np.concatenate([profiles[0], model_answers], axis=1) if with_answers else profiles[0]
            for model_answers in answers[:-1]
        ]
        # Balanced weights make the scores independent of the share of members among shadow users.
        trees = forest(
            n_trees, min_samples_leaf=_MIN_LEAF_USERS, class_weight="balanced", n_jobs=checked.n_threads,
            random_state=int(checked.key.words(_FOREST, round=int(with_answers), size=1)[0] >> np.uint64(32)),
        )  # fmt: skip
        trees.fit(np.concatenate(rows), np.concatenate(labels[:-1]))
        trees.n_jobs = 1  # several threads would add up the trees in any order
        forest_input = np.concatenate([profiles[1], answers[-1]], axis=1) if with_answers else profiles[1]
        predictions.append((trees.predict_proba(forest_input)[:, 1], forest_input))
    (scores, forest_input), (control, _) = predictions
    name = f"shadow models ({n_shadows}) and a random forest"
    return checked.result(name, fitted, scores, labels[-1], target_data.user_ids, control, forest_input)


def membership_loss(
    model: Any,
    data: InteractionsLike,
    *,
    loss: str | Callable[[np.ndarray, Interactions], np.ndarray] = "rank",
    n_references: int = 2,
    n_reference_users: int | None = None,
    query: Query | None = None,
    threshold: float = 0.0,
    guarantee: Sequence[tuple[float, float]] | None = None,
    against: str = "public",
    alpha: float = 0.05,
    n_bootstrap: int = 1000,
    key: Key | None = None,
    n_threads: int = 0,
    show_progress: bool = False,
) -> MembershipResult:
    """Infer membership from the model's loss on each user's items, compared with the loss of reference models.

    Parameters
    ----------
    model, data : object
        As for `membership_shadow`.
    loss : {"rank", "cross_entropy", "squared"} or callable
        "rank": the mean rank of the user's items as a share of all items, for scores on any scale.
        "cross_entropy": the mean over the user's items plus the mean over all remaining items, with scores as logits.
        "squared": the mean squared error of scores as ratings.  A function receives a block of scores and their
        profiles, and returns one loss per user.
    n_references : int
        Number of reference models fitted on the attacker's users.  Their mean loss on a user measures how hard that
        user is to predict.  With 0 the attack uses the loss itself [1]_, with 1 or more the difference [2]_.
    n_reference_users : int or None
        Number of users with data known to the attacker for the reference models; None for half of all users, or for
        no users if `n_references` is 0.
    query, threshold, guarantee, against, alpha, n_bootstrap, key, n_threads, show_progress : object
        As for `membership_shadow`.

    Returns
    -------
    MembershipResult
        Figures of the attack.  Its control attacks a reference model instead of the target and must be at chance.
        Users without any item above `threshold` are excluded.

    Raises
    ------
    TypeError
        If the model answers only for users it was fitted on and there is no `query`.

    References
    ----------
    .. [1] Yeom, Giacomelli, Fredrikson, Jha, "Privacy risk in machine learning: analyzing the connection to
       overfitting", CSF 2018.
    .. [2] Watson, Guo, Cormode, Sablayrolles, "On the importance of difficulty calibration in membership inference
       attacks", ICLR 2022.

    Examples
    --------
    >>> from fastfedrec import EASE, Key, attacks, datasets
    >>> data = datasets.generate_implicit(200, 50, key=Key.from_seed(1))
    >>> attacks.membership_loss(EASE(1.0), data, key=Key.from_seed(1)).beats_chance
    True
    """
    data = as_interactions("data", data)
    checked = _CheckedOptions(model, data, query, threshold, guarantee, against, alpha, n_bootstrap, key, n_threads)
    if not callable(loss):
        check_choice("loss", loss, _LOSSES)
    n_references, show_progress = (
        check_integer("n_references", n_references, low=0),
        check_flag("show_progress", show_progress),
    )
    has_items = data.binarize(checked.threshold).interactions_per_user() > 0
    data = _check_enough(data.select_users(has_items))
    if n_references == 0:
        if n_reference_users is not None:
            raise ValueError("n_reference_users must be None where n_references is 0: no model would be fitted on them")
        n_aside = 0
    else:
        n_aside = _n_aside("n_reference_users", n_reference_users, data)
    attacker_rows, target_rows = split_users(data, n_aside, checked.key)
    target_data = data.select_users(target_rows)
    # Numbers below `n_references` draw the reference models, so this draw is independent of them.
    is_member = draw_members(len(target_rows), 0.5, checked.key, n_references)
    losses = []
    for number in progress_rounds(n_references + 1, show=show_progress, description="references", unit="model"):
        # Reference models get the target's number of users if available, because the size of its data is public.
        fit_data = target_data.select_users(is_member)
        if number < n_references:
            share = min(fit_data.n_users / len(attacker_rows), 1.0)
            reference_members = draw_members(len(attacker_rows), share, checked.key, number)
            fit_data = data.select_users(attacker_rows[reference_members])
        fitted = checked.runs.fit(fit_data, number)
        served = checked.runs.serve(fitted, target_data, number)
        losses.append(user_losses(served, target_data, loss, checked.threshold, checked.n_threads))
    *references, target = losses
    scores = np.mean(references, axis=0) - target if references else -target
    # The control replaces the target by the first reference model, so it must be at chance.
    control = None
    if references:
        control = (np.mean(references[1:], axis=0) if len(references) > 1 else 0.0) - references[0]
    name = f"loss ({loss if isinstance(loss, str) else 'own'}, {n_references} references)"
    # The input of the attack for each user, which the ceiling is computed from.
    rows = np.column_stack([target, scores])
    return checked.result(name, fitted, scores, is_member, target_data.user_ids, control, rows)


class _CheckedOptions:
    """Checked arguments that both attacks share."""

    def __init__(
        self,
        model: Any,
        data: Interactions,
        query: Query | None,
        threshold: float,
        guarantee: Sequence[tuple[float, float]] | None,
        against: str,
        alpha: float,
        n_bootstrap: int,
        key: Key | None,
        n_threads: int,
    ):
        _check_enough(data)
        if query is not None and not callable(query):
            raise TypeError(f"query must be a function or None, got {type(query).__name__}")
        new_model(model)
        self.threshold = check_real("threshold", threshold, low=0.0)
        self.alpha = check_real("alpha", alpha, low=0.0, high=0.5, exclusive=True)
        self.n_bootstrap = check_integer("n_bootstrap", n_bootstrap, low=100)
        check_view("against", against)
        self.against = against
        self.guarantee = None if guarantee is None else _check_guarantee(guarantee)
        self.key, self.n_threads = resolve_key(key), resolve_n_threads(n_threads)
        self.runs = Runs(model, query, self.key, self.n_threads)

    def result(
        self,
        name: str,
        fitted: Any,
        scores: np.ndarray,
        is_member: np.ndarray,
        user_ids: np.ndarray,
        control: np.ndarray | None,
        rows: np.ndarray,
    ) -> MembershipResult:
        """Compute all figures of the attack's scores and of its control; `rows` are the attack's whole input."""
        stated = stated_guarantee(fitted, self.against) if self.guarantee is None else self.guarantee
        # `best` knows the membership, so its figures are the ceiling of any function of `rows`.
        curve, best = RocCurve(scores, is_member), ceiling_scores(rows, is_member)
        advantage, *true_positive_rates = curve.resampled(_RATES, self.n_bootstrap, self.alpha, self.key)
        return MembershipResult(
            attack=name,
            target=type(fitted).__name__,
            auc=curve.auc(self.alpha),
            control=None if control is None else RocCurve(control, is_member).auc(self.alpha),
            accuracy=curve.accuracy(),
            advantage=advantage,
            true_positive_rates=dict(zip(_RATES, true_positive_rates, strict=True)),
            ceiling=RocCurve(best, is_member).auc(self.alpha).value,
            ceiling_accuracy=float(np.maximum(best, 1 - best).mean()),
            guarantee=stated,
            scores=scores,
            is_member=is_member,
            user_ids=user_ids,
            alpha=self.alpha,
        )


def _check_enough(data: Interactions) -> Interactions:
    if data.n_users < 8:
        raise ValueError(
            f"data must have at least 8 users with an item, got {data.n_users}: 4 for the attacker, 4 to attack"
        )
    return data


def _import_forest() -> Any:
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError:
        raise ImportError("membership_shadow needs scikit-learn: pip install 'fastfedrec[attacks]'") from None
    return RandomForestClassifier


def _check_guarantee(guarantee: Any) -> tuple[tuple[float, float], ...]:
    pairs = []
    for pair in guarantee:
        if np.shape(pair) != (2,):
            raise ValueError(f"guarantee must hold pairs (epsilon, delta), got {pair!r}")
        epsilon, delta = pair
        pairs.append(
            (
                check_real("epsilon of guarantee", epsilon, low=0.0),
                check_real("delta of guarantee", delta, low=0.0, high=1.0),
            )
        )
    return tuple(pairs)


def _n_aside(name: str, n: int | None, data: Interactions) -> int:
    return data.n_users // 2 if n is None else check_integer(name, n, low=2, high=data.n_users - 2)


def _check_features(features: Sequence[str] | None, data: Interactions) -> list[str]:
    if features is None:
        return list(data.user_features)
    if isinstance(features, str):
        raise TypeError(f"features must be a list of names, got the text {features!r}")
    if unknown := [name for name in features if name not in data.user_features]:
        raise KeyError(f"features names {unknown}; the users of data have {list(data.user_features)}")
    return list(features)


def _profile_columns(
    part: Interactions, data: Interactions, features: list[str], popularity: np.ndarray, history: bool, threshold: float
) -> np.ndarray:
    """Return the columns that the attacker knows of each user without any model."""
    # A constant column keeps the matrix non-empty without features and history.
    columns = [np.zeros((part.n_users, 1))]
    for name in features:
        values = np.unique(data.user_features[name])
        codes = np.searchsorted(values, part.user_features[name])
        has_many_values = len(values) > _MAX_FEATURE_COLUMNS
        columns.append(codes[:, None].astype(np.float64) if has_many_values else np.eye(len(values))[codes])
    if history:
        profiles = part.binarize(threshold)
        lengths = profiles.interactions_per_user()
        total = np.bincount(
            np.repeat(np.arange(profiles.n_users), lengths), popularity[profiles.indices], profiles.n_users
        )
        columns.append(np.column_stack([np.log1p(lengths), total / np.maximum(lengths, 1)]))
    return np.concatenate(columns, axis=1)


def _has(profiles: Interactions, items: np.ndarray) -> np.ndarray:
    """Return a mask of the given items that each user has."""
    # Each (user, item) pair is encoded as one integer, so that one `isin` compares all pairs.
    stored = (
        np.repeat(np.arange(profiles.n_users), profiles.interactions_per_user()) * profiles.n_items + profiles.indices
    )
    return np.isin(np.arange(profiles.n_users)[:, None] * profiles.n_items + items, stored)
