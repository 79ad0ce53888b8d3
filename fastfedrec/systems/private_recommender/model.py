"""PrivateRecommender: the system that a rule on public numbers chooses, fitted at a true epsilon.

It contains the fitted model of the system that `advise` chooses, and returns that model's recommendations.
"""

import copy
import inspect
import os
from collections.abc import Sequence
from typing import Any, Self

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.accounting.views import TRUST_VIEWS, VIEWS
from fastfedrec.core.memory import Arrays, Sizes
from fastfedrec.core.parameters import choice, declares_parameters, real
from fastfedrec.core.randomness import Key
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import ItemFeaturesLike
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import DeploymentTerms
from fastfedrec.systems._aggregation import check_honest_fraction
from fastfedrec.systems._checkpoint import open_checkpoint
from fastfedrec.systems._featured import align_features
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._pair_matrix import Decision
from fastfedrec.systems._parameters import (
    TRUSTED_PARTIES,
    dropout_share,
    honest_share,
    public_features,
    public_users,
    run_delta,
)
from fastfedrec.systems._saved import SavedModel
from fastfedrec.systems._served import Served
from fastfedrec.systems._transaction import fit_inside, transactional
from fastfedrec.systems.claims import note_user_count
from fastfedrec.systems.private_recommender._rule import SELF_DECIDING, lack_of_lists
from fastfedrec.systems.private_recommender.advice import Advice
from fastfedrec.systems.private_recommender.choice import MAX_EPSILON, advise
from fastfedrec.systems.private_recommender.recipes import RECIPES, plan_run
from fastfedrec.systems.recommender import Recommender
from fastfedrec.systems.registry import make_system, system_class

__all__ = ["PrivateRecommender"]

_MAX_USERS = 2**31 - 1
_PLANNED = {recipe.system for recipe in RECIPES}
_CHOSEN = _PLANNED | {"Random"}


