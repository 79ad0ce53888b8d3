"""A PrivRec run resumed from a checkpoint ends with the same bits, and is refused on other data."""

import json

import numpy as np
import pytest
from support.privrec_case import FEATURES, KEY, SMALL, power_cut, small_data

from fastfedrec import Key, PrivRec
from fastfedrec.systems.privrec.rounds import PrivRecRounds

pytestmark = pytest.mark.ignores_values


@pytest.mark.parametrize("key", [KEY, None])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, monkeypatch, key):
    data = small_data()
    model = PrivRec(FEATURES, clip_norm=0.01, noise_multiplier=0.5, **(SMALL | {"n_rounds": 5}))
    with power_cut(PrivRecRounds, 2) as released:
        model.fit(data, key=key, checkpoint=tmp_path)
    # Even with other clients' answers, the open round is the recorded one.
    sampled = []
    train = PrivRecRounds._client_data
    monkeypatch.setattr(PrivRecRounds, "_client_data", lambda self, shard: sampled.append(1) or train(self, shard))
    third = []
    resumed = PrivRec(**model.get_params()).fit(
        data, checkpoint=tmp_path, callback=lambda m, r: third.append(m.parameters_) if r == 2 else None
    )
    # Rounds 3 and 4 are sampled.
    assert len(sampled) == 2
    np.testing.assert_array_equal(third[0], released[2])
    assert sum(resumed.ledger_.events.values()) == 5
    assert len(resumed.communication_.rounds) == 5
    if key is not None:
        whole = PrivRec(**model.get_params()).fit(data, key=key)
        np.testing.assert_array_equal(resumed.parameters_, whole.parameters_)
        assert resumed.ledger_.to_dict() == whole.ledger_.to_dict()
    # The run was complete.
    refitted = PrivRec(**model.get_params()).fit(data, checkpoint=tmp_path)
    np.testing.assert_array_equal(refitted.parameters_, resumed.parameters_)


def test_a_checkpoint_keeps_its_secrets(tmp_path):
    folder = tmp_path / "run"
    model = PrivRec(FEATURES, clip_norm=0.01, noise_multiplier=0.5, **SMALL).fit(small_data(), checkpoint=folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "key.json").stat().st_mode & 0o777 == 0o600
    secret = json.loads((folder / "key.json").read_text())["secret"]
    for path in folder.iterdir():
        assert path.name == "key.json" or bytes.fromhex(secret) not in path.read_bytes()
    model.save(tmp_path / "model")
    assert secret.encode() not in (tmp_path / "model").read_bytes()


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_bad_checkpoints(tmp_path):
    model = PrivRec(FEATURES, **SMALL)
    model.fit(small_data(), key=KEY, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="holds a run on other data or with other parameters"):
        PrivRec(FEATURES, **(SMALL | {"local_epochs": 3})).fit(small_data(), checkpoint=tmp_path)
    with pytest.raises(ValueError, match="holds a run on other data or with other parameters"):
        model.fit(small_data(n_users=31), checkpoint=tmp_path)
    with pytest.raises(ValueError, match="key must be None: the run in"):
        model.fit(small_data(), key=Key.from_seed(9), checkpoint=tmp_path)


def test_a_run_that_failed_in_its_first_round_is_not_resumed_on_other_data(tmp_path, monkeypatch):
    def power_cut(self, state, update):
        raise RuntimeError("power cut")

    model = PrivRec(FEATURES, **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(PrivRecRounds, "apply", power_cut)
        with pytest.raises(RuntimeError, match="power cut"):
            model.fit(small_data(), key=KEY, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="holds a run on other data"):
        model.fit(small_data(n_users=31), checkpoint=tmp_path)
    whole = PrivRec(FEATURES, **SMALL).fit(small_data(), key=KEY)
    np.testing.assert_array_equal(model.fit(small_data(), checkpoint=tmp_path).parameters_, whole.parameters_)
