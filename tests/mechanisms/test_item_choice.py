"""Tests of the private choice of items against its twin: the output, its content, and the claimed chances."""

import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.mechanisms import item_choice as naive
from support.interaction_case import assert_well_formed, table_of
from support.significance import assert_only, share_is

from fastfedrec import DPPopularity, Interactions, Key, choose_items, load
from fastfedrec.accounting import Ledger
from fastfedrec.core.threads import default_threads
from fastfedrec.data.remote_users import RemoteUsers
from fastfedrec.data.store import open_interactions, store_interactions
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout
from fastfedrec.mechanisms import DiscreteLaplace, ExponentialMechanism
from fastfedrec.mechanisms.item_choice import count_threshold


def crowd(counts, **options):
    """Return rows of {item: count}, with `count` users per item who have only this item."""
    users, items = [], []
    for item, count in counts.items():
        for number in range(count):
            users.append(f"{item!r} {number}")
            items.append(item)
    return Interactions.from_arrays(users, items, **options)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=100)  # few noisy counts are just at the threshold
@given(
    counts=st.dictionaries(st.integers(-5, 60), st.integers(1, 40), min_size=1, max_size=12),
    n=st.integers(1, 8), epsilon=st.sampled_from([0.5, 1.0, 3.0]), delta=st.sampled_from([1e-6, 0.01, 0.2]),
    per_user=st.sampled_from([1, 2, 5]), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_items_above_the_threshold_equal_the_twin(counts, n, epsilon, delta, per_user, seed):
    data, key = crowd(counts), Key.from_seed(seed)
    chosen = choose_items(data, n, epsilon, delta=delta, max_items_per_user=per_user, key=key)
    noise = DiscreteLaplace(per_user / Fraction(epsilon))
    drawn = noise.sample(len(counts), key=key, purpose="item_choice.noise").tolist()
    expected = naive.above_threshold(
        counts, dict(zip(sorted(counts), drawn, strict=True)), naive.threshold(per_user / epsilon, delta / per_user), n
    )
    assert chosen.item_ids.tolist() == expected
    assert chosen.interactions_per_item().tolist() == [counts[item] for item in expected]
    assert_well_formed(chosen)
    assert chosen.n_users == data.n_users


@given(st.fractions(Fraction(1, 20), 50), st.floats(1e-12, 0.9))
def test_the_threshold_equals_the_twin(scale, delta):
    ours, theirs = count_threshold(scale, Fraction(delta)), naive.threshold(float(scale), delta)
    assert ours in (theirs, theirs + 1)  # rounded up within the precision of floats
    assert ours == theirs or math.isclose(naive.chance(1, float(scale), theirs), delta, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "per_user", "delta"),
    [(1.0, 1, 1e-6), (0.1, 50, 1e-9), (8.0, 3, 0.3), (1e-6, 10, 1e-12), (50.0, 1, 1e-300)],
)
def test_an_item_of_one_user_passes_with_a_chance_of_at_most_delta(epsilon, per_user, delta):
    with mpmath.workdps(80):
        scale, per_item = Fraction(per_user) / Fraction(epsilon), Fraction(delta) / per_user
        lowest = count_threshold(scale, per_item)
        q = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)

        def passes(t):
            return q ** (t - 1) / (1 + q)

        allowed = mpmath.mpf(per_item.numerator) / per_item.denominator
        assert passes(lowest) <= allowed
        assert lowest == 2 or passes(lowest - 1) > allowed  # the threshold is the smallest possible


@given(st.lists(st.integers(0, 30), min_size=2, max_size=10), st.integers(1, 9), st.integers(0, 10**6))
def test_a_public_list_is_chosen_from_by_the_exponential_mechanism(counts, n, seed):
    ids = [f"i{j}" for j in range(len(counts))]
    data, key = crowd(dict(zip(ids, counts, strict=True)), item_ids=ids[::-1]), Key.from_seed(seed)
    chosen = choose_items(data, n, 2.0, key=key)
    if n >= len(ids):
        assert chosen is data
        return
    best = ExponentialMechanism(2.0, n_selected=n, monotone=True).privatize(counts[::-1], key=key)
    assert chosen.item_ids.tolist() == [ids[::-1][j] for j in np.sort(best)]
    assert chosen.catalogue == "chosen"


