"""Tests of releases: a fit's outputs depend on users' data only through messages or noisy numbers."""

import copy
import dataclasses
import importlib

import numpy as np
import pytest
from support.decision_case import prefer
from support.models import gather, new

from fastfedrec import DPPopularity, Interactions, Key, PrivatePrototypes
from fastfedrec.accounting import Ledger
from fastfedrec.mechanisms.bounded_rows import grid_candidates
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.systems.private_prototypes import private_kmeans, prototypes, rounds
from fastfedrec.systems.private_prototypes.private_lloyd import private_lloyd

N_USERS, N_ITEMS = 40, 30

#: CENTRAL: a server or an entity adds noise. LOCAL: users randomize their messages.
CENTRAL, LOCAL = gather("central"), gather("local")
#: Systems with counts outside of the rounds, or with state of devices between rounds.
BESIDE_MESSAGES = ("PrivRec, all stages", "FedRec", "DPPopularity")
SYSTEMS = {name: model for name, model in (CENTRAL | LOCAL).items() if name not in BESIDE_MESSAGES}
#: Systems with one round, in which users receive no learnt values.
SEND_NOTHING = ("DPALS, uniform", "PrivatePrototypes", "PrivatePrototypes, clusters")


def content(value):
    """Return the content of a state in comparable form: the type, shape and bytes of arrays."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: content(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [content(part) for part in value]
    return {type(value).__name__: content(vars(value))} if dataclasses.is_dataclass(value) else repr(value)


class WatchedEngine(LocalEngine):
    """Engine that records its messages to users in each round; a broken one uses exact sums instead of noisy ones."""

    def __init__(self, is_broken):
        super().__init__(n_shards=2)
        self.is_broken, self.sent = is_broken, []

    def _receiver(self, system, state, *arguments):
        self.sent.append(content(state))
        return super()._receiver(system, state, *arguments)

    def run(self, system, *arguments, **options):
        return super().run(without_noise(system) if self.is_broken else system, *arguments, **options)


def without_noise(system):
    """Return a copy of rounds with a server that adds no noise."""

    def apply(state, update):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IntegerNoise, "_add", lambda noise, values, *remaining: values.copy())
            return system.apply(state, update)

    # The copy leaves the given system unchanged.
    broken = copy.copy(system)
    vars(broken)["apply"] = apply  # rounds may be frozen
    return broken


@pytest.fixture(autouse=True)
def believing(monkeypatch, request):
    """Make models use features or personal scores as the case requires, since random rows have no structure.

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
    original = shrinkage.believed_scales
    monkeypatch.setattr(shrinkage, "believed_scales", lambda *given, min_z=None: original(*given, min_z=0.0))


class ScriptedEngine(LocalEngine):
    """Engine that passes `messages` to the server in place of its shards' answers, and records the passed ones."""

    def __init__(self, messages=()):
        super().__init__()
        self._script, self.messages = list(messages), []

    def _answers(self, *arguments):
        for answer in super()._answers(*arguments):
            # The message has the sender and number of users of this run, and the content of the other run.
            sent = dataclasses.replace(answer, arrays=self._script.pop(0).arrays) if self._script else answer
            self.messages.append(sent)
            yield sent


def rows_of(seed):
    """Return ratings of N_USERS users and N_ITEMS items; rows of different seeds are independent."""
    words = Key.from_seed(seed).words("test.released", size=N_USERS * N_ITEMS).reshape(N_USERS, N_ITEMS)
    # Row 1 has odd words only, so its user has no ratings for seed 2.
    words[:3] |= np.arange(3, dtype=np.uint64)[:, None] % 2  # some users have no ratings or few
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
    model = new(model).fit(data, key=Key.from_seed(1), **options)
    assert engine is None or engine.rejections == []
    model.save(path, include_users=False)
    reports = [model.ledger_.to_json(), model.ledger_.summary(), getattr(model, "communication_", None)]
    return path.read_bytes(), reports


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_equal_messages_give_equal_outputs_for_any_data(name, tmp_path):
    """With equal messages, the server's outputs are equal for different data."""
    first = ScriptedEngine()
    before = given_away(SYSTEMS[name], rows_of(1), tmp_path / "model", first)
    assert given_away(SYSTEMS[name], rows_of(2), tmp_path / "model", ScriptedEngine(first.messages)) == before


# ---- noisy numbers ---------------------------------------------------------------------------------------------------


class Releases:
    """Record the outputs and parameters of all mechanisms in a fit, or replay the outputs of another fit."""

    def __init__(self, patch, script=()):
        self.given, self.how, self.streams, script = [], [], [], list(script)
        self.noises, self.draws = [], []
        add, draw = IntegerNoise._add, private_kmeans.draw_loss

        def noisy(noise, values, key, purpose, round_number, *remaining):
            noisy_values = add(noise, values, key, purpose, round_number, *remaining)
            if script:
                noisy_values[...] = script.pop(0)
            self.given.append(noisy_values.copy())
            self.noises.append((purpose, noise))
            self.how.append((repr(noise), purpose, round_number, values.shape))
            self.streams.append((key._secret, purpose, round_number))
            return noisy_values

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

        def clustered(points, candidates, n_clusters, **options):
            self.how.append((candidates.tolist(), n_clusters, options["radius"]))
            return cluster(points, candidates, n_clusters, **options)

        patch.setattr(rounds, "private_kmeans", clustered)