@declares_parameters
class PrivateRecommender(Recommender):
    """The system that a rule on public numbers chooses, at an epsilon that is the true cost of the whole run.

    **Guarantee.** The whole run is (`epsilon`, `delta`)-differentially private for replacing all data of one user
    ("replace", privacy unit "user").  With ``trust="central"``, this holds for all releases, against all parties but
    the server, which sees the data ("central").  With ``trust="shuffle"``, it holds for all messages of a user, against
    the server and the public, behind a shuffler that mixes them, reveals no sender, and is trusted with the data.  With
    ``trust="local"``, it holds for all reports of a user, and only the user's device is trusted.  With
    ``trust="aggregator"``, it holds for all releases, against the server as well, if a share `honest_fraction` of the
    nodes adds noise to the masked numbers and does not reveal it ("aggregator").  The list of items and the number of
    users are public.  The choice depends on no interaction, so it has no privacy cost.

    Attributes
    ----------
    chosen_ : str
        Python expression of the system and its setting, after "popularity, by" if all users get the same list.
    reason_ : str
        Reason of the choice and, for a system that decides by its releases, their outcome, in plain sentences.
    n_users_ : int
        Public number of users.
    is_personal_ : bool
        Whether users receive scores that depend on their items.
    decision_ : Decision or None
        Measurement by which the system chose popularity or a personal model, with its error; the ledger has its cost.
        None for a system without a measurement, and for a model from a file of 0.2.0 or before.
    model_ : Recommender
        Fitted model of the chosen system.
    advice_ : Advice
        All offers that were compared, as `fastfedrec.advise.advise` returns them.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user, the chosen system, and the reason.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Bytes that each user received and sent, if the system has rounds.

    See Also
    --------
    fastfedrec.DPGram : The usual choice with a trusted server.

    Notes
    -----
    The system is chosen by the numbers of users and items, `epsilon`, `delta` and `trust` alone, by the rule of
    `fastfedrec.advise.advise`.  DPGram and ShuffledGram then choose popularity or a personal model by their
    releases.  If that is popularity, all users get the same list.

    Examples
    --------
    >>> from fastfedrec import Key, PrivateRecommender, datasets
    >>> data = datasets.generate_implicit(10_000, 300, key=Key.from_seed(1), mean_interactions=30)
    >>> model = PrivateRecommender(epsilon=2.0).fit(data, key=Key.from_seed(2))
    >>> type(model.model_).__name__, model.is_personal_
    ('DPGram', True)
    >>> model.ledger_.epsilon("public") <= 2.0
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    """

    _deployment = DeploymentTerms()
    _serves = Served  # of the chosen system

    epsilon: float = real(1.0, above=0.0, high=MAX_EPSILON).doc("""
        Epsilon of the whole run, in nats, for replacing all data of one user; at most a million.""")
    delta: float = run_delta()
    trust: str = choice("central", TRUSTED_PARTIES).doc("""
        Party that users trust: the server, a shuffler, only their own device, or an honest share of the nodes.
        With "local" all users get the same list.""")
    n_users: int | None = public_users(
        _MAX_USERS, "The choice depends on it.  Without a trusted server, it must be the number of rows."
    )
    row_length: float | None = real(None, above=0.0, also=[None]).doc("""
        Deprecated and ignored: the systems with a trusted server or a shuffler measure by their releases whether
        pairs of items are better than popularity.""")
    item_features: ItemFeaturesLike | None = public_features(
        "They go to the chosen system; if it takes none, the ledger states this."
    )
    honest_fraction: float | None = honest_share()
    dropout_fraction: float = dropout_share()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_honest_fraction(self.honest_fraction, is_needed=self.trust == "aggregator", of=f"trust={self.trust!r}")

    def _objection_to_nodes(self) -> str | None:
        if self.trust != "central":
            return "trust must be 'central': for other trust models, deploy the system that advise names"
        return None

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Choose a system by public numbers, and fit it.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data.  Entries with value 0 are not interactions, other values do not matter, and a value below 0
            raises.

        Raises
        ------
        ValueError
            `n_users` differs from the number of rows and the server is not trusted, dropouts may leave no honest node,
            or there is an engine and the chosen system has no rounds.

        Warns
        -----
        FutureWarning
            `row_length` is not None.
        UserWarning
            No system fits the arguments, so that users get items in a random order.
        """
        if self.row_length is not None:
            warn(
                f"row_length is ignored and will be removed in the next release, got {self.row_length:g}; omit it",
                FutureWarning,
            )
        data = check_counts(self, interactions, is_private=True, min_users=int(self.trust != "central"))
        align_features(self, data)  # features that do not match the items raise before a cost is recorded
        self.n_users_ = self._public_users(data)
        # The choice depends on public numbers only, so it has no privacy cost.
        advice = self._advice(self.n_users_, data.n_items)
        if lack := lack_of_lists(advice):
            warn(lack)
        model: Any = self._make(advice)
        options = {"engine": engine, "checkpoint": checkpoint}
        options = {name: value for name, value in options.items() if value is not None}
        if unknown := options.keys() - inspect.signature(model.fit).parameters.keys():
            raise ValueError(f"{min(unknown)} must be None: {_without_rounds(model)}")
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        planned = self._check_cost(model, data, fit)
        model._check_memory(data, fit.n_threads)  # before the key is claimed
        # An entropy key serves one fit: this one, which hands it over to the fit of the system.
        inner = fit.key._hand_over(f"{type(self).__name__}.fit")
        self.interactions_ = data
        self.ledger_ = fit.open_account(self, data)
        self.chosen_, self.reason_ = _setting(model), advice.reason
        self._note(data, model)
        fit_inside(
            model, data, key=inner, n_threads=fit.n_threads, show_progress=fit.show_progress, ledger=fit.ledger,
            **(options if stored is None else options | {"checkpoint": stored}),
        )  # fmt: skip
        spent = self._account_.spent()
        if spent.events != planned.events:  # a release chose an alternative plan, which must fit the budget, too
            self._check_epsilon(spent, model)
        self._hold(model)
        if not advice.best.is_popularity and type(model).__name__ in SELF_DECIDING:
            self.reason_ += f" Here they showed {'enough for personal lists' if self.is_personal_ else 'too little'}."
        return self

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        return self._make(self._advice(sizes.n_users, sizes.n_items))._memory(sizes)

    # ---- the choice ---------------------------------------------------------------------------------------------

    def _public_users(self, data: Interactions) -> int:
        if self.n_users is None:
            return max(data.n_users, 1)
        if self.trust != "central" and self.n_users != data.n_users:
            raise ValueError(
                f"n_users must be None or the number of rows ({data.n_users}) with trust={self.trust!r}, got "
                f"{self.n_users}, since a party that sees the reports can count them; omit it"
            )
        return self.n_users

    def _advice(self, n_users: int, n_items: int) -> Advice:
        """Return the advice for public numbers; this method has no access to the data."""
        return advise(
            n_users, n_items, self.epsilon, self.trust, delta=self.delta,
            item_features=self.item_features is not None, honest_fraction=self.honest_fraction,
            dropout_fraction=self.dropout_fraction,
        )  # fmt: skip

    def _make(self, advice: Advice) -> Recommender:
        """Return the chosen system before its fit."""
        best = advice.best
        model = make_system(best.system, best.parameters)
        # The system receives the public number of users and the features only if it has these parameters.
        known = model.get_params()
        return model.set_params(**{name: getattr(self, name) for name in ("n_users", "item_features") if name in known})

    def _check_cost(self, model: Any, data: Interactions, fit: Fit) -> Ledger:
        """Return the ledger that the fit is going to record, after a check that every plan fits epsilon and budget."""
        if type(model).__name__ not in _PLANNED:
            return Ledger(self.delta)  # a model that records no event
        planned = plan_run(model, self.n_users_, data.n_items, self.delta, data.item_ids)
        for ledger in (planned.ledger, *planned.alternatives):
            self._check_epsilon(ledger, model)
            fit.check_plan(ledger.events)
        return planned.ledger

    def _check_epsilon(self, ledger: Ledger, model: Any) -> None:
        cost = ledger.epsilon(self.trust, self.delta)
        if cost > self.epsilon:
            raise ValueError(f"epsilon must be larger than {self.epsilon:g}, for {model!r} costs {cost:g}")

    def _note(self, data: Interactions, model: Recommender) -> None:
        known = "" if self.item_features is None else ", with public features"
        self.ledger_.note(
            f"PrivateRecommender guarantees epsilon {self.epsilon:g} at delta {self.delta:g} against "
            f"{VIEWS[TRUST_VIEWS[self.trust]]}, for replacing all data of one user in the whole run (replace).",
            "guarantee",
        )
        self.ledger_.note(
            f"PrivateRecommender chose {self.chosen_} by public sizes alone: {self.n_users_} users and {data.n_items} "
            f"items{known}.",
            "choice",
        )
        if self.n_users is None:
            note_user_count(self.ledger_, self.n_users_)
        if self.item_features is not None and model.get_params().get("item_features") is None:
            self.ledger_.note(
                f"PrivateRecommender ignores the item features, because {type(model).__name__} takes none.", "choice"
            )

    @property
    def is_personal_(self) -> bool:
        """True if users receive scores that depend on their items, unlike popularity and random lists."""
        return bool(getattr(self._fitted(), "is_personal_", False))

    @property
    def decision_(self) -> Decision | None:
        """The measurement by which the system chose popularity or a personal model; None if there was none."""
        return getattr(self._fitted(), "decision_", None)

    @property
    def advice_(self) -> Advice:
        """All offers that were compared, computed from the public numbers of the fit.

        Returns
        -------
        Advice
            Advice of this version of the package.

        Raises
        ------
        RuntimeError
            The model is not fitted.
        """
        fitted = super()._fitted()
        return fitted._advice(fitted.n_users_, fitted.interactions_.n_items)

    # ---- methods that engines call ------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the rounds of the chosen system, which depend on the sizes of `data` only."""
        return self._with_rounds(data)._plan(data, key)

    def _all_phases(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the rounds of the chosen system and of its alternative plans."""
        return self._with_rounds(data)._all_phases(data, key)

    def _with_rounds(self, data: Interactions) -> Any:
        chosen: Any = self._make(self._advice(self._public_users(data), data.n_items))
        if not hasattr(chosen, "_plan"):
            raise ValueError(_without_rounds(chosen))
        chosen._check_n_users(data.n_users)
        return chosen

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data.binarize()

    def _serving(self, data: Interactions) -> Self:
        model = copy.copy(self)
        model._hold(self.model_._serving(data))
        return model

    # ---- recommendations of the chosen system -------------------------------------------------------------------

    def _hold(self, model: Any) -> None:
        self.model_, self.interactions_ = model, model.interactions_
        is_one_list = type(model).__name__ != "Random" and not getattr(model, "is_personal_", False)
        self.chosen_ = f"{'popularity, by ' * is_one_list}{_setting(model)}"
        if (communication := getattr(model, "communication_", None)) is not None:
            self.communication_: CommunicationLedger = communication

    def _fitted(self) -> Any:
        super()._fitted()
        return self.model_._fitted()

    def _served(self) -> Served:
        return self._fitted()._served()

    def with_users(self, interactions: InteractionsLike) -> Self:
        """Return a model with the same releases for other users, without a new fit or a privacy cost.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Data of the other users, over the same items and in a format of `fit`; rows may be empty.

        Returns
        -------
        PrivateRecommender
            Separate model for these users.

        Raises
        ------
        ValueError
            The items differ from the items of the fit, there is no user, or a value is below 0.
        """
        model = copy.copy(self)
        model._hold(self._fitted().with_users(interactions))
        return model

    # ---- state --------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        parameters = super().__repr__()
        return f"<{parameters}: {self.chosen_}>" if "model_" in vars(self) else parameters

    def _facts(self) -> dict[str, Any]:
        chosen = {"system": self.chosen_, "why": self.reason_} if "model_" in vars(self) else {}
        return super()._facts() | chosen

    def _as_saved(self, header: dict[str, Any]) -> dict[str, Any]:
        inner = {name: header[name] for name in ("class", "parameters")}
        parameters = super()._fitted()._saved_parameters()
        return header | {
            "class": type(self).__name__, "parameters": parameters, "chosen": inner, "reason": self.reason_,
            "n_users": self.n_users_, "ledger": self.ledger_.to_dict(),
        }  # fmt: skip

    @classmethod
    def _from_saved(cls, saved: SavedModel) -> Self:
        model = cls(**saved.parameters(cls._parameter_names()))
        model.reason_, model.n_users_ = saved.text("reason"), saved.integer("n_users", low=1, high=_MAX_USERS)
        inner = saved.part("chosen")
        # The file is untrusted, so only systems that the rule may choose are loaded.
        if inner.class_name not in _CHOSEN:
            raise saved.error("chosen", f"class must be one of {sorted(_CHOSEN)}, got {inner.class_name[:60]!r}")
        chosen = system_class(inner.class_name)._from_saved(inner)
        model.ledger_ = chosen.ledger_
        model._hold(chosen)
        model._finish()
        return model


def _without_rounds(model: Recommender) -> str:
    return f"by its public numbers this is a run of {type(model).__name__}, which has no rounds"


def _setting(model: Recommender) -> str:
    """Return the Python expression of a system with the parameters that differ from their defaults."""
    defaults = type(model)().get_params()
    given = [
        f"{name}={value!r}"
        for name, value in model.get_params().items()
        if name != "item_features" and value != defaults[name]
    ]
    return f"{type(model).__name__}({', '.join(given)})"
