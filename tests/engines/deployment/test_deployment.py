"""Tests of the rules of nodes and servers in a deployment, for any transport; without Flower."""

import numpy as np
import pytest
from support.data import rated
from support.flower_case import SYSTEMS
from support.server_keys import make_keys

from fastfedrec import (
    DPALS,
    FMFLDP,
    DPGram,
    DPPopularity,
    DPSubspace,
    Interactions,
    Key,
    LaplaceRRSVD,
    PrivatePrototypes,
    PrivateRecommender,
    PrivRec,
    ShuffledSketchGram,
)
from fastfedrec.accounting import Ledger, LocalReports, ShuffledReports
from fastfedrec.engines.deployment.deployment_of import deployment_of
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.engines.flower.server import FlowerEngine
from fastfedrec.engines.flower.shuffled_server import ShuffledFlowerEngine
from fastfedrec.engines.shuffling.sealing import ServerKeys
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.system import Update
from fastfedrec.systems import factor_rounds
from fastfedrec.systems import projection_rounds as subspace_rounds
from fastfedrec.systems.gram import dp_gram_rounds
from fastfedrec.systems.gram.dp_gram_rounds import SCALE, GramState, PairSum
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchState
from fastfedrec.systems.private_prototypes.rounds import PrototypeState
from fastfedrec.systems.projection_rounds import FINEST, ProjectionSum, SubspaceState

ITEMS = np.arange(12)
OPTIONS = {"is_simulation": False, "round_timeout": 1.0, "join_timeout": 1.0, "max_clients": 100}
CROWD = 20


def shard(n_users=3):
    return Interactions.from_arrays(np.arange(n_users), np.arange(n_users) % 12, item_ids=ITEMS)


def engine(system, kind=FlowerEngine, **options):
    return kind(None, deployment_of(system), {}, **OPTIONS, **options)


# ---- what a node answers ---------------------------------------------------------------------------------------------


class NodesEngine(LocalEngine):
    """Engine that collects the objections of a node to the states of a fit."""

    def __init__(self, deployment, data):
        super().__init__()
        self.deployment, self.data, self.phase, self.objections = deployment, data, -1, []

    def run(self, system, *arguments, **options):
        self.phase += 1 + system.n_skipped
        return super().run(system, *arguments, **options)

    def _answers(self, receiver, *arguments):
        rounds = self.deployment.rounds_of(self.phase, self.data.n_users, self.data.item_ids)
        self.objections.append(self.deployment.objection(rounds, receiver.state, self.data, "a"))
        return super()._answers(receiver, *arguments)


@pytest.mark.ignores_values
@pytest.mark.parametrize("n_items", [60, 31])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_node_accepts_every_state_of_a_fit(name, n_items):
    deployment = deployment_of(SYSTEMS[name])
    assert isinstance(deployment, FitDeployment)
    nodes = NodesEngine(deployment, rated(120, n_items, 7))
    type(SYSTEMS[name])(**SYSTEMS[name].get_params()).fit(nodes.data, key=Key.from_seed(1), engine=nodes)
    assert set(nodes.objections) == {None}


# ---- what a node does not answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "reason"),
    [
        (np.ones((12, 5), np.int16), None),
        (np.ones((12, 8), np.int16), None),
        (np.full((12, 5), FINEST + 1, np.int16), "encoder must be from -8192 to 8192"),
        (np.ones((12, 9), np.int16), "or shorter along axis 1"),
        (np.ones((12, 0), np.int16), "or shorter along axis 1"),
        (np.ones((11, 8), np.int16), "or shorter along axis 1"),
        (np.ones(12, np.int16), "or shorter along axis 1"),
        (np.ones((12, 5), np.int32), "or shorter along axis 1"),
    ],
)
def test_a_node_answers_fewer_columns_than_planned_and_no_other_shape(encoder, reason):
    text = objection_to(DPSubspace(n_columns=8), encoder)
    assert text is None if reason is None else reason in (text or "")


def test_an_encoder_of_dp_gram_has_all_columns():
    assert objection_to(DPGram(), np.ones((12, 12), np.int16)) is None
    assert "must be int16 of shape (12, 12), got" in objection_to(DPGram(), np.ones((12, 5), np.int16))


def objection_to(system, encoder):
    """Return a node's objection to the encoder of a round of projections."""
    deployment = deployment_of(system)
    rounds = deployment.rounds_of(2, 1000, ITEMS)
    assert isinstance(rounds.system, ProjectionSum)
    return deployment.objection(rounds, SubspaceState(np.ones(12, np.int32), encoder), shard(), "a")