@given(
    counts=st.lists(st.integers(0, 4), min_size=5, max_size=12), n=st.integers(4, 11), per_user=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_many_items_of_a_public_list_have_the_largest_noisy_counts(counts, n, per_user, seed):
    ids, n = [f"i{j}" for j in range(len(counts))], min(n, len(counts) - 1)
    data, key = crowd(dict(zip(ids, counts, strict=True)), item_ids=ids[::-1]), Key.from_seed(seed)
    ledger = Ledger()
    chosen = choose_items(data, n, 0.5, max_items_per_user=per_user, key=key, ledger=ledger)
    noise = DiscreteLaplace(per_user / Fraction(0.5)).sample(len(ids), key=key, purpose="item_choice.noise").tolist()
    noisy = [count + drawn for count, drawn in zip(counts[::-1], noise, strict=True)]
    best = sorted(range(len(ids)), key=lambda j: (-noisy[j], j))[:n]
    assert chosen.item_ids.tolist() == [ids[::-1][j] for j in sorted(best)]
    assert chosen.catalogue == "chosen"
    assert [(event.mechanism, event.epsilon) for event in ledger.events] == [("largest noisy item counts", 0.5)]


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5))
def test_chosen_items_keep_the_users_interactions(seed, per_user, n):
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(rng.random((30, 6)) < 0.6)
    names = np.array(["a", "bb", "ccc", "dddd", "eeeee", "ffffff"])
    data = Interactions.from_arrays(rows, names[columns], rng.integers(1, 6, len(rows)), np.arange(len(rows)))
    data = data.with_features(item_features={"name": data.item_ids})
    chosen = choose_items(data, n, 20.0, delta=0.5, max_items_per_user=per_user, key=Key.from_seed(seed))
    assert_well_formed(chosen)
    selected = set(chosen.item_ids.tolist())
    assert len(selected) <= n
    assert chosen.item_ids.tolist() == sorted(selected) == chosen.item_features["name"].tolist()
    whole = {
        user: {item: value for item, value in row.items() if item in selected} for user, row in table_of(data).items()
    }
    assert table_of(chosen) == whole
    times = dict(zip(zip(rows, names[columns], strict=True), np.arange(len(rows)), strict=True))
    of_user = np.repeat(chosen.user_ids, chosen.interactions_per_user())
    assert chosen.timestamps.tolist() == [
        times[pair] for pair in zip(of_user, chosen.item_ids[chosen.indices], strict=True)
    ]


def test_no_trace_of_omitted_items_remains():
    frequent = {"b": 500, "a": 500}
    for rare in ("x" * 1000, 7, ("t", 1)):
        data = crowd(frequent | {rare: 1})
        chosen = choose_items(data, 9, 5.0, delta=1e-9, max_items_per_user=1, key=Key.from_seed(0))
        assert chosen.item_ids.tolist() == ["a", "b"]
        assert chosen.item_ids.dtype == np.dtype("<U1")
    # Columns in an order that comes from the data leave in an order that does not.
    matrix = scipy.sparse.csr_array(np.repeat([[1, 0], [0, 1]], 500, axis=0))
    for ids in (["a", "b"], ["b", "a"]):
        fields = Interactions.from_scipy(matrix, item_ids=ids)._fields() | {"catalogue": "data"}
        chosen = choose_items(Interactions(**fields), 9, 5.0, delta=1e-9, max_items_per_user=1, key=Key.from_seed(0))
        assert chosen.item_ids.tolist() == ["a", "b"]
        first = ids.index("a")
        np.testing.assert_array_equal(chosen.to_scipy().toarray()[:, 0], matrix.toarray()[:, first])


def test_an_item_without_users_is_never_chosen():
    data = crowd({"a": 3}).with_features()
    fields = data._fields() | {"item_ids": np.array(["a", "z"])}
    for seed in range(200):  # a threshold of 2, which noise alone passes every third time
        chosen = choose_items(Interactions(**fields), 2, 0.5, delta=0.4, max_items_per_user=1, key=Key.from_seed(seed))
        assert "z" not in chosen.item_ids.tolist()


