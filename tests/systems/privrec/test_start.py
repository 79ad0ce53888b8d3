"""PrivRec: a network that starts from a private release of popularity."""

import numpy as np
import pytest
from support.privrec_case import FEATURES, KEY, SMALL, small_data, small_log

from fastfedrec import PrivRec
from fastfedrec.accounting import CentralRelease, Gaussian, Ledger
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.systems.privrec.start import popularity_start, release_popularity

pytestmark = pytest.mark.ignores_values


def test_a_network_starts_from_private_popularity():
    data = small_data()
    start = {"n_factors": 16, "hidden": (32, 16), "n_rounds": 0}
    model = PrivRec(FEATURES, popularity_epsilon=1.5, threshold=3.0, **start).fit(data, key=KEY)
    (event,) = model.ledger_.events
    assert (event.epsilon, event.neighboring, event.sampling) == (pytest.approx(1.5), "replace", "none")
    assert model.ledger_.epsilon("public") == pytest.approx(1.5)
    assert [(r.download, r.upload, r.n_clients) for r in model.communication_.rounds] == [(0, 40, 30)]
    assert any("PrivRec assumes that the list of users" in note for note in model.ledger_.notes)
    # With large popularity, the noise of half an epsilon a user is DPPopularity's, and at most 10 items count.
    counts = release_popularity(data.binarize(3.0), 1e6, KEY, Ledger())
    assert counts.sum() == np.minimum(data.binarize(3.0).interactions_per_user(), 10).sum()
    network = TwoTower(model.features_, n_factors=16, hidden=(32, 16))
    # Only the channel of popularity is nonzero.
    quiet = np.zeros(network.n_parameters, dtype=np.float64)
    scores = network.score(popularity_start(network, quiet, counts, 4), [0, 7])
    expected = np.log(np.maximum(counts, 1.0) / (4 * counts.mean()))
    np.testing.assert_allclose(scores, [expected, expected], rtol=1e-9)
    # Next to the channel, a randomly drawn network changes the order little.
    random = network.initial_parameters(KEY, dtype=np.float64)
    scores = network.score(popularity_start(network, random, counts, 4), [0, 7])
    assert np.corrcoef(scores[0], expected)[0, 1] > 0.95
    # If all items are equally popular, there is no division by 0.
    flat = network.score(popularity_start(network, quiet, np.zeros(40), 4), [0])
    np.testing.assert_allclose(flat, -np.log(4.0))


def test_rounds_after_private_popularity_keep_within_the_target(tmp_path):
    private = {"popularity_epsilon": 0.5, "clip_norm": 0.01, "target_epsilon": 1.5, **SMALL}
    model = PrivRec(FEATURES, **private).fit(small_data(), key=KEY, checkpoint=tmp_path)
    assert [type(event) for event in model.ledger_.events] == [CentralRelease, Gaussian]
    assert 1.3 < model.ledger_.epsilon("public") <= 1.5
    resumed = PrivRec(FEATURES, **private).fit(small_data(), key=KEY, checkpoint=tmp_path)
    np.testing.assert_array_equal(resumed.parameters_, model.parameters_)
    assert resumed.ledger_.to_dict() == model.ledger_.to_dict()


def test_a_log_starts_from_the_number_of_users_of_each_item():
    log = small_log()
    model = PrivRec(
        {"context": ["hour"]}, n_rounds=0, popularity_epsilon=1e6, n_factors=16, hidden=(16,), threshold=3.0
    )
    scores = model.fit(log, key=KEY).score_items(log.interactions.user_ids[:1], contexts={"hour": [1]})[0]
    counts = release_popularity(log.interactions.binarize(), 1e6, KEY, Ledger())
    assert np.corrcoef(scores, np.log(np.maximum(counts, 1)))[0, 1] > 0.9
