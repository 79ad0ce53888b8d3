"""The gate that looks at the released mean: what it decides by, and what either course costs."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from support.noise_case import RecordingEngine

from fastfedrec import DPGram, DPSubspace, Interactions, Key, datasets
from fastfedrec.accounting import gaussian_mu
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.systems._mean_gate import again, pooled, reach_of
from fastfedrec.systems.gram import dp_gram_rounds as rounds
from fastfedrec.systems.gram.dp_gram import LEAST_REFINED
from fastfedrec.testing import ALPHA

KEY = Key.from_seed(5)
SYSTEMS = [DPGram(4.0, refine=False), DPSubspace(4.0, n_columns=4), DPGram(4.0, refine=True), DPGram(4.0)]
NAMES = ["DPGram", "DPSubspace", "DPGram refined", "DPGram auto"]


def rows_of(length, n_users=600, n_items=40):
    """Users with so many items each, the first ones more often."""
    rng = np.random.default_rng(length)
    weights = 1 / np.arange(1, n_items + 1)
    dense = np.zeros((n_users, n_items), dtype=np.float32)
    for row in dense:
        row[rng.choice(n_items, length, replace=False, p=weights / weights.sum())] = 1
    return Interactions.from_scipy(scipy.sparse.csr_array(dense))


SHORT, LONG = rows_of(1, 300), rows_of(25, 3_000)


def fitted(model, data, **options):
    return type(model)(**model.get_params()).fit(data, key=KEY, **options)


def costs(phases):
    """The squared budget of some phases, exactly as wide as their noise is."""
    return sum(Fraction(system._unit) ** 2 / Fraction(system.noise.stddev) ** 2 for system, *_ in phases)


# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(n_users=st.integers(1, 30), seed=st.integers(0, 99))
def test_without_noise_it_is_the_mean_product_of_two_rows(n_users, seed):
    dense = np.random.default_rng(seed).random((n_users, 7)) < 0.4
    rows = dense / np.sqrt(np.maximum(dense.sum(axis=1, keepdims=True), 1))
    products = [float(a @ b) for a in rows for b in rows]
    assert reach_of(3.0, rows.mean(axis=0), 0.0) == pytest.approx(3.0 * np.mean(products))


def test_releases_are_pooled_by_what_they_tell():
    sums = np.array([[4.0, 0.0], [8.0, 1.0]])
    np.testing.assert_allclose(pooled(sums, [1.0, 1.0]), [6.0, 0.5])
    np.testing.assert_allclose(pooled(sums, [1.0, 3**-0.5]), [7.0, 0.75])


@pytest.mark.parametrize("model", SYSTEMS, ids=NAMES)
def test_a_closed_gate_releases_the_mean_of_both_rounds(model):
    engine = RecordingEngine()
    found = fitted(model, SHORT, engine=engine)
    first, second = engine.rounds
    np.testing.assert_array_equal(first.update.arrays["item_shares"], second.update.arrays["item_shares"])
    unit, squares = first.system._unit, [recorded.event.noise_multiplier**-2 for recorded in (first, second)]
    mean = sum(s * recorded.after.noisy for s, recorded in zip(squares, (first, second), strict=True)) / sum(squares)
    np.testing.assert_allclose(found.item_means_, mean / unit / 300, rtol=1e-9)
    assert not found.item_factors_.shape[1]
    ids, _ = found.recommend(SHORT.user_ids[:5], n=40, filter_seen=False)
    assert (ids == ids[0]).all()


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", SYSTEMS, ids=NAMES)
def test_what_is_released_first_decides(model):
    n_planned = len(model._plan(SHORT, KEY))
    found = fitted(model, SHORT), fitted(model, LONG)
    assert [sum(one.ledger_.events.values()) for one in found] == [2, n_planned]
    assert [one.item_factors_.shape[1] > 0 for one in found] == [False, True]
    assert ["by the released mean" in one.ledger_.summary() for one in found] == [True, False]
    opened = type(model)(**model.get_params() | {"gate": False})
    assert opened.fit(SHORT, key=KEY).item_factors_.shape[1] > 0


@pytest.mark.parametrize("model", SYSTEMS[:2], ids=NAMES[:2])
def test_the_gate_counts_the_public_number_of_users(model):
    """A third of them has rows; were only those counted, the same mean would not be enough."""
    found = fitted(type(model)(**model.get_params() | {"n_users": 3_000}), LONG.select_users(range(1_000)))
    noise = max(event.noise_multiplier for event in found.ledger_.events) / 3_000
    reach = reach_of(gaussian_mu(4.0, 1e-6), found.item_means_, noise)
    assert 1_000 * reach < found._least_reach() <= 3_000 * reach
    assert found.item_factors_.shape[1]


@pytest.mark.parametrize("model", SYSTEMS, ids=NAMES)
def test_either_course_costs_no_more_than_was_asked_for(model):
    found = {name: fitted(model, data) for name, data in (("closed", SHORT), ("open", LONG))}
    # mu^2 adds up; what draws take of delta is paid on top.
    for one in found.values():
        spent = sum(event.noise_multiplier**-2 * times for event, times in one.ledger_.events.items())
        assert 0.999 * gaussian_mu(4.0, 1e-6) < math.sqrt(spent) <= gaussian_mu(4.0, 1e-6)
    closed, opened = (found[name].ledger_.epsilon("public") for name in ("closed", "open"))
    assert 0.999 * opened < closed <= opened


@given(
    n_items=st.integers(2, 60), epsilon=st.sampled_from([1e-3, 0.00235, 0.3, 8.0]), refine=st.booleans(),
    share=st.sampled_from([0.05, 0.5, 0.95]),
)  # fmt: skip
def test_the_mean_again_is_no_dearer_than_what_it_stands_for(n_items, epsilon, refine, share):
    model = DPGram(epsilon, mean_share=share, refine=refine, n_users=2**22)
    model._least_signal = lambda n_items: 0.0
    (course, (first, other)) = model._courses(model._plan(rows_of(1, 3, n_items), KEY))
    assert first is course[0]
    assert other.system.n_skipped == len(course) - 1
    assert costs(course[1:]) * Fraction(999, 1000) < costs([other]) <= costs(course[1:])
    assert other.system.distance >= sum(system.distance for system, *_ in course[1:])
    assert other.system.distance >= other.system.noise.total_distance(n_items)


@pytest.mark.parametrize("gate", [True, False])
def test_the_released_mean_decides_on_a_third_release(gate):
    """At one number of users and one epsilon, so that public numbers are the same."""
    shorter, longer = rows_of(3, 1_000), rows_of(25, 1_000)
    found = [DPGram(3.0, gate=gate).fit(data, key=KEY) for data in (shorter, longer)]
    assert [[event.mechanism for event in one.ledger_.events] for one in found] == [
        ["Gaussian noise on item shares", "Gaussian noise on item pairs"],
        ["Gaussian noise on item shares", "Gaussian noise on item pairs", "Gaussian noise on item projections"],
    ]
    for one in found:
        noise = max(event.noise_multiplier for event in one.ledger_.events) / 1_000  # the first release's
        reach = reach_of(1_000 * gaussian_mu(3.0, 1e-6), one.item_means_, noise)
        assert (reach >= LEAST_REFINED) == (len(one.ledger_.events) == 3)
    # What one release may cost beside two that it stands for, and no less for its draws.
    for one in found:
        spent = sum(event.noise_multiplier**-2 for event in one.ledger_.events)
        assert math.sqrt(spent) == pytest.approx(gaussian_mu(3.0, 1e-6), rel=1e-9)
    few, more = (one.ledger_.epsilon("public") for one in found)
    assert 0.999 * more < few <= more


def test_an_open_gate_asks_for_pairs_where_a_third_release_is_never_made():
    """With features, and with the mean between the two numbers that it decides by."""
    data, features = rows_of(3, 1_000), {"kind": ["a", "b"] * 20}
    for model in (DPGram(3.0, item_features=features), DPGram(3.0, refine=False)):
        found = model.fit(data, key=KEY)
        assert [event.mechanism for event in found.ledger_.events][1:] == ["Gaussian noise on item pairs"]
        assert found.item_factors_.shape[1] > 0


@given(
    n_items=st.integers(2, 60), epsilon=st.sampled_from([1e-3, 0.00235, 0.3, 8.0]), gate=st.booleans(),
    share=st.sampled_from([0.05, 0.5, 0.95]),
)  # fmt: skip
def test_pairs_alone_are_no_dearer_than_two_releases(n_items, epsilon, gate, share):
    model = DPGram(epsilon, mean_share=share, gate=gate, n_users=2**22)
    model._least_signal = lambda n_items: 0.0
    (course, *_, (first, alone)) = model._courses(model._plan(rows_of(1, 3, n_items), KEY))
    assert first is course[0]
    assert isinstance(alone.system, rounds.PairSum)
    assert costs(course[1:]) * Fraction(999, 1000) < costs([alone]) <= costs(course[1:])
    assert alone.system.distance >= sum(system.distance for system, *_ in course[1:])
    assert alone.system.distance >= alone.system.noise.total_distance(n_items * (n_items - 1) // 2)


@pytest.mark.parametrize("gate", [True, False])
def test_a_node_finds_the_rounds_that_a_run_asks_for(gate):
    """Rounds are numbered as all that may be asked for is; whoever leaves some out says how many."""
    model, data = DPGram(3.0, gate=gate), rows_of(3, 1_000)
    phases, courses = model._all_phases(data, KEY), model._courses(model._plan(data, KEY))
    for course in courses:
        number = -1
        for system, *_ in course:
            number += 1 + system.n_skipped
            assert (type(phases[number].system), phases[number].system.width) == (type(system), system.width)


@pytest.mark.parametrize("says_short", [True, False])
@pytest.mark.parametrize("model", [SYSTEMS[0], SYSTEMS[3]], ids=[NAMES[0], NAMES[3]])
def test_the_gate_looks_at_nothing_but_what_was_released(model, says_short, monkeypatch):
    """With a first release that says otherwise, it goes the other way."""
    share = rounds.ShareSum
    apply, other = share.apply, (SHORT if says_short else LONG)

    def misled(self, state, update):
        (sums,) = self.local_round(state, other, KEY, 0).arrays.values()
        own = apply(self, state, update)
        return dataclasses.replace(
            own, noisy=own.noisy - update.arrays["item_shares"] + 10 * sums // (1 + 9 * says_short)
        )

    monkeypatch.setattr(share, "apply", misled)
    found = fitted(model, LONG if says_short else SHORT)
    assert (found.item_factors_.shape[1] == 0) == says_short
    assert sum(found.ledger_.events.values()) == 2 + (model.refine == "auto" and not says_short)


def test_no_two_rounds_draw_from_one_stream():
    plan = DPGram(4.0)._plan(SHORT, KEY)
    systems = [plan[0].system, again(rounds.ShareSumAgain, plan).system]
    states = [system.apply(plan[0].state, system.zero_update(plan[0].state, 0)) for system in systems]
    a, b = (state.noisy / float(system.noise.stddev) for state, system in zip(states, systems, strict=True))
    assert abs(float(a @ b)) < 40
    assert (np.abs(a - b) > 1e-3).all()


@pytest.mark.parametrize("model", SYSTEMS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("data", [SHORT, LONG], ids=["short", "long"])
def test_shards_and_threads_change_nothing(model, data):
    here = fitted(model, data, n_threads=1)
    there = fitted(model, data, n_threads=4, engine=LocalEngine(3))
    for name in here._saved:
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
    assert here.ledger_.to_dict() == there.ledger_.to_dict()


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_noise_is_taken_off_the_square():
    """The mean over many draws is the number without noise; where nothing is taken off, it is not."""
    rng, mean, noise = np.random.default_rng(1), np.full(500, 0.01), 0.02
    draws = [mean + noise * rng.normal(size=500) for _ in range(2_000)]
    margin = math.sqrt(2 * math.log(2 / ALPHA))

    def is_right(values):
        off = np.mean(values) - 1_000 * float(mean @ mean)
        return abs(off) < margin * np.std(values) / math.sqrt(len(values))

    assert is_right([reach_of(1_000.0, draw, noise) for draw in draws])
    assert not is_right([reach_of(1_000.0, draw, 0.0) for draw in draws])


@pytest.mark.slow
def test_short_rows_get_popularity_where_pairs_would_be_noise():
    """On data that no threshold was set by; with its gate off, DPGram is below."""
    data = datasets.generate_implicit(9_000, 400, key=Key.from_seed(40), mean_interactions=30)
    data = data.keep_interactions(Key.from_seed(41).uniform("test", size=data.n_interactions) < 0.2)
    split = next(LeaveOneOut().split(data, key=KEY))
    shares = [
        evaluate(model.fit(split.train, key=KEY), split.train, split.test, metrics=["hr@10"], candidates=Sampled(99),
                 key=KEY)["hr@10"]
        for model in (DPGram(0.5), DPGram(0.5, gate=False))
    ]  # fmt: skip
    assert shares[0] > shares[1] + 0.01