def with_the_noise_of_another(name, path, monkeypatch, engine_of):
    """Yield (release, records, engine) of one data set, and of another with the noisy numbers of the first."""
    given = ()
    for seed in (1, 2):
        with monkeypatch.context() as patch:
            releases, engine = Releases(patch, given), engine_of()
            given = releases.given if seed == 1 else given
            yield given_away(CENTRAL[name], rows_of(seed), path, engine), releases, engine


@pytest.mark.parametrize("name", CENTRAL)
def test_outputs_of_a_server_follow_from_noisy_numbers(name, tmp_path, monkeypatch):
    """With the noisy numbers of other data, the release equals the other's bit for bit, and so do the noises."""
    one, other = with_the_noise_of_another(name, tmp_path / "model", monkeypatch, lambda: LocalEngine(2))
    assert other[0] == one[0]
    assert other[1].how == one[1].how
    assert one[1].given


@pytest.mark.parametrize("name", CENTRAL)
def test_no_stream_of_random_words_serves_two_releases(name, tmp_path, monkeypatch):
    releases = Releases(monkeypatch)
    given_away(CENTRAL[name], rows_of(1), tmp_path / "model")
    assert len(set(releases.streams)) == len(releases.streams)


def test_functions_with_a_round_draw_from_separate_streams_per_round(monkeypatch):
    """One key serves all entities of a run, each with a separate number."""
    releases, key, data = Releases(monkeypatch), Key.from_seed(1), rows_of(1)
    points = 0.2 * key.normal("test.released.points", size=3 * N_USERS).reshape(N_USERS, 3)
    few = data._replace(values=np.minimum(data.values, 2.0))
    recovery = prototypes.Recovery(
        "masked", max_entries=N_ITEMS, value_range=(0.0, 2.0), epsilon=5.0, support_size=4, support_epsilon=5.0
    )
    for entity in range(3):
        options = {"key": key, "round": entity}
        private_lloyd(points, 2, radius=1.0, n_rounds=3, epsilon=50.0, **options)
        candidates = grid_candidates(points, 20, radius=1.0, depth=3, n_shifts=2, epsilon=50.0, **options)
        private_kmeans.private_kmeans(points, candidates, 2, radius=1.0, n_swaps=3, epsilon=1.0, **options)
        prototypes.recover_prototypes(few, np.arange(N_USERS) % 2, 2, recovery, **options)
    assert len(releases.streams) > 3 * (4 + 4 + 4 + 8 + 2)
    assert len(set(releases.streams)) == len(releases.streams)


def test_at_most_the_agreed_number_of_rows_of_a_user_is_used():
    """The limit is over all entities, because group privacy covers this number of rows."""
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


def test_an_entity_draws_exactly_the_noise_of_its_ledger(tmp_path, monkeypatch):
    """The run has two entities with two clusters each; a user is in one cluster."""
    model, releases = CENTRAL["PrivatePrototypes, clusters"], Releases(monkeypatch)
    _, (ledger, *_) = given_away(model, rows_of(1), tmp_path / "model")
    events = {event.mechanism: (event.rho, event.count) for event in Ledger.from_json(ledger).events}
    swaps = [epsilon for epsilon, sensitivity in releases.draws if not sensitivity]
    choices = [epsilon for epsilon, sensitivity in releases.draws if sensitivity]
    cells = [1 / noise.scale for purpose, noise in releases.noises if purpose == "projection.grid"]
    sums = {noise for purpose, noise in releases.noises if purpose in ("prototypes.sums", "prototypes.counts")}
    squares = {model._rounds(N_ITEMS).recovery.squared_norm_sensitivity / noise.stddev**2 for noise in sums}
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
        # The recorded cost covers the drawn noise and exceeds it by at most one part in a million.
        assert 0 < cost <= events[name][0] * (1 + 1e-12)
        assert cost > events[name][0] * (1 - 1e-6)


# ---- messages to users -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CENTRAL if name != "DPPopularity"])
def test_messages_to_users_follow_from_noisy_numbers(name, tmp_path, monkeypatch):
    """The check covers each round's messages; negative control: rounds with exact sums are detected."""

    def sent(is_broken):
        ran = with_the_noise_of_another(name, tmp_path / "model", monkeypatch, lambda: WatchedEngine(is_broken))
        return [engine.sent for *_, engine in ran]

    one, other = sent(is_broken=False)
    assert one == other
    one, other = sent(is_broken=True)
    assert (one == other) == (name in SEND_NOTHING)


# ---- the negative control --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SYSTEMS if "features" in name])
def test_features_are_part_of_the_release(name):
    models = new(SYSTEMS[name]), new(SYSTEMS[name], item_features=None)
    factors = [model.fit(rows_of(1), key=Key.from_seed(1)).item_factors_ for model in models]
    assert not np.array_equal(*factors)


@pytest.mark.parametrize("name", SYSTEMS | CENTRAL)
def test_outputs_depend_on_messages(name, tmp_path):
    (one, _), (other, _) = (given_away((SYSTEMS | CENTRAL)[name], rows_of(seed), tmp_path / "model") for seed in (1, 2))
    assert one != other
