"""What a fit gives away is made of what its server heard, or of noisy numbers, and of nothing else of people's data."""

import copy
import dataclasses
import importlib

import numpy as np
import pytest
from support.decision_case import prefer

from fastfedrec import (
    DPALS,
    DPFMF,
    FMFLDP,
    DPGram,
    DPPopularity,
    DPSubspace,
    FedRec,
    Interactions,
    Key,
    PrivatePrototypes,
    PrivRec,
    ShuffledSketchGram,
)
from fastfedrec.accounting import Ledger
from fastfedrec.mechanisms.bounded_rows import grid_candidates
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.systems.private_prototypes import private_kmeans, prototypes, rounds
from fastfedrec.systems.private_prototypes.private_lloyd import private_lloyd

N_USERS, N_ITEMS = 40, 30

SMALL = {"n_rounds": 2, "cohort_size": 20, "local_epochs": 1, "n_factors": 16, "hidden": (16,), "clip_norm": 0.1}
STAGE1 = {"n_rounds": 2, "cohort_size": 10, "length": 4}

#: Public ones, of which something is believed whatever the rows are (`believing`).
FEATURES = {str(width): np.arange(30 * width).reshape(30, width) ** 2 % 17 - 8.0 for width in range(1, 9)}

#: Those whose noise a server or an entity adds, and those whose users randomize what they send.
CENTRAL = {
    "DPGram": DPGram(4.0),
    "DPGram, popularity alone": DPGram(1.0),
    "DPGram, mean instead": DPGram(4.0),
    "DPGram, mean again": DPGram(4.0),
    "DPGram, neighbours": DPGram(4.0, score="knn", n_users=45),
    "DPGram, features": DPGram(18.0, item_features=FEATURES),
    "DPSubspace": DPSubspace(4.0, n_columns=4),
    "DPSubspace, popularity alone": DPSubspace(1.0, n_columns=4),
    "DPSubspace, features": DPSubspace(18.0, n_columns=8, item_features=FEATURES),
    "DPALS": DPALS(4.0, n_factors=3, n_rounds=2, n_start_rounds=2, max_items=4),
    "DPALS, uniform": DPALS(4.0, n_factors=3, n_rounds=1, n_start_rounds=0, max_items=4, sampling="uniform"),
    "DPALS, adaptive": DPALS(4.0, n_factors=3, max_items=4, weights="adaptive"),
    "DPALS, features": DPALS(4.0, n_factors=3, max_items=4, weights="adaptive", item_features=FEATURES),
    "DPFMF": DPFMF(4.0, n_factors=3, n_rounds=2),
    "PrivRec": PrivRec(noise_multiplier=0.5, **SMALL),
    "PrivRec, Laplace": PrivRec(noise_multiplier=0.5, noise="laplace", **SMALL),
    "PrivRec, Meta-SGD": PrivRec(noise_multiplier=0.5, meta="meta-sgd", **SMALL),
    "PrivRec, all stages": PrivRec(
        noise_multiplier=0.5, popularity_epsilon=1.0, stage1="dp", stage1_options=STAGE1, **SMALL
    ),
    "PrivRec, joint": PrivRec(
        noise_multiplier=0.5, stage1="dp", stage1_options={**STAGE1, "contrastive_weight": 0.5}, **SMALL
    ),
    "PrivatePrototypes": PrivatePrototypes(2, 2, 4.0, max_entries=5, n_epochs=2),
    "PrivatePrototypes, clusters": PrivatePrototypes(
        2,
        2,
        5000.0,  # that every cell with somebody in it is divided, on every level
        1e-5,
        max_entries=5,
        n_epochs=2,
        grouping="kmeans",
        candidates="grid",
        support="gumbel",
        n_support_items=9,
    ),
    "FedRec": FedRec(0, n_factors=2, n_rounds=2, clip_norm=0.5, noise_multiplier=3.0, max_items=8),
}
LOCAL = {
    "ShuffledSketchGram": ShuffledSketchGram(20.0, n_rotations=2),
    "ShuffledSketchGram, features": ShuffledSketchGram(20.0, n_rotations=2, item_features=FEATURES),
    "ShuffledSketchGram, popularity alone": ShuffledSketchGram(20.0, n_rotations=2),
    "FMFLDP": FMFLDP(n_rounds=2, n_factors=3, n_reports=10),
}
#: Of counts outside of the rounds, or of what devices remember between them.
BESIDE_MESSAGES = ("PrivRec, all stages", "FedRec")
SYSTEMS = {name: model for name, model in (CENTRAL | LOCAL).items() if name not in BESIDE_MESSAGES}
#: Those whose one round asks for all that there is, so that users are sent nothing that was learnt.
SEND_NOTHING = ("DPALS, uniform", "PrivatePrototypes", "PrivatePrototypes, clusters")
CENTRAL["DPPopularity"] = DPPopularity(max_items_per_user=3)