@pytest.mark.parametrize(
    ("mean", "reason"),
    [
        (np.full(12, SCALE), None),
        (np.full(12, SCALE + 1), "mean must be from 0 to 8192"),  # beyond it, a centred row has no norm of 1
        (np.full(12, -1), "mean must be from 0 to 8192"),
        (np.zeros(11, np.int64), "mean must be int64 of shape"),
        (np.zeros(12), "mean must be int64 of shape"),
    ],
)
def test_a_node_answers_no_mean_that_its_norm_is_not_bounded_for(mean, reason):
    deployment = deployment_of(DPGram(1.0))
    rounds = deployment.rounds_of(1, 1000, ITEMS)
    assert isinstance(rounds.system, PairSum)
    text = deployment.objection(rounds, GramState(mean), shard(), "a")
    assert (text is None) == (reason is None)
    assert text is None or text.startswith(reason)


def test_a_node_refuses_signs_other_than_1_and_minus_1():
    deployment = deployment_of(ShuffledSketchGram(4.0, n_rotations=2))
    rounds = deployment.rounds_of(0, 3000, ITEMS)
    signs = np.ones_like(rounds.state.signs)
    assert deployment.objection(rounds, SketchState(signs), shard(), "a") is None
    assert deployment.objection(rounds, SketchState(3 * signs), shard(), "a") == "signs must be 1 or -1"


def test_an_entity_sends_no_more_prototypes_than_its_budget_is_for():
    deployment = deployment_of(PrivatePrototypes(2, 2, 1.0))
    nothing = np.zeros((0, 12), np.int64)

    def objection(counts, names=("a", "b"), sender="a"):
        state = PrototypeState(names, counts, 12, nothing[:, 0], nothing, nothing, nothing, 1)
        return deployment.objection(deployment.rounds_of(0, 2, ITEMS), state, shard(), sender)

    assert objection((2, 2)) is None
    assert objection((3, 2)) == "n_prototypes must be 2, got 3"
    assert "names must hold 'a' once" in objection((2, 2), names=("a", "a"))
    assert "names must hold 'c' once" in objection((2, 2), sender="c")


def test_a_node_plans_the_system_that_the_recommender_selects():
    deployment = deployment_of(PrivateRecommender(2.0))
    assert isinstance(deployment.rounds_of(1, 5000, ITEMS).system, PairSum)
    with pytest.raises(ValueError, match="phase must be from 0 to 18"):  # of five plans
        deployment.rounds_of(19, 50, ITEMS)
    for trust in ("shuffle", "local"):
        with pytest.raises(ValueError, match="data stay on nodes, so trust must be 'central'"):
            deployment_of(PrivateRecommender(2.0, trust=trust))