def test_a_choice_is_recorded_before_it_is_made(monkeypatch):
    data, ledger = crowd({"a": 40, "b": 3}), Ledger(delta=1e-5)
    choose_items(data, 1, 0.5, delta=1e-6, key=Key.from_seed(0), ledger=ledger)
    stated = [(event.epsilon, event.delta, event.neighboring, event.count) for event in ledger.events]
    assert stated == [(0.5, 1e-6, "add_remove", 1)]
    assert ledger.is_simulation
    public = Ledger()
    choose_items(crowd({"a": 40, "b": 3}, item_ids=["a", "b", "c"]), 1, 0.5, ledger=public)
    assert [(event.epsilon, event.delta, event.neighboring) for event in public.events] == [(0.5, 0.0, "add_remove")]
    assert not public.is_simulation
    noisy_ledger = Ledger()
    shelf = crowd({"a": 40, "b": 3}, item_ids=["a", "b", "c"])
    chosen = choose_items(shelf, 2, 0.5, max_items_per_user=1, ledger=noisy_ledger)
    stated = [(event.mechanism, event.epsilon, event.delta, event.neighboring) for event in noisy_ledger.events]
    assert stated == [("largest noisy item counts", 0.5, 0.0, "add_remove")]
    notes = DPPopularity(1.0).fit(chosen, ledger=noisy_ledger).ledger_.notes
    assert [note.split(" costs ")[0] for note in notes] == [
        "Run 1 of this ledger",
        "Run 2 of this ledger, of DPPopularity,",
    ]

    def refuse(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(DiscreteLaplace, "sample", refuse)
    interrupted = Ledger()
    with pytest.raises(KeyboardInterrupt):
        choose_items(data, 1, 0.5, delta=1e-6, ledger=interrupted)
    assert len(interrupted.events) == 1


def test_an_entropy_key_serves_once():
    data, public = crowd({"a": 40, "b": 3}), crowd({"a": 40, "b": 3}, item_ids=["a", "b", "c"])
    for first in (data, public):
        key = Key.from_entropy()
        choose_items(first, 1, 0.5, delta=1e-6, key=key)
        for second in (data, public):
            with pytest.raises(ValueError, match="key is single-use and was already used by choose_items"):
                choose_items(second, 1, 0.5, delta=1e-6, key=key)


def test_a_fit_on_chosen_items_adds_to_the_same_ledger():
    ledger = Ledger(delta=1e-5)
    data = choose_items(crowd({"a": 400, "b": 300, "c": 1}), 2, 1.0, delta=1e-6, ledger=ledger, key=Key.from_seed(0))
    model = DPPopularity(1.0).fit(data, key=Key.from_seed(1), ledger=ledger)
    assert model.interactions_.item_ids.tolist() == ["a", "b"]
    assert len(ledger.events) == 2
    assert not any("list of items" in note for note in ledger.notes)
    assert data.shard(2)[0].catalogue == data.select_users([0]).catalogue == "chosen"


def test_a_choice_survives_stores_splits_shards_pickles_and_models(tmp_path):
    data, ledger = crowd({"a": 300, "b": 200, "c": 1}), Ledger(delta=1e-5)
    data = data.with_features(item_features={"genres": [("war",), ("drama", "war"), ()]})
    store_interactions(data, tmp_path / "data")
    options = {"delta": 1e-6, "max_items_per_user": 1, "key": Key.from_seed(0)}
    chosen = choose_items(open_interactions(tmp_path / "data"), 3, 1.0, **options, ledger=ledger)
    np.testing.assert_array_equal(chosen.item_ids, choose_items(data, 3, 1.0, **options).item_ids)
    store_interactions(chosen, tmp_path / "chosen")
    stored = open_interactions(tmp_path / "chosen")
    model = DPPopularity(1.0).fit(stored, key=Key.from_seed(1), ledger=ledger)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    selected = loaded.interactions_
    parts = [
        *next(LeaveOneOut().split(chosen, key=Key.from_seed(2))),
        *next(RandomHoldout(share=0.5).split(chosen, key=Key.from_seed(2))),
    ]
    for part in (
        stored,
        selected,
        pickle.loads(pickle.dumps(stored)),
        *parts,
        *stored.shard(2),
        chosen.select_items([1]),
    ):
        assert part.catalogue == "chosen"
    assert selected.item_features["genres"].tolist() == [("war",), ("drama", "war")]
    assert next(iter(loaded.ledger_.events)).mechanism == "item counts above a threshold"
    assert len(loaded.ledger_.notes) == 2  # the costs of the choice and of the fit alone


def test_a_second_choice_adds_up_or_is_refused():
    data, ledger = crowd({"a": 300, "b": 200, "c": 100}), Ledger(delta=1e-5)
    chosen = choose_items(data, 3, 1.0, delta=1e-6, max_items_per_user=1, key=Key.from_seed(0), ledger=ledger)
    assert chosen.n_items == 3
    key = Key.from_entropy()
    for other in (None, Ledger()):
        with pytest.raises(ValueError, match="ledger must hold the choice that made the list of items"):
            choose_items(chosen, 2, 1.0, key=key, ledger=other)
    key.claim("what was refused has not used it")
    second_choice = choose_items(chosen, 2, 1.0, key=Key.from_seed(1), ledger=ledger)
    assert (second_choice.n_items, second_choice.catalogue, len(ledger.events)) == (2, "chosen", 2)
    model = DPPopularity(1.0).fit(second_choice, key=Key.from_seed(1), ledger=ledger)
    assert len(model.ledger_.events) == 3
    assert not any("list of items" in note for note in ledger.notes)


def test_a_choice_without_users():
    empty = Interactions.from_arrays([], [])
    chosen = choose_items(empty, 3, 1.0, delta=1e-6, key=Key.from_seed(0))
    assert (chosen.n_items, chosen.catalogue) == (0, "chosen")
    no_users = Interactions.from_arrays([], [], item_ids=["a", "b", "c"])
    choices = {tuple(choose_items(no_users, 2, 1.0, key=Key.from_seed(k)).item_ids.tolist()) for k in range(50)}
    assert choices == {("a", "b"), ("a", "c"), ("b", "c")}


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n": 0}, ValueError, "n must be at least 1, got 0"),
        ({"n": 2.5}, TypeError, "n must be an integer"),
        ({"epsilon": 0}, ValueError, "epsilon must be greater than 0"),
        ({"epsilon": float("inf")}, ValueError, "epsilon must be finite"),
        ({"delta": None}, ValueError, "delta must be given where the list of items was taken from the data, got None"),
        ({"delta": 0.0}, ValueError, "delta must be greater than 0"),
        ({"delta": 1.0}, ValueError, "delta must be less than 1"),
        ({"max_items_per_user": 0}, ValueError, "max_items_per_user must be at least 1, got 0"),
        ({"interactions": [[1]]}, TypeError, "interactions must be Interactions, a SciPy .* got list"),
        ({"ledger": 1}, TypeError, "ledger must be Ledger"),
        ({"key": 1}, TypeError, "key must be"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    arguments = {"interactions": crowd({"a": 3, "b": 2}), "n": 1, "epsilon": 1.0, "delta": 1e-6} | change
    key = Key.from_entropy()
    with pytest.raises(error, match=message):
        choose_items(**{"key": key} | arguments)
    key.claim("what was refused has not used it")


def test_users_with_rows_on_other_machines_are_refused():
    key = Key.from_entropy()
    for elsewhere in (RemoteUsers.numbered(5, np.arange(3)), RemoteUsers.numbered(5, np.arange(3)).shard(2)[0]):
        with pytest.raises(TypeError, match="interactions must hold the users' rows, got RemoteUsers"):
            choose_items(elsewhere, 2, 1.0, key=key)
    key.claim("what was refused has not used it")


def test_items_chosen_by_exact_counts_are_refused():
    data = crowd({"a": 3, "b": 2, "c": 1})
    for counted in (data.top_items(2), data.filter_core(min_interactions_per_user=0, min_interactions_per_item=2)):
        with pytest.raises(ValueError, match=r"got one that was chosen by exact counts \(top_items, filter_core\)"):
            choose_items(counted, 1, 1.0, delta=1e-6)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_change_nothing():
    data = crowd({item: 5 + item % 50 for item in range(300)})
    for options in ({"delta": 1e-3}, {}):
        source = data if options else Interactions(**data._fields() | {"catalogue": "public"})
        chosen = []
        for n_threads in (1, 4):
            with default_threads(n_threads):
                chosen.append(choose_items(source, 40, 5.0, **options, max_items_per_user=1, key=Key.from_seed(3)))
        np.testing.assert_array_equal(chosen[0].item_ids, chosen[1].item_ids)
        np.testing.assert_array_equal(chosen[0].indices, chosen[1].indices)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_items_are_chosen_with_the_chance_of_the_twin():
    # 20,000 items of each count are independent draws; 10% more or less noise is detected.
    n, epsilon, delta, counts = 20_000, 1.0, 0.05, (1, 2, 4, 6)
    scale, lowest = 1 / epsilon, naive.threshold(1 / epsilon, delta)
    users = np.arange(n * sum(counts))
    kinds = np.repeat(np.arange(len(counts)), [n * count for count in counts])
    items = np.concatenate([np.repeat(np.arange(n), count) for count in counts])
    data = Interactions.from_arrays(users, kinds * n + items)
    chosen = choose_items(data, len(counts) * n, epsilon, delta=delta, max_items_per_user=1, key=Key.from_seed(5))
    selected = np.bincount(chosen.item_ids // n, minlength=len(counts))
    for times, count in zip(selected, counts, strict=True):
        assert share_is(times, n, naive.chance(count, scale, lowest))
    for wrong_scale, off in ((0.9, 0), (1.1, 0), (1, -1), (1, 1)):  # 10% less and more noise; a threshold off by one
        wrong = [naive.chance(count, scale * wrong_scale, lowest + off) for count in counts]
        assert not all(share_is(times, n, chance) for times, chance in zip(selected, wrong, strict=True))


@pytest.mark.slow
def test_one_user_of_many_items_is_counted_with_a_uniform_few():
    # Each of 10 items of a user is counted with probability 2/10, and the noise is for 2 items.
    n, scale = 40_000, 2 / 4.0
    users, items = np.repeat(np.arange(n), 10), np.arange(10 * n)
    chosen = choose_items(
        Interactions.from_arrays(users, items), 10 * n, 4.0, delta=0.9, max_items_per_user=2, key=Key.from_seed(6)
    )
    chance = naive.chance(1, scale, naive.threshold(scale, 0.45)) / 5
    assert_only(lambda factor: share_is(chosen.n_items, 10 * n, factor * chance))
    # A third item of one user would be one that it was not counted with.
    assert chosen.interactions_per_user().max() <= 2
    # In a public list the best 20,000 items are the counted ones: 2 of each user's 10.
    few = Interactions.from_arrays(users[: n // 4], items[: n // 4], item_ids=items[: n // 4])
    best = choose_items(few, n // 20, 1e6, max_items_per_user=2, key=Key.from_seed(6))
    assert set(best.interactions_per_user()) == {2}


@pytest.mark.slow
def test_many_items_of_a_public_list_are_chosen_with_the_charged_noise():
    # Half of the items have 8 users, and half have none. The chosen half has noisy counts of 4 or more, by symmetry
    # of both halves around 4; 10% more or less noise is detected.
    n, scale = 50_000, 5.0
    data = Interactions.from_arrays(np.arange(8 * n), np.repeat(np.arange(n), 8), item_ids=range(2 * n))
    chosen = choose_items(data, n, 1 / scale, max_items_per_user=1, key=Key.from_seed(7))
    selected = int((chosen.item_ids < n).sum())
    assert_only(lambda factor: share_is(selected, n, naive.chance(8, scale * factor, 4)))
