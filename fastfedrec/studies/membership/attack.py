"""Membership inference: whose data was a model fitted on?  For any model with `fit` and `score`.

Both attacks draw members and others from the users at hand, fit the model on the members alone, and ask the fitted
model about everybody in the same way.  `fastfedrec.attacks` offers them too; docs/how-to/attack-a-model.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastfedrec.accounting.views import VIEWS
from fastfedrec.compute.ranking import held_out_ranks
from fastfedrec.core.arrays import exceed
from fastfedrec.core.check import check_choice, check_flag, check_integer, check_real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.membership._figures import Estimate, RocCurve, ceiling_scores
from fastfedrec.studies.membership._results import MembershipResult
from fastfedrec.studies.membership._runs import (
    Query,
    Runs,
    best_items,
    draw_members,
    new_model,
    score_blocks,
    split_users,
    stated_guarantee,
)

__all__ = ["Estimate", "MembershipResult", "membership_loss", "membership_shadow"]

_FOREST = "membership.forest"
_LEAF = 5  # users in a leaf of the forest, at least: fewer learn shadow users by heart
_MOST_VALUES = 64  # of a feature, that get a column each
_RATES = (0.01, 0.001)  # of false alarms, at which hits are counted
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
    """Learn on shadow models what a model's answers to its own users look like, and look for it in the target's.

    Parameters
    ----------
    model : object or callable
        What is attacked, not fitted: something with ``fit(interactions)``, copied by its `get_params`; or a function
        that returns such a model.  `key` and `n_threads` are handed to `fit` where it takes them.
    data : Interactions, SciPy sparse matrix or array, or frame
        The population.  Some of its users belong to the attacker; half of the others become members of the target.
    n_shadows : int
        Models that the attacker fits, each on other members.
    n_shadow_users : int or None
        Users whose data the attacker has; None for half of all.
    shadow_members : float
        Share of these that each shadow model is fitted on, between 0 and 1.
    n_top : int
        Items of each answer: the best ones, whether the user has them or not.
    features : sequence of str or None
        Columns of `data.user_features` that the attacker knows; None for all.
    history : bool
        Whether the attacker also knows which items a user has; without, it sees features and answers alone.
    query : callable or None
        ``query(fitted_model, profiles, key)`` returns what answers for these users, with `score` or `score_items`.
        None takes the model's own `personalize`, `with_users` or `serve`; failing these, the fitted model itself.
    threshold : float
        An item with a value above it is one that a user has.
    n_trees : int
        Of the random forest.
    guarantee : sequence of (float, float) or None
        What the target is known to keep, as (epsilon, delta) for replacing all data of one user; None reads the
        target's `ledger_`, if it has one.
    against : {"server", "shuffled_server", "public", "key_holder"}
        Whose view of that ledger holds; the attacks see the final model alone.
    alpha : float
        Each interval misses with about this probability; in (0, .5].
    n_bootstrap : int
        Replicates for the intervals of advantage and hits, at least 100.
    key : Key or None
        Source of every draw; a seed's key repeats the attack bit for bit, None draws from entropy.
    n_threads : int
        0 for all.
    show_progress : bool
        Draw a progress bar over the models (needs tqdm).

    Returns
    -------
    MembershipResult
        Its control is the same forest on profiles alone, which must be at chance.

    Raises
    ------
    ImportError
        Without scikit-learn.
    TypeError
        The model answers only for users it was fitted on, and there is no `query`.

    Notes
    -----
    The forest sees the features (one column a value, or their numbers where there are more than 64), with `history` how
    many items the user has and how popular they are, and of each of the best items its number, its popularity among
    the attacker's users, its score, and with `history` whether the user has it.  Members are exactly half of the
    target's users, drawn at random, so whatever does not depend on the fit has an AUC of .5 in expectation.

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
    >>> found.n_members, found.n_others, found.auc.low < 0.5 < found.auc.high
    (50, 50, True)
    """
    forest = _import_forest()
    data = as_interactions("data", data)
    common = _Common(model, data, query, threshold, guarantee, against, alpha, n_bootstrap, key, n_threads)
    n_shadows = check_integer("n_shadows", n_shadows, low=1)
    shadow_members = check_real("shadow_members", shadow_members, low=0.0, high=1.0, exclusive=True)
    n_top = check_integer("n_top", n_top, low=1, high=data.n_items)
    n_trees = check_integer("n_trees", n_trees, low=1)
    history, show_progress = check_flag("history", history), check_flag("show_progress", show_progress)
    aside, targets = split_users(data, _n_aside("n_shadow_users", n_shadow_users, data), common.key)
    shadow_data, target_data = data.select_users(aside), data.select_users(targets)
    popularity = np.log1p(shadow_data.binarize(common.threshold).interactions_per_item())
    profiles = [
        _profile_columns(part, data, _check_features(features, data), popularity, history, common.threshold)
        for part in (shadow_data, target_data)
    ]
    seen: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for number in progress_rounds(n_shadows + 1, show=show_progress, description="shadow models", unit="model"):
        own, share = (shadow_data, shadow_members) if number < n_shadows else (target_data, 0.5)
        labels.append(draw_members(own.n_users, share, common.key, number))
        fitted = common.runs.fit(own.select_users(labels[-1]), number)
        items, scores = best_items(common.runs.serve(fitted, own, number), own, n_top, common.n_threads)
        parts = [items, popularity[items], scores]
        if history:
            parts.append(_has(own.binarize(common.threshold), items))
        seen.append(np.concatenate(parts, axis=1))
    found = []
    for with_answers in (True, False):
        rows = [
            np.concatenate([profiles[0], answers], axis=1) if with_answers else profiles[0] for answers in seen[:-1]
        ]
        trees = forest(
            n_trees, min_samples_leaf=_LEAF, class_weight="balanced", n_jobs=common.n_threads,
            random_state=int(common.key.words(_FOREST, round=int(with_answers), size=1)[0] >> np.uint64(32)),
        )  # fmt: skip
        trees.fit(np.concatenate(rows), np.concatenate(labels[:-1]))
        trees.n_jobs = 1  # several threads would add up the trees in any order
        asked = np.concatenate([profiles[1], seen[-1]], axis=1) if with_answers else profiles[1]
        found.append((trees.predict_proba(asked)[:, 1], asked))
    (scores, asked), (control, _) = found
    name = f"shadow models ({n_shadows}) and a random forest"
    return common.result(name, fitted, scores, labels[-1], target_data.user_ids, control, asked)


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
    """Hold the users whose own items a model predicts well for members, compared with models that never saw them.

    Parameters
    ----------
    model, data : object
        As for `membership_shadow`.
    loss : {"rank", "cross_entropy", "squared"} or callable
        "rank": the mean rank of the user's items among all, as a share of all: for scores on any scale.
        "cross_entropy": the mean over own items and the mean over all others, of scores as logits.  "squared": the
        mean squared error of scores as ratings.  Or a function of a block of scores and of the profiles it is for,
        which returns one loss a user.
    n_references : int
        Models fitted on the attacker's own users, whose mean loss of a user is how hard that user is; 0 takes the
        bare loss as it is [1]_, 1 or more the difference [2]_.
    n_reference_users : int or None
        Users whose data the attacker has for that; None for half of all, or none without references.
    query, threshold, guarantee, against, alpha, n_bootstrap, key, n_threads, show_progress : object
        As for `membership_shadow`.

    Returns
    -------
    MembershipResult
        Its control puts a reference model in the target's place, and must be at chance.  Users without any item above
        `threshold` are left out.

    Raises
    ------
    TypeError
        The model answers only for users it was fitted on, and there is no `query`.

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
    common = _Common(model, data, query, threshold, guarantee, against, alpha, n_bootstrap, key, n_threads)
    if not callable(loss):
        check_choice("loss", loss, _LOSSES)
    n_references, show_progress = (
        check_integer("n_references", n_references, low=0),
        check_flag("show_progress", show_progress),
    )
    has_own = data.binarize(common.threshold).interactions_per_user() > 0
    data = _check_enough(data.select_users(has_own))
    if n_references == 0:
        if n_reference_users is not None:
            raise ValueError("n_reference_users must be None where n_references is 0: there is no model to fit on them")
        n_aside = 0
    else:
        n_aside = _n_aside("n_reference_users", n_reference_users, data)
    aside, targets = split_users(data, n_aside, common.key)
    target_data = data.select_users(targets)
    is_member = draw_members(len(targets), 0.5, common.key, n_references)
    losses = []
    for number in progress_rounds(n_references + 1, show=show_progress, description="references", unit="model"):
        # As many users as the target has, where there are so many: the size of its data is public.
        own = target_data.select_users(is_member)
        if number < n_references:
            share = min(own.n_users / len(aside), 1.0)
            drawn = draw_members(len(aside), share, common.key, number)
            own = data.select_users(aside[drawn])
        fitted = common.runs.fit(own, number)
        served = common.runs.serve(fitted, target_data, number)
        losses.append(_losses(served, target_data, loss, common.threshold, common.n_threads))
    *references, target = losses
    scores = np.mean(references, axis=0) - target if references else -target
    control = None
    if references:
        control = (np.mean(references[1:], axis=0) if len(references) > 1 else 0.0) - references[0]
    name = f"loss ({loss if isinstance(loss, str) else 'own'}, {n_references} references)"
    rows = np.column_stack([target, scores])
    return common.result(name, fitted, scores, is_member, target_data.user_ids, control, rows)


