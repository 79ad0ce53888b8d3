"""What a fit gives away is made of what its server heard, or of noisy numbers, and of nothing else of people's data."""

import dataclasses

import numpy as np
import pytest

from fastfedrec import (
    DPALS,
    DPFMF,
    FMFLDP,
    DPGram,
    DPPopularity,
    FedRec,
    Interactions,
    Key,
    PrivatePrototypes,
    PrivRec,
    ShuffledSketchGram,
    private_kmeans,
    prototypes,
)
from fastfedrec.engines.local import LocalEngine
from fastfedrec.mechanisms.integer_noise import IntegerNoise

N_USERS, N_ITEMS = 40, 30

SMALL = {"n_rounds": 2, "cohort_size": 20, "local_epochs": 1, "n_factors": 16, "hidden": (16,), "clip_norm": 0.1}
STAGE1 = {"n_rounds": 2, "cohort_size": 10, "length": 4}

#: Those whose noise a server or an entity adds, and those whose users randomize what they send.
CENTRAL = {
    "DPGram": DPGram(4.0, gate=False),
    "DPGram, popularity alone": DPGram(1.0),
    "DPGram, neighbours": DPGram(4.0, score="knn", gate=False, n_users=1000),
    "DPALS": DPALS(4.0, n_factors=3, n_rounds=2, n_start_rounds=2, max_items=4),
    "DPALS, uniform": DPALS(4.0, n_factors=3, n_rounds=1, n_start_rounds=0, max_items=4, sampling="uniform"),
    "DPFMF": DPFMF(4.0, n_factors=3, n_rounds=2),
    "PrivRec": PrivRec(noise_multiplier=0.5, **SMALL),
    "PrivRec, Laplace": PrivRec(noise_multiplier=0.5, noise="laplace", **SMALL),
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
        60.0,
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
    "ShuffledSketchGram": ShuffledSketchGram(20.0, n_rotations=2, gate=False),
    "ShuffledSketchGram, popularity alone": ShuffledSketchGram(20.0, n_rotations=2),
    "FMFLDP": FMFLDP(n_rounds=2, n_factors=3, n_reports=10),
}
#: Of counts outside of the rounds, or of what devices remember between them.
BESIDE_MESSAGES = ("PrivRec, all stages", "FedRec")
SYSTEMS = {name: model for name, model in (CENTRAL | LOCAL).items() if name not in BESIDE_MESSAGES}
CENTRAL["DPPopularity"] = DPPopularity(max_items_per_user=3)


class ScriptedEngine(LocalEngine):
    """Hands `messages` to the server, if there are any, whatever its shards would answer; and keeps what it handed."""

    def __init__(self, messages=()):
        super().__init__()
        self._script, self.messages = list(messages), []

    def _answers(self, system, state, placed, *arguments):
        for own in super()._answers(system, state, placed, *arguments):
            # The senders and numbers of users of this run, and the other's content.
            sent = dataclasses.replace(own, arrays=self._script.pop(0).arrays) if self._script else own
            self.messages.append(sent)
            yield sent


def rows_of(seed):
    """Ratings of as many users on as many items, in which nothing but a seed's own rows is alike."""
    words = Key.from_seed(seed).words("test.released", size=N_USERS * N_ITEMS).reshape(N_USERS, N_ITEMS)
    words[:3] |= np.arange(3, dtype=np.uint64)[:, None] % 2  # among them people who have nothing, or little
    users, items = np.nonzero(words % 4 == seed % 2)
    values, times = (words[users, items] // 4 % 5 + 1).astype(np.float32), (words[users, items] % 1000).astype(np.int64)
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
        add, draw = IntegerNoise._add, private_kmeans.draw_loss

        def noisy(noise, values, key, purpose, round_number, *rest):
            found = add(noise, values, key, purpose, round_number, *rest)
            if script:
                found[...] = script.pop(0)
            self.given.append(found.copy())
            self.how.append((repr(noise), purpose, round_number, values.shape))
            self.streams.append((key._secret, purpose, round_number))
            return found

        def drawn(losses, epsilon, words, *sensitivity):
            self.given.append(script.pop(0) if script else draw(losses, epsilon, words, *sensitivity))
            self.how.append((epsilon, sensitivity, losses.shape))
            self.streams.append(tuple(words.tolist()))
            return self.given[-1]

        patch.setattr(IntegerNoise, "_add", noisy)
        for module in (private_kmeans, prototypes):
            patch.setattr(module, "draw_loss", drawn)


@pytest.mark.parametrize("name", CENTRAL)
def test_what_leaves_a_server_follows_from_noisy_numbers(name, tmp_path, monkeypatch):
    """With the noisy numbers of other data, the release is the other's to the bit; as are kinds and sizes of noise."""
    with monkeypatch.context() as patch:
        first = Releases(patch)
        before = given_away(CENTRAL[name], rows_of(1), tmp_path / "model")
    with monkeypatch.context() as patch:
        second = Releases(patch, first.given)
        assert given_away(CENTRAL[name], rows_of(2), tmp_path / "model") == before
    assert second.how == first.how
    assert first.given


@pytest.mark.parametrize("name", CENTRAL)
def test_no_stream_of_random_words_serves_two_releases(name, tmp_path, monkeypatch):
    releases = Releases(monkeypatch)
    given_away(CENTRAL[name], rows_of(1), tmp_path / "model")
    assert len(set(releases.streams)) == len(releases.streams)


# ---- the negative control --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS | CENTRAL)
def test_what_is_said_matters(name, tmp_path):
    (one, _), (other, _) = (given_away((SYSTEMS | CENTRAL)[name], rows_of(seed), tmp_path / "model") for seed in (1, 2))
    assert one != other