def content(value):
    """All that a state holds, as what can be compared: of arrays the type, shape and bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: content(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [content(part) for part in value]
    return {type(value).__name__: content(vars(value))} if dataclasses.is_dataclass(value) else repr(value)


class WatchedEngine(LocalEngine):
    """Takes down what it sends to users in each round; a broken one goes on with exact sums in place of noisy ones."""

    def __init__(self, is_broken):
        super().__init__(n_shards=2)
        self.is_broken, self.sent = is_broken, []

    def _receiver(self, system, state, *arguments):
        self.sent.append(content(state))
        return super()._receiver(system, state, *arguments)

    def run(self, system, *arguments, **options):
        return super().run(without_noise(system) if self.is_broken else system, *arguments, **options)


def without_noise(system):
    """A copy of rounds whose server adds no noise."""

    def apply(state, update):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IntegerNoise, "_add", lambda noise, values, *rest: values.copy())
            return system.apply(state, update)

    broken = copy.copy(system)
    broken.apply = apply
    return broken


@pytest.fixture(autouse=True)
def believing(monkeypatch, request):
    """Rows at random have nothing in common: features are used and models are personal where a case is about that.

    Scales of features are not shrunk.
    """
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name and ("Gram" in name or "DPSubspace" in name):
        prefer(
            monkeypatch, personal="popularity" not in name, with_features="features" in name,
            needs_mean="instead" in name, start="mean, pairs" if "again" in name else "pairs",
        )  # fmt: skip
    monkeypatch.setattr("fastfedrec.systems.subspace._inference._MIN_BELIEF", 0.0)
    shrinkage = importlib.import_module("fastfedrec.systems.gram._feature_shrinkage")
    own = shrinkage.believed_scales
    monkeypatch.setattr(shrinkage, "believed_scales", lambda *given, least=None: own(*given, least=0.0))


class ScriptedEngine(LocalEngine):
    """Hands `messages` to the server, if there are any, whatever its shards would answer; and keeps what it handed."""

    def __init__(self, messages=()):
        super().__init__()
        self._script, self.messages = list(messages), []

    def _answers(self, *arguments):
        for own in super()._answers(*arguments):
            # The senders and numbers of users of this run, and the other's content.
            sent = dataclasses.replace(own, arrays=self._script.pop(0).arrays) if self._script else own
            self.messages.append(sent)
            yield sent


def rows_of(seed):
    """Ratings of as many users on as many items, in which nothing but a seed's own rows is alike."""
    words = Key.from_seed(seed).words("test.released", size=N_USERS * N_ITEMS).reshape(N_USERS, N_ITEMS)
    words[:3] |= np.arange(3, dtype=np.uint64)[:, None] % 2  # among them people who have nothing, or little
    users, items = np.nonzero(words % 4 == seed % 2)
    values, times = (
        (words[users, items] // 4 % (6 - seed) + 1).astype(np.float32),
        (words[users, items] % 1000).astype(np.int64),
    )
    axes = {"user_ids": np.arange(N_USERS), "item_ids": np.arange(N_ITEMS)}
    return Interactions.from_arrays(users, items, values, times, **axes)


def given_away(model, data, path, engine=None):
    options = {} if isinstance(model, DPPopularity) else {"engine": engine or LocalEngine(n_shards=2)}
    if isinstance(model, PrivatePrototypes):
        options |= {"entities": np.arange(N_USERS) % 2, "public_sizes": {0: 2000, 1: 2000}}
    model = type(model)(**model.get_params()).fit(data, key=Key.from_seed(1), **options)
    assert engine is None or engine.rejections == []
    model.save(path, include_users=False)
    told = [model.ledger_.to_json(), model.ledger_.summary(), getattr(model, "communication_", None)]
    return path.read_bytes(), told


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_who_says_the_same_gets_the_same_whatever_the_data(name, tmp_path):
    """Other people's messages in place of one's own: then nothing that leaves the server tells the two data apart."""
    first = ScriptedEngine()
    before = given_away(SYSTEMS[name], rows_of(1), tmp_path / "model", first)
    assert given_away(SYSTEMS[name], rows_of(2), tmp_path / "model", ScriptedEngine(first.messages)) == before


# ---- noisy numbers ---------------------------------------------------------------------------------------------------


class Releases:
    """Takes down all that mechanisms give away in a fit, and how; or has them give away what they gave in another."""

    def __init__(self, patch, script=()):
        self.given, self.how, self.streams, script = [], [], [], list(script)
        self.noises, self.draws = [], []
        add, draw = IntegerNoise._add, private_kmeans.draw_loss

        def noisy(noise, values, key, purpose, round_number, *rest):
            found = add(noise, values, key, purpose, round_number, *rest)
            if script:
                found[...] = script.pop(0)
            self.given.append(found.copy())
            self.noises.append((purpose, noise))
            self.how.append((repr(noise), purpose, round_number, values.shape))
            self.streams.append((key._secret, purpose, round_number))
            return found

        def drawn(losses, epsilon, words, *sensitivity):
            self.given.append(script.pop(0) if script else draw(losses, epsilon, words, *sensitivity))
            self.draws.append((epsilon, sensitivity))
            self.how.append((epsilon, sensitivity, losses.shape))
            self.streams.append(tuple(words.tolist()))
            return self.given[-1]

        patch.setattr(IntegerNoise, "_add", noisy)
        for module in (private_kmeans, prototypes):
            patch.setattr(module, "draw_loss", drawn)
        cluster = rounds.private_kmeans

        def clustered(points, places, n_clusters, **options):
            self.how.append((places.tolist(), n_clusters, options["radius"]))
            return cluster(points, places, n_clusters, **options)

        patch.setattr(rounds, "private_kmeans", clustered)


def with_the_noise_of_another(name, path, monkeypatch, engine_of):
    """Of one's own data, and of others' with the noisy numbers of one's own: the release, what it took, the engine."""
    given = ()
    for seed in (1, 2):
        with monkeypatch.context() as patch:
            releases, engine = Releases(patch, given), engine_of()
            given = releases.given if seed == 1 else given
            yield given_away(CENTRAL[name], rows_of(seed), path, engine), releases, engine


@pytest.mark.parametrize("name", CENTRAL)
def test_what_leaves_a_server_follows_from_noisy_numbers(name, tmp_path, monkeypatch):
    """With the noisy numbers of other data, the release is the other's to the bit; as are kinds and sizes of noise."""
    one, other = with_the_noise_of_another(name, tmp_path / "model", monkeypatch, lambda: LocalEngine(2))
    assert other[0] == one[0]
    assert other[1].how == one[1].how
    assert one[1].given


@pytest.mark.parametrize("name", CENTRAL)
def test_no_stream_of_random_words_serves_two_releases(name, tmp_path, monkeypatch):
    releases = Releases(monkeypatch)
    given_away(CENTRAL[name], rows_of(1), tmp_path / "model")
    assert len(set(releases.streams)) == len(releases.streams)


def test_what_takes_a_round_draws_from_other_streams_in_another(monkeypatch):
    """One key serves all entities of a run, each under its own number."""
    releases, key, data = Releases(monkeypatch), Key.from_seed(1), rows_of(1)
    points = 0.2 * key.normal("test.released.points", size=3 * N_USERS).reshape(N_USERS, 3)
    few = data._replace(values=np.minimum(data.values, 2.0))
    recovery = prototypes.Recovery(
        "masked", max_entries=N_ITEMS, value_range=(0.0, 2.0), epsilon=5.0, support_size=4, support_epsilon=5.0
    )
    for entity in range(3):
        options = {"key": key, "round": entity}
        private_lloyd(points, 2, radius=1.0, n_rounds=3, epsilon=50.0, **options)
        places = grid_candidates(points, 20, radius=1.0, depth=3, n_shifts=2, epsilon=50.0, **options)
        private_kmeans.private_kmeans(points, places, 2, radius=1.0, n_swaps=3, epsilon=1.0, **options)
        prototypes.recover_prototypes(few, np.arange(N_USERS) % 2, 2, recovery, **options)
    assert len(releases.streams) > 3 * (4 + 4 + 4 + 8 + 2)
    assert len(set(releases.streams)) == len(releases.streams)


def test_no_more_rows_of_a_user_leave_an_entity_than_were_agreed_on():
    """Over all entities, and whichever they are: group privacy is for so many."""
    model = PrivatePrototypes(1, 2, 4.0, max_entries=5, n_epochs=2, max_rows_per_user=3)
    used = []

    class Counting(LocalEngine):
        def _shards_of(self, shards):
            used.extend(np.concatenate([shard.user_ids for shard in shards.values()]).tolist())
            return super()._shards_of(shards)

    entities = np.arange(N_USERS) // 4 % 2
    model.fit(rows_of(1), entities, users=np.arange(N_USERS) % 5, key=Key.from_seed(1), engine=Counting())
    assert np.bincount(np.array(used) % 5).tolist() == [3] * 5
    assert len(set(used)) == 15


def test_an_entity_draws_what_its_ledger_says_and_no_more_often(tmp_path, monkeypatch):
    """Two entities, of two clusters each, in one of which a user is."""
    model, releases = CENTRAL["PrivatePrototypes, clusters"], Releases(monkeypatch)
    _, (ledger, *_) = given_away(model, rows_of(1), tmp_path / "model")
    events = {event.mechanism: (event.rho, event.count) for event in Ledger.from_json(ledger).events}
    swaps = [epsilon for epsilon, sensitivity in releases.draws if not sensitivity]
    choices = [epsilon for epsilon, sensitivity in releases.draws if sensitivity]
    cells = [1 / noise.scale for purpose, noise in releases.noises if purpose == "projection.grid"]
    sums = {noise for purpose, noise in releases.noises if purpose in ("prototypes.sums", "prototypes.counts")}
    squares = {model.budget(N_ITEMS).recovery.squared_norm_sensitivity / noise.stddev**2 for noise in sums}
    assert {name: count for name, (_, count) in events.items()} == {
        "k-means swap": len(swaps) / 2,
        "choice of items": len(choices) / 4,
        "noisy counts of a grid": len(cells) / 2,
        "masked sums with DiscreteGaussian": 1,
    }
    for name, costs in {
        "k-means swap": {epsilon**2 / 8 for epsilon in swaps},
        "choice of items": {epsilon**2 / 8 for epsilon in choices},
        "noisy counts of a grid": {epsilon**2 / 2 for epsilon in cells},
        "masked sums with DiscreteGaussian": {square / 2 for square in squares},
    }.items():
        (cost,) = map(float, costs)
        assert 0 < cost <= events[name][0] * (1 + 1e-12)
        assert cost > events[name][0] * (1 - 1e-6)


# ---- what is sent to users -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CENTRAL if name != "DPPopularity"])
def test_what_users_are_sent_follows_from_noisy_numbers(name, tmp_path, monkeypatch):
    """Round by round, whether or not the model shows it; rounds that go on with exact sums are seen."""

    def sent(is_broken):
        ran = with_the_noise_of_another(name, tmp_path / "model", monkeypatch, lambda: WatchedEngine(is_broken))
        return [engine.sent for *_, engine in ran]

    one, other = sent(is_broken=False)
    assert one == other
    one, other = sent(is_broken=True)
    assert (one == other) == (name in SEND_NOTHING)


# ---- the negative control --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SYSTEMS if "features" in name])
def test_features_are_part_of_what_is_released(name):
    model = type(SYSTEMS[name])(**SYSTEMS[name].get_params())
    without = type(model)(**model.get_params() | {"item_features": None})
    factors = [each.fit(rows_of(1), key=Key.from_seed(1)).item_factors_ for each in (model, without)]
    assert not np.array_equal(*factors)


@pytest.mark.parametrize("name", SYSTEMS | CENTRAL)
def test_what_is_said_matters(name, tmp_path):
    (one, _), (other, _) = (given_away((SYSTEMS | CENTRAL)[name], rows_of(seed), tmp_path / "model") for seed in (1, 2))
    assert one != other
