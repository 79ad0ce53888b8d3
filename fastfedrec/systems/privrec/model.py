"""PrivRec and DP-PrivRec: federated Reptile on a two-tower network with side features (Wang et al. 2021).

In a round, the server sends the network's parameters to `cohort_size` clients, drawn without replacement.  Each takes
steps of SGD and sends the difference; the server adds noise to the sum and steps along the mean.  Finally a user's
device fine-tunes the network on that user's data.  docs/explanation/systems/privrec/privrec.md lists corrections.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np

from fastfedrec.accounting import Ledger, RoundTraffic
from fastfedrec.accounting.events import Event
from fastfedrec.compute.networks.joint_loss import JointNetwork
from fastfedrec.compute.networks.meta_learning import MetaNetwork
from fastfedrec.compute.networks.tiles import check_hidden, check_width
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.check import check_callback, check_instance, check_integer, check_real
from fastfedrec.core.parameters import choice, declares_parameters, integer, parameter, real
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.digest import data_parts
from fastfedrec.data.features import Features
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import NO_SECRET_COHORT, ArrayRule, DeploymentTerms
from fastfedrec.systems._checkpoint import open_checkpoint
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._saved import SavedModel, rules_of
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.grid_noise import GridNoise
from fastfedrec.systems.privrec import start as first
from fastfedrec.systems.privrec._cohort import OPTIMIZERS
from fastfedrec.systems.privrec._joint import JointRounds
from fastfedrec.systems.privrec._memory import privrec_memory
from fastfedrec.systems.privrec._meta import METAS, MetaData, MetaRounds
from fastfedrec.systems.privrec._run import run_rounds
from fastfedrec.systems.privrec._serving import TABLES, _Personalized, _TwoTowerRecommender
from fastfedrec.systems.privrec._settings import PRESETS, PrivRecSettings, check_settings, is_private
from fastfedrec.systems.privrec.rounds import ClientData, LocalTraining, PrivRecRounds
from fastfedrec.systems.privrec.stage1 import (
    STAGES,
    check_options,
    choose_sequences,
    has_joint_loss,
    learn_items,
    pretraining_rounds,
    public_note,
    with_embeddings,
)

__all__ = ["PrivRec"]


def _check_features(name: str, features: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the features of the towers, or raise."""
    check_instance(name, features, Mapping, "pass {'user': [names], 'item': [names]}")
    if unknown := sorted(set(features) - set(TABLES)):
        raise ValueError(f"{name} must have the keys 'user', 'item' or 'context', got {unknown}")
    return features


