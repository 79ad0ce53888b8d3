"""Attacks by the parties of SDCF on rated items, with negative controls."""

import numpy as np
import pytest
from support.data import random_ratings

from fastfedrec import SDCF, Key, attacks

KEY = Key.from_seed(3)
OPTIONS = {"n_factors": 4, "n_rounds": 4, "keep_probability": 0.9, "add_probability": 0.1, "report_probability": 0.8}


@pytest.fixture(scope="module")
def data():
    return random_ratings(40, 200, 7, density=0.15)


def recorded(data, **options):
    return SDCF(**{**OPTIONS, **options}).fit(data, key=KEY, record_views=range(4)).records_


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_intersection_finds_items_that_pass_both_stages(data):
    result = attacks.intersection(recorded(data, false_report_probability=0.1), data)
    assert result.auc > 0.75
    assert result.precision > 2 * result.base_rate
    assert result.beats_chance


def test_intersection_finds_no_items_if_answers_hardly_depend_on_ratings(data):
    """Check the negative control: both stages answer nearly equally for rated and unrated items."""
    alike = {"keep_probability": 0.5001, "add_probability": 0.5, "report_probability": 0.5, "sharing": "additive"}
    result = attacks.intersection(recorded(data, **alike, false_report_probability=0.4999), data)
    assert abs(result.auc - 0.5) < 0.03
    assert not result.beats_chance


@pytest.mark.parametrize("sharing", ["published", "additive"])
def test_vectors_reveal_virtual_items_to_denoisers_and_server_only_in_collusion(data, sharing):
    record = recorded(data, denoise=True, sharing=sharing, n_denoisers=2, min_clients_per_denoiser=10)[0]
    with_collusion = attacks.value_matching(record, data)
    assert with_collusion.precision == with_collusion.recall == 1 > with_collusion.base_rate
    without_collusion = attacks.value_matching(record, data, colluding=False)
    # If one user of a group reports an item, the sum is that user's vector; other users' items are not found.
    assert without_collusion.recall == 1
    assert without_collusion.accuracy < without_collusion.base_rate + 0.1
    assert not without_collusion.is_rated[without_collusion.claims < 0].any()


def test_value_matching_with_the_records_of_another_round_finds_no_items(data):
    """Check the negative control: noise is drawn anew, so no vector is sent twice."""
    first, last = recorded(data, denoise=True)[::3]
    mixed = type(first)(**{**vars(first), "denoisers": last.denoisers})
    result = attacks.value_matching(mixed, data)
    assert result.precision == result.base_rate
    assert np.all(result.claims == 1)