@pytest.mark.parametrize(
    ("system", "max_users"),
    [
        (DPGram(), dp_gram_rounds.MAX_USERS),
        (DPSubspace(), subspace_rounds.MAX_USERS),
        (DPALS(), factor_rounds.MAX_USERS),
        (LaplaceRRSVD(max_ratings=5), 2**25),
        (PrivateRecommender(), 2**25),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_node_plans_for_at_most_the_capacity_of_sums(system, max_users):
    with pytest.raises(ValueError, match=f"must be at most {max_users}, got {max_users + 1}"):
        deployment_of(system).rounds_of(0, max_users + 1, ITEMS)


@pytest.mark.parametrize("system", [DPSubspace(), PrivateRecommender()], ids=lambda system: type(system).__name__)
def test_a_selected_system_has_the_capacity_of_its_sums(monkeypatch, system):
    monkeypatch.setattr(PrivateRecommender, "_make", lambda *_: DPSubspace())
    deployment, max_users = deployment_of(system), subspace_rounds.MAX_USERS
    assert deployment.rounds_of(0, max_users, ITEMS).n_rounds == 1
    with pytest.raises(ValueError, match=rf"at most {max_users}( summands)?, got {max_users + 1}"):
        deployment.rounds_of(0, max_users + 1, ITEMS)


def test_a_selected_system_without_rounds_is_named(monkeypatch):
    monkeypatch.setattr(PrivateRecommender, "_make", lambda *_: DPPopularity(1.0))
    with pytest.raises(ValueError, match="this is a run of DPPopularity, which has no rounds"):
        deployment_of(PrivateRecommender()).rounds_of(0, 50, ITEMS)


# ---- whom a server hears ---------------------------------------------------------------------------------------------


def test_nodes_name_their_users_by_names_that_no_other_node_has():
    deployment = deployment_of(LaplaceRRSVD(max_ratings=5))
    named = [deployment.name_users(shard(50), sender).global_user_ids for sender in ("a", "b")]
    assert len(np.unique(np.concatenate(named))) == 100
    np.testing.assert_array_equal(named[0], deployment.name_users(shard(50), "a").global_user_ids)
    reports = Update(0, "a", 50, {"user": named[0][:2]})
    assert deployment.impersonation(reports, named[0]) is None
    assert deployment.impersonation(reports, named[1]) == "its message is about another node's users"


@pytest.mark.parametrize(
    "system",
    [PrivRec(n_rounds=2, cohort_size=5, clip_norm=1.0, noise_multiplier=1.0), ShuffledSketchGram()],
    ids=lambda system: type(system).__name__,
)
def test_a_system_that_rests_on_a_secret_or_a_shuffler_is_only_simulated(system):
    deployment = deployment_of(system)
    deployment.check_keys(True)
    with pytest.raises(ValueError, match="only as a simulation"):
        deployment.check_keys(False)


# ---- what the ledger of a deployment says ----------------------------------------------------------------------------


def test_messages_that_name_their_node_are_behind_no_shuffler():
    carried = engine(DPGram(1.0))._as_carried
    for event in (
        ShuffledReports("bits", 2.5, 10, 5000, neighboring="zero_out"),
        LocalReports("bits", 2.5, 10, 5000, separable=True),
    ):
        assert carried(event) == LocalReports("bits", 2.5, 10, 5000, separable=False)


@pytest.mark.parametrize(
    ("n_heard", "honest_fraction", "n_honest"),
    [(CROWD - 1, 0.9, 0), (CROWD, 0.9, 13), (70, 0.9, 13), (0, 0.9, 0), (CROWD, 1.0, CROWD), (70, 0.5, 0)],
)
def test_a_batch_hides_a_report_among_the_agreed_crowd_and_no_more(n_heard, honest_fraction, n_honest):
    """The server states how many users it received, so they do not count; of the crowd all dishonest users may be."""
    behind = engine(
        FMFLDP(n_reports=4), ShuffledFlowerEngine, shuffler=None, min_crowd=CROWD, honest_fraction=honest_fraction
    )
    event = behind._as_carried(LocalReports("bits", 2.5, 4, 70, separable=True))
    ledger = Ledger()
    ledger.record(event)
    behind._amend(ledger, event, n_heard)
    ((event, times),) = ledger.events.items()
    assert times == 1
    if n_honest:
        assert event == ShuffledReports("bits", 2.5, 4, CROWD, n_honest / CROWD)
        assert event.n_honest_users == n_honest
    else:
        assert type(event) is LocalReports
        assert (event.separable, event.epsilon, event.n_reports) == (False, 2.5, 4)
        assert ("The ledger counts this round without a shuffler" in ledger.summary()) == (n_heard < CROWD)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_shuffler_that_reads_reports_is_an_assumption_of_the_ledger(is_sealed, tmp_path):
    keys = ServerKeys(make_keys(tmp_path)[0]) if is_sealed else None
    options = {"shuffler": None, "min_crowd": CROWD, "honest_fraction": 1.0, "keys": keys}
    behind, ledger = engine(FMFLDP(n_reports=4), ShuffledFlowerEngine, **options), Ledger()
    event = behind._as_carried(LocalReports("bits", 2.5, 4, 70, separable=True))
    ledger.record(event)
    behind._amend(ledger, event, 70)
    notes = [note.kind for note in ledger.notes if "The shuffler reads reports" in note]
    assert notes == ([] if is_sealed else ["assumption"])


@pytest.mark.parametrize(("n_clients", "is_heard"), [(CROWD - 1, False), (CROWD, True), (60, True), (61, False)])
def test_a_batch_has_at_least_the_crowd_and_at_most_all_users(n_clients, is_heard):
    behind = engine(FMFLDP(n_reports=4), ShuffledFlowerEngine, shuffler=None, min_crowd=CROWD, honest_fraction=1.0)
    rounds = FMFLDP(n_reports=4, n_factors=3)._rounds()
    state = rounds.initial_state(12, Key.from_seed(1))
    receiver = behind._receiver(rounds, state, 0, {"a": 20, "b": 40})
    index, bit = np.zeros(4 * n_clients, np.int64), np.ones(4 * n_clients, np.uint8)
    batch = rounds.collect_reports(state, index, bit, 0, sender="shuffler", n_clients=n_clients)
    assert receiver.receive(batch) is is_heard