@declares_parameters
class PrivRec(_TwoTowerRecommender):
    """Federated meta-learning of a two-tower network with side features, with or without user-level privacy.

    **Guarantee** (`noise_multiplier` or `target_epsilon` given, or no rounds and `popularity_epsilon`: DP-PrivRec).
    Replacing all data of one user ("replace", privacy unit "user") is hidden from everyone who sees the releases of the
    server: the item counts, if any, and the parameters after each round.  The server is trusted ("central"): it
    receives every update and draws the cohorts, in secret.  `ledger_` has the epsilon of a run, from an accountant for
    sampling without replacement.  A user's fine-tuned network never leaves the device.  The given values of features,
    and the lists of users and items, are assumed to be public.  Otherwise, or with ``stage1="published"``, there is no
    guarantee.

    Attributes
    ----------
    parameters_ : ndarray of shape (n_parameters,), float32
        Parameters of the network.
    learning_rates_ : ndarray of shape (n_parameters,), float32, or None
        Learning rate of each parameter, with which devices fine-tune; None unless `meta` is "meta-sgd".
    features_ : fastfedrec.data.features.Features
        Values of every feature, also of the users' features.
    noise_multiplier_ : float or None
        Noise multiplier of the run; None without noise.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of a client in each round; with `popularity_epsilon` the first entry is the release of counts.

    References
    ----------
    .. [1] Wang, Yin, Chen, Yu, Zhou, Zhang, "Fast-adapting and privacy-preserving federated recommender system", The
       VLDB Journal, 2021.
    .. [2] Nichol, Achiam, Schulman, "On first-order meta-learning algorithms", arXiv:1803.02999, 2018 (Reptile).
    .. [3] Chen, Luo, Dong, Li, He, "Federated meta-learning with fast convergence and efficient communication",
       arXiv:1802.07876, 2018 (MAML, Meta-SGD).
    .. [4] Reddi, Charles, Zaheer, et al., "Adaptive federated optimization", ICLR 2021 (FedAdam).

    Examples
    --------
    >>> from fastfedrec import Key, PrivRec, datasets
    >>> data = datasets.generate_implicit(100, 60, key=Key.from_seed(1))
    >>> model = PrivRec(n_rounds=3, cohort_size=10, clip_norm=0.1, target_epsilon=2.0, n_factors=16, hidden=(16,))
    >>> model = model.fit(data, key=Key.from_seed(1))
    >>> 1.9 < model.ledger_.epsilon("public") <= 2.0
    True
    >>> devices = model.personalize(data.select_users([3, 5]), key=Key.from_seed(2))
    >>> devices.recommend(data.user_ids[[3, 5]], n=4)[0].shape
    (2, 4)
    """

    _deployment = DeploymentTerms(NO_SECRET_COHORT, names_users=True)
    _communicates = True
    _saved: ClassVar[tuple[str, ...]] = ("parameters_",)

    features: Mapping[str, Any] | None = parameter(None, "mapping", _check_features, also=[None]).doc("""
        Features of the towers: names of columns under "user", "item" and (for a log) "context"; or a mapping from
        name to all possible values, which are public under a guarantee: any other value counts as missing.  The
        values of a plain name are taken from the data, which no guarantee covers, as the ledger states.  The item's
        id is always a feature, and with None the only one.""")
    n_rounds: int | str = integer("auto", low=0, high=2**31 - 1, also=["auto"]).doc("""
        Number of rounds (E1 in the paper).  With 0, which needs `popularity_epsilon`, devices fine-tune the first
        network.""")
    cohort_size: int | str = integer("auto", low=1, high=2**31 - 1, also=["auto", "all"]).doc("""
        Number of clients in each round (M), drawn without replacement.""")
    local_epochs: int | str = integer("auto", low=1, high=2**31 - 1, also=["auto"]).doc("""
        Number of a client's passes over its examples (E2).""")
    learning_rate: float | str = real("auto", above=0.0, also=["auto"]).doc("Step size of a client.")
    server_learning_rate: float | str = real("auto", above=0.0, also=["auto"]).doc("""
        Step size of the server along the mean update.""")
    server_optimizer: str = choice("auto", ("auto", *OPTIMIZERS)).doc("""
        Step of the server: the mean update times a rate (equation 6), or an Adam step with the mean as gradient
        [4]_.  Adam has no privacy cost, but follows the noise.  "auto" is Adam if the preset is "recommended", there
        is no noise, and `server_learning_rate` is "auto".""")
    negatives: int | str = integer("auto", low=0, high=2**31 - 1, also=["auto"]).doc("""
        Number of unvisited items that are drawn for each positive, anew in each round.""")
    meta: str = choice("reptile", METAS).doc("""
        Message of a client.  "reptile": the change of the parameters by its epochs.  Otherwise it trains on half of
        its positives, and sends the negative gradient of the loss on the others; with one positive it sends zeros.
        The gradient is taken for the trained parameters ("first-order-maml") or the first ones ("maml", second
        order), and for a learning rate of each parameter too ("meta-sgd"), which begins at `learning_rate` and is
        released.""")
    clip_norm: float | None = real(None, low=1e-6, high=1e6, also=[None]).doc("""
        Bound (S) of a client's update over all its epochs: dense weights, embeddings and learning rates together.""")
    noise_multiplier: float | None = real(None, low=1e-6, high=1e6, also=[None]).doc("""
        Noise multiplier z: the noise on a cohort's sum has standard deviation (Laplace: scale) z * 2 S in every
        parameter.""")
    target_epsilon: float | None = real(None, low=1e-100, high=1e100, also=[None]).doc("""
        Largest epsilon of the whole run for a user, at `delta`; the fit uses the smallest noise that satisfies it.""")
    popularity_epsilon: float | None = real(None, low=1e-100, high=1e100, also=[None]).doc("""
        Epsilon of a first release of item counts (at most 10 items per user, discrete Laplace noise), a part of
        `target_epsilon`; the first network scores items by these counts.  None starts at random.""")
    stage1: str = choice("none", STAGES).doc("""
        Source of the items' first embeddings, which a recurrent encoder learns from sequences.  "public": sequences
        of other users, passed to `fit`, at no cost if they are public.  "dp": the users' own, in rounds with
        clipping and noise, as a part of `target_epsilon` or with the same `noise_multiplier`.  "published": the
        users' own without noise, as in the paper, which voids any guarantee.""")
    stage1_share: float = real(0.5, low=1e-3, high=1 - 1e-3).doc("""
        Share of the rounds' part of `target_epsilon` for stage one with "dp"; without rounds stage one has all of
        it.""")
    stage1_options: Mapping[str, Any] | None = parameter(None, "mapping", check_options, also=[None]).doc("""
        Settings of stage one that replace its defaults: n_rounds, cohort_size, local_epochs, learning_rate,
        server_learning_rate, batch_size, length (of sequences), negatives, clip_norm (None takes the model's), and
        contrastive_weight, the weight of stage one's losses in the rounds after it (equation 11).""")
    noise: str = choice("gaussian", ("gaussian", "laplace")).doc("""
        Distribution of the noise; "laplace" clips in the L1 norm, which its guarantee needs.""")
    preset: str = choice("recommended", tuple(PRESETS)).doc('Values of "auto".')
    delta: float = real(1e-6, above=0.0, below=1.0).doc("""
        Delta of the ledger's epsilon and of `target_epsilon`, between 0 and 1.""")
    threshold: float = real(0.0, low=0.0).doc("""
        An interaction with a value above it is positive, and so is every entry of a log; all others count as
        visited.""")
    batch_size: int = integer(32, low=1).doc("Number of examples in a local step.")
    n_factors: int = parameter(64, "int", check_width).doc("Width of embeddings and towers; a multiple of 16.")
    hidden: tuple[int, ...] = parameter((128, 64, 32, 16), "tuple of int", check_hidden).doc("""
        Widths of the layers above the towers; multiples of 16.""")

    def _check_parameters(self) -> None:
        check_settings(self.get_params())

    def _objection_to_nodes(self) -> str | None:
        for name, counted in (("features", "their values"), ("popularity_epsilon", "the items")):
            if getattr(self, name) is not None:
                return f"{name} must be None: fit counts {counted} in all data"
        if self.stage1 != "none":
            return "stage1 must be 'none': fit reads its sequences in all data"
        return None

    @transactional
    def fit(
        self,
        interactions: InteractionsLike | InteractionLog,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        callback: Callable[["PrivRec", int], None] | None = None,
        ledger: Ledger | None = None,
        *,
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        public: InteractionsLike | None = None,
    ) -> Self:
        """Train in `n_rounds` federated rounds.

        Parameters
        ----------
        interactions : Interactions, InteractionLog, SciPy sparse matrix or array, or frame
            All visits of the users; a value below 0 is refused.  A client without positives sends zeros.
        callback : callable or None
            Function that is called as ``callback(model, round)`` after each round, with a model that is ready to use.
        public : Interactions, matrix, frame or None
            With ``stage1="public"``: sequences, with timestamps, of persons who are not users here.

        Raises
        ------
        DivergenceError
            The parameters, which are public, left the usable range; the message names the round and a remedy.
        ValueError
            The checkpoint is of a run on other data or with other parameters, or stage one needs missing timestamps.
        """
        visited = interactions.interactions if isinstance(interactions, InteractionLog) else interactions
        private = is_private(self.get_params())
        visited = check_counts(
            self, visited, is_private=private, min_users=1,
            ignores_values=visited is interactions and self.threshold == 0,
        )  # fmt: skip
        data = interactions if isinstance(interactions, InteractionLog) else visited
        callback = check_callback("callback", callback)
        features = first.describe_features(self.features or {}, data, visited, is_private=private)
        public = None if public is None else as_interactions("public", public)
        joint = has_joint_loss(self.get_params())
        sequences = choose_sequences(self.stage1, data, public, self.threshold, joint=joint, is_private=private)
        settings = PrivRecSettings.resolve(self.get_params(), visited.n_users, 0 if public is None else public.n_users)
        settings.check_draws(visited.n_items, self.batch_size)
        inputs = {"settings": asdict(settings), **data_parts(public, "public ")}
        stored = open_checkpoint(self, checkpoint, data, engine, **inputs)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta, stored)
        self.interactions_, self.features_ = visited, features
        self.ledger_, self.communication_ = fit.begin(self, visited)
        self._network = self._build()
        self.noise_multiplier_ = settings.noise_multiplier
        system = self._system(settings, fit.key, fit.n_threads)
        planned, stage = Counter[Event]({system.event: settings.n_rounds}), None
        if self.popularity_epsilon is not None:
            planned[first.popularity_event(self.popularity_epsilon)] += 1
        if sequences is not None and settings.stage1 is not None:
            stage = pretraining_rounds(sequences, settings.stage1, fit, self.noise, self.n_factors)
            planned[stage.event] += 0 if self.stage1 == "public" else settings.stage1.n_rounds
        fit.check_plan(planned)
        learnt = None
        if stage is not None and sequences is not None and settings.stage1 is not None:
            learnt = learn_items(self.stage1, sequences, settings.stage1, fit, stage)

        def after_round(round_number: int, parameters: np.ndarray) -> None:
            self._set_state(system, parameters)
            if callback is not None:
                callback(self, round_number)

        start = self._first_parameters(data, system, fit, sequences, learnt)
        self._set_state(system, start)
        run_rounds(fit, system, data, start, settings.n_rounds, after_round)
        return self

    def personalize(
        self,
        data: InteractionsLike | InteractionLog,
        *,
        key: Key | None = None,
        local_epochs: int | None = None,
        n_threads: int = 0,
    ) -> _Personalized:
        """Fine-tune the network for each user on that user's own data, as the user's device does.

        No message is sent, so this has no privacy cost.

        Parameters
        ----------
        data : Interactions, InteractionLog, SciPy sparse matrix or array, or frame
            The users' own data, with the same items and features; users may be new.
        key : Key or None
            Source of negatives and of the order of examples; None draws a key from entropy.
        local_epochs : int or None
            Number of passes over a user's examples; None takes the value of the training.
        n_threads : int
            Number of threads, 0 for all; the result does not depend on it.

        Returns
        -------
        Recommender
            A model with `score`, `recommend` and `score_items` for these users.  It has each user's parameters in
            memory (about 4 (n_dense + n_factors * distinct feature values) bytes per user), and cannot be saved.

        Raises
        ------
        KeyError
            A feature has a value that the model does not know.
        """
        fitted = self._fitted()
        if not isinstance(data, InteractionLog):
            data = as_interactions("data", data, item_ids=fitted.interactions_.item_ids)
        rows = data.interactions if isinstance(data, InteractionLog) else data
        if not np.array_equal(rows.item_ids, fitted.interactions_.item_ids):
            raise ValueError("data must have the items the model was fitted with; see Interactions.select_items")
        settings = PrivRecSettings.on_device(fitted.get_params())
        epochs = settings.local_epochs
        if local_epochs is not None:
            epochs = check_integer("local_epochs", local_epochs, low=0, high=2**31 - 1)
        users, local, purpose = np.arange(rows.n_users), fitted._local(settings, epochs), "privrec.personal"
        key = resolve_key(key)
        if fitted.learning_rates_ is None:
            clients = ClientData(data, fitted.features_, fitted._network, fitted.threshold)
            updates = clients.train(
                fitted.parameters_, users, local, key=key, purpose=purpose, round=0, n_threads=n_threads
            )
        else:
            learnt = MetaNetwork(fitted._network, fitted.meta, learning_rate=settings.learning_rate)
            clients = MetaData(data, fitted.features_, learnt, fitted.threshold)
            parameters = learnt.join(fitted.parameters_, fitted.learning_rates_)
            updates = clients.adapt(parameters, users, local, key, purpose, n_threads)
        return _Personalized(fitted.parameters_, fitted.ledger_, clients, updates)

    # ---- parts of a run -----------------------------------------------------------------------------------------

    _memory = privrec_memory

    @property
    def _is_private(self) -> bool:
        return is_private(self.get_params())

    def _build(self) -> TwoTower:
        return TwoTower(self.features_, n_factors=self.n_factors, hidden=tuple(self.hidden))

    def _local(self, settings: PrivRecSettings, epochs: int) -> LocalTraining:
        return LocalTraining(epochs, settings.learning_rate, self.batch_size, settings.negatives, self.threshold)

    def _plan(self, users: Interactions, key: Key) -> list[Phase]:
        """Return stage two for users on nodes, without the earlier stages, which `fit` learns from rows."""
        settings = PrivRecSettings.resolve(self.get_params(), users.n_users)
        settings.check_draws(users.n_items, self.batch_size)
        self.interactions_, self.features_ = users, first.describe_features({}, users, users)
        self._network = self._build()
        system = self._system(settings, key, 1)
        return [Phase(system, system.initial_state(), settings.n_rounds)]

    def _system(self, settings: PrivRecSettings, key: Key, n_threads: int) -> PrivRecRounds:
        noise = None
        if settings.noise_multiplier is not None and settings.clip_norm is not None:
            noise = GridNoise.calibrated(self.noise, settings.clip_norm, settings.noise_multiplier)
        described = (
            self.interactions_.global_user_ids, settings.cohort_size, self._local(settings, settings.local_epochs),
            settings.server_learning_rate, settings.clip_norm, noise, key, n_threads, settings.server_optimizer,
        )  # fmt: skip
        if settings.stage1 is not None and settings.stage1.contrastive_weight:
            return JointRounds(self.features_, JointNetwork(self._network), *described, settings.stage1)
        if self.meta != "reptile":
            learnt = MetaNetwork(self._network, self.meta, learning_rate=settings.learning_rate)
            return MetaRounds(self.features_, learnt, *described)
        return PrivRecRounds(self.features_, self._network, *described)

    def _first_parameters(
        self,
        data: Interactions | InteractionLog,
        system: PrivRecRounds,
        fit: Fit,
        sequences: Interactions | None,
        learnt: np.ndarray | None,
    ) -> np.ndarray:
        """Return the parameters of the first round of stage two."""
        parameters = system.network_part(system.initial_state().parameters)
        if sequences is not None and learnt is not None:
            parameters = with_embeddings(self._network, parameters, self.interactions_.item_ids, sequences, learnt)
        if self.stage1 == "public" and sequences is not None:
            fit.ledger.note(public_note(sequences.n_users), "assumption")
        if system.noise is not None or self.popularity_epsilon is not None or self.stage1 == "dp":
            first.note_features(fit.ledger, self.features or {})
        if self.popularity_epsilon is None:
            return system.whole(parameters, learnt)
        positives = data.interactions.binarize() if isinstance(data, InteractionLog) else data.binarize(self.threshold)
        counts = first.release_popularity(positives, self.popularity_epsilon, system.key, fit.account)
        fit.communication.record(RoundTraffic(download=0, upload=4 * first.MAX_ITEMS, n_clients=positives.n_users))
        return system.whole(first.popularity_start(self._network, parameters, counts, system.local.negatives), learnt)

    def _set_state(self, system: PrivRecRounds, parameters: np.ndarray) -> None:
        self.parameters_, self.learning_rates_ = system.network_part(parameters), system.rates_part(parameters)

    # ---- saving -------------------------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        return super()._header() | {
            "features": {name: list(getattr(self.features_, name).names) for name in TABLES},
            "noise_multiplier": self.noise_multiplier_,
        }

    def _read_header(self, saved: SavedModel) -> None:
        super()._read_header(saved)
        self.noise_multiplier_ = saved.value("noise_multiplier")
        if self.noise_multiplier_ is not None:
            self.noise_multiplier_ = check_real("noise_multiplier", self.noise_multiplier_, low=0.0)
        names, n_users, n_items = saved.mapping("features"), *self.interactions_.shape
        entries = {"user": n_users, "item": n_items, "context": 0}
        if names.keys() != entries.keys():
            raise saved.error("features", f"must have the keys {TABLES}, got {sorted(names)}")
        self.features_ = Features(**{name: saved.features(name, names[name], n) for name, n in entries.items()})
        self._network = self._build()
        learnt = self.meta == "meta-sgd"
        rule = ArrayRule(np.float32, (self._network.n_parameters,))
        self.learning_rates_ = saved.array("model.learning_rates_", rule) if learnt else None

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return rules_of(np.float32, parameters_=(self._network.n_parameters,))