class _Common:
    """What both attacks are given, checked."""

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
        self.against = check_choice("against", against, tuple(VIEWS))
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
        """Count how good scores are: of the attack, and of its control if it has one; it looks at `rows` alone."""
        stated = stated_guarantee(fitted, self.against) if self.guarantee is None else self.guarantee
        curve, best = RocCurve(scores, is_member), ceiling_scores(rows, is_member)
        advantage, *hits = curve.resampled(_RATES, self.n_bootstrap, self.alpha, self.key)
        return MembershipResult(
            attack=name,
            target=type(fitted).__name__,
            auc=curve.auc(self.alpha),
            control=None if control is None else RocCurve(control, is_member).auc(self.alpha),
            accuracy=curve.accuracy(),
            advantage=advantage,
            hits=dict(zip(_RATES, hits, strict=True)),
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
    found = []
    for pair in guarantee:
        if np.shape(pair) != (2,):
            raise ValueError(f"guarantee must hold pairs (epsilon, delta), got {pair!r}")
        epsilon, delta = pair
        found.append(
            (
                check_real("epsilon of guarantee", epsilon, low=0.0),
                check_real("delta of guarantee", delta, low=0.0, high=1.0),
            )
        )
    return tuple(found)


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
    """What the attacker knows of each user without any model."""
    columns = [np.zeros((part.n_users, 1))]
    for name in features:
        values = np.unique(data.user_features[name])
        codes = np.searchsorted(values, part.user_features[name])
        many = len(values) > _MOST_VALUES
        columns.append(codes[:, None].astype(np.float64) if many else np.eye(len(values))[codes])
    if history:
        own = part.binarize(threshold)
        lengths = own.interactions_per_user()
        total = np.bincount(np.repeat(np.arange(own.n_users), lengths), popularity[own.indices], own.n_users)
        columns.append(np.column_stack([np.log1p(lengths), total / np.maximum(lengths, 1)]))
    return np.concatenate(columns, axis=1)


def _has(own: Interactions, items: np.ndarray) -> np.ndarray:
    """Which of these items each user has."""
    stored = np.repeat(np.arange(own.n_users), own.interactions_per_user()) * own.n_items + own.indices
    return np.isin(np.arange(own.n_users)[:, None] * own.n_items + items, stored)


def _losses(served: Any, profiles: Interactions, loss: Any, threshold: float, n_threads: int) -> np.ndarray:
    found = []
    for rows, scores in score_blocks(served, profiles):
        part = profiles.select_users(rows)
        if callable(loss):
            block = np.asarray(loss(scores, part), dtype=np.float64)
            if block.shape != (len(rows),) or not np.isfinite(block).all():
                raise ValueError(f"loss must return one finite number a user, {len(rows)} of them, got {block!r}")
        else:
            block = _loss_of_block(scores, part, loss, threshold, n_threads)
        found.append(block)
    return np.concatenate(found)


def _loss_of_block(scores: np.ndarray, part: Interactions, loss: str, threshold: float, n_threads: int) -> np.ndarray:
    own = part._keep(exceed(part.values_or_ones(), threshold))
    lengths = own.interactions_per_user()
    rows = np.repeat(np.arange(own.n_users), lengths)
    own_scores = scores[rows, own.indices]
    if loss == "rank":
        counts = np.full(len(scores), own.n_items)
        values = (held_out_ranks(own_scores, scores, counts, rows=rows, n_threads=n_threads) - 1) / own.n_items
    elif loss == "squared":
        values = (own_scores - own.values_or_ones()) ** 2
    else:
        values = np.logaddexp(0.0, -own_scores)
        kept = np.logaddexp(0.0, own_scores)
        others = np.logaddexp(0.0, scores).sum(axis=1) - np.bincount(rows, kept, len(scores))
        values = values + (others / np.maximum(own.n_items - lengths, 1))[rows]
    return np.bincount(rows, values, len(scores)) / lengths
