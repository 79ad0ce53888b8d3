"""NCF against complex steps, Adam as printed and popularity, and its negatives; nightly against torch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.ncf import model as naive
from support.data import of_dense, rated
from support.strategies import seeds

from fastfedrec import NCF, DivergenceError, Interactions, Key, Popularity
from fastfedrec._kernels.systems.ncf import model as kernel
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.systems.ncf._network import Network, Trainer, fuse
from fastfedrec.testing import ALPHA

KEY = Key.from_seed(5)
SMALL = {"n_factors": 3, "layers": (5, 2), "n_epochs": 2, "batch_size": 16}
KINDS = ["gmf", "mlp", "neumf"]


def network_of(kind, n_users=3, n_items=4, n_factors=3, layers=(5, 2)):
    return Network(n_factors if kind != "mlp" else 0, layers if kind != "gmf" else (), n_users, n_items)


def start_of(network, scale, rng):
    """Return embeddings far from 0, so that every part of the gradient matters."""
    table = rng.normal(size=(network.n_users + network.n_items, network.width)) * scale
    return table, rng.normal(size=network.n_dense) * scale


def flat(parameters):
    return np.concatenate([part.ravel() for part in parameters])


def code(batch):
    return np.array([user << 32 | item << 1 | label for user, item, label in batch], dtype=np.uint64)


def shape_of(network):
    return network.n_users, network.n_items, network.product, network.layers


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(
    seed=seeds(),
    kind=st.sampled_from(KINDS),
    adam=st.booleans(),
    n_factors=st.sampled_from([1, 3, 16]),
    layers=st.sampled_from([(2,), (3, 2)]),
    batch_size=st.integers(1, 5),
    regularization=st.sampled_from([0.0, 0.3]),
)
def test_steps_are_those_of_complex_steps_and_of_adam_as_printed(
    seed, kind, adam, n_factors, layers, batch_size, regularization
):
    rng = np.random.default_rng(seed)
    network = network_of(kind, n_factors=n_factors, layers=layers)
    start = start_of(network, 0.5, rng)
    # With few users in a row, most rows have no gradient in most steps, and catch up later.
    examples = [(int(rng.integers(3)), int(rng.integers(4)), int(rng.integers(2))) for _ in range(13)]
    batches = [examples[k : k + batch_size] for k in range(0, 13, batch_size)]
    trainer = Trainer(network, *start, learning_rate=0.05, regularization=regularization, adam=adam)
    losses = [trainer.train(code(examples[:10]), batch_size)] if 10 % batch_size == 0 else []
    trainer.train(code(examples[10:] if losses else examples), batch_size)

    def gradient(x, t):
        return naive.gradient(x, batches[t], *shape_of(network), regularization=regularization)

    take_steps = naive.adam if adam else naive.sgd
    expected = take_steps(flat(start), gradient, len(batches), 0.05)
    np.testing.assert_allclose(flat(trainer.parameters()), expected, rtol=1e-7, atol=1e-9)
    assert np.abs(expected - flat(start)).max() > 1e-3
    if losses and batch_size == 10:
        np.testing.assert_allclose(losses, naive.loss(flat(start), batches[0], *shape_of(network)))


def test_parameters_without_a_gradient_still_follow_adam():
    network = network_of("gmf", n_users=3)
    start = start_of(network, 0.5, np.random.default_rng(1))
    batches = [[(0, 0, 1)]] * 3 + [[(1, 1, 0)]] * 400 + [[(0, 2, 1)]]
    trainer = Trainer(network, *start, learning_rate=0.01)
    trainer.train(code([example for [example] in batches]), 1)

    # The gradient of this example is computed by hand, since 404 complex steps would take a second.
    def gradient(x, t):
        table, (h, bias) = x[: 7 * 3].reshape(7, 3), np.split(x[7 * 3 :], [3])
        [(user, item, label)] = batches[t]
        p, q = table[user], table[3 + item]
        dz = 1 / (1 + np.exp(-(h @ (p * q) + bias[0]))) - label
        out = np.zeros_like(table)
        out[user], out[3 + item] = dz * h * q, dz * h * p
        return np.concatenate([out.ravel(), dz * p * q, [dz]])

    expected = naive.adam(flat(start), gradient, 404, 0.01)
    np.testing.assert_allclose(flat(trainer.parameters()), expected, atol=1e-7)
    still = naive.adam(flat(start), gradient, 3, 0.01)
    # User 0 continues after its third step.
    assert np.abs(expected - still)[:3].max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_logits_of_every_pair(kind):
    network = network_of(kind, n_users=5, n_items=70, n_factors=17, layers=(18, 3))
    table, dense = (part.astype(np.float32) for part in start_of(network, 0.5, np.random.default_rng(2)))
    users, items = np.indices((5, 70)).reshape(2, -1)
    parameters = flat((table, dense)).astype(np.float64)
    expected = naive.logits(parameters, users, items, *shape_of(network)).reshape(5, 70)
    np.testing.assert_allclose(network.score(table, dense), expected, rtol=1e-4, atol=1e-4)


def test_fusion_has_the_mean_of_both_logits():
    halves = [network_of(kind) for kind in ("gmf", "mlp")]
    starts = [start_of(half, 0.5, np.random.default_rng(3)) for half in halves]
    means = sum(half.score(*start) for half, start in zip(halves, starts, strict=True)) / 2
    np.testing.assert_allclose(network_of("neumf").score(*fuse(*starts, 2)), means, rtol=1e-12)


def test_the_start_has_the_scales_of_the_authors():
    network = network_of("neumf", n_users=400, n_factors=40, layers=(80, 40))
    table, dense = network.start(KEY, "test")
    first, first_bias, second, second_bias, output, bias = np.split(
        dense, np.cumsum([160 * 80, 80, 80 * 40, 40, 40 + 40])
    )
    assert abs(table.std() / 0.01 - 1) < 0.02
    for part, bound in ((first, 240), (second, 120), (output, 2 * 80)):
        assert 0.93 < np.abs(part).max() / np.sqrt(6 / bound) <= 1
        assert abs(part.std() / np.sqrt(2 / bound) - 1) < 0.3
    assert not np.concatenate([first_bias, second_bias, bias]).any()


# ---- invariants -----------------------------------------------------------------------------------------------------


def drawn(data, positives, n_negatives, round=0):
    out = np.empty(positives.n_interactions * (1 + n_negatives), dtype=np.uint64)
    keys = KEY.subkey("negatives"), KEY.subkey("order")
    n = kernel.draw_examples(
        positives.indptr, positives.indices, data.indptr, data.indices, data.global_user_ids, *keys, out, data.n_items,
        n_negatives, round,
    )  # fmt: skip
    users, items, labels = out[:n] >> np.uint64(32), (out[:n] & np.uint64(2**32 - 1)) >> np.uint64(1), out[:n] & 1
    return np.stack([users, items, labels], axis=1).astype(int)


def test_examples_are_all_positives_with_n_negatives_each():
    dense = np.zeros((4, 6))
    dense[0, :5], dense[1, 2], dense[2], dense[3, [0, 3]] = 4, 4, 4, [2, 4]
    data = of_dense(dense)
    positives = data.binarize(3.0)
    examples = drawn(data, positives, 3)
    liked = examples[examples[:, 2] == 1]
    assert sorted(map(tuple, liked[:, :2])) == sorted(zip(*np.nonzero(dense > 3), strict=True))
    negatives = examples[examples[:, 2] == 0]
    # A user's negatives exclude all of its items, liked or not; a user with all items has no negatives.
    assert not dense[negatives[:, 0], negatives[:, 1]].any()
    assert np.bincount(negatives[:, 0], minlength=4).tolist() == [15, 3, 0, 3]
    assert (drawn(data, positives, 3) == examples).all()
    assert (drawn(data, positives, 3, round=1) != examples).any()


def test_a_users_negatives_do_not_depend_on_other_users():
    data = rated(9, 31, 5)
    part = data.select_users(np.array([2, 5]))
    here, there = drawn(part, part, 2), drawn(data, data, 2)
    for row, user in enumerate((2, 5)):
        mine, theirs = here[here[:, 0] == row], there[there[:, 0] == user]
        assert sorted(map(tuple, mine[:, 1:])) == sorted(map(tuple, theirs[:, 1:]))


@pytest.mark.parametrize("kind", KINDS)
def test_low_ratings_are_neither_positive_nor_negative(kind):
    data = rated(9, 31, 5)
    other = data._replace(values=np.where(data.values_or_ones() <= 3, 1, data.values_or_ones()).astype(np.float32))
    models = [NCF(threshold=3.0, kind=kind, **SMALL).fit(d, key=KEY) for d in (data, other)]
    np.testing.assert_array_equal(models[0].item_embeddings_, models[1].item_embeddings_)
    # An item that all users have rated and none likes is in no example, so its embedding does not change.
    users, items = np.indices((9, 31)).reshape(2, -1)
    everything = Interactions.from_arrays(users, items, np.where(items % 4 == 0, 2, 5))
    model = NCF(threshold=3.0, kind=kind, pretrain=False, **SMALL).fit(everything, key=KEY)
    start = network_of(kind, *everything.shape).start(KEY, f"ncf.{kind}.start")[0][9:]
    np.testing.assert_array_equal((model.item_embeddings_ == start).all(axis=1), model.interactions_.item_ids % 4 == 0)


@pytest.mark.ignores_values
@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_keeps_parameters_by_id(kind):
    data = rated(9, 31, 5)
    model = NCF(kind=kind, **SMALL).fit(data, key=KEY, track_loss=True)
    assert model.loss_.shape == (2,)
    other_data = Interactions.from_arrays(
        np.repeat(["new", *data.user_ids[::-1].astype(str)], 2), np.tile(data.item_ids[[3, 1]], 10)
    )
    model.interactions_ = model.interactions_._replace(user_ids=data.user_ids.astype(str))
    refitted = NCF(kind=kind, **SMALL)
    network = refitted._network(other_data)
    table, weights = refitted._warm_parameters(network, other_data, KEY, model)
    fresh, _ = network.start(KEY, f"ncf.{kind}.start")
    row_of = {user: row for row, user in enumerate(model.interactions_.user_ids)}
    for row, user in enumerate(other_data.user_ids):
        expected = model.user_embeddings_[row_of[user]] if user in row_of else fresh[row]
        np.testing.assert_array_equal(table[row], expected)
    np.testing.assert_array_equal(table[10:], model.item_embeddings_[[1, 3]])
    np.testing.assert_array_equal(weights, model.weights_)
    refitted.set_params(n_epochs=1).fit(other_data, key=KEY, warm_start=model)
    assert not hasattr(refitted, "loss_")
    assert (refitted.weights_ != model.weights_).any()


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_groups_of_users_that_popularity_cannot(kind):
    is_in_group = np.arange(200)[:, None] % 4 == np.arange(80) % 4
    has = KEY.uniform("test", size=200 * 80).reshape(200, 80) < np.where(is_in_group, 0.5, 0.03)
    train, test = next(LeaveOneOut().split(Interactions.from_arrays(*np.nonzero(has)), key=KEY))
    ncf = NCF(kind=kind, n_epochs=10, learning_rate=0.01, batch_size=64)
    ours, popularity = (
        evaluate(model.fit(train, key=KEY), train, test, metrics=["hr@10"], candidates=Sampled(40), key=KEY)["hr@10"]
        for model in (ncf, Popularity())
    )
    # Chance is ten of 41.
    assert popularity < 0.4
    assert ours > popularity + 0.4


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.ignores_values
def test_divergence_names_the_training_and_its_rate():
    with pytest.raises(DivergenceError, match=r"gmf diverged in epoch \d: lower learning_rate \(1e\+30\)"):
        NCF(**(SMALL | {"learning_rate": 1e30})).fit(rated(9, 31, 5), key=KEY)
    with pytest.raises(DivergenceError, match=r"neumf diverged in epoch \d: lower fusion_learning_rate \(1e\+30\)"):
        NCF(**(SMALL | {"fusion_learning_rate": 1e30})).fit(rated(9, 31, 5), key=KEY)


@pytest.mark.ignores_values
def test_bad_warm_starts():
    model = NCF(**SMALL).fit(rated(9, 31, 5), key=KEY)
    with pytest.raises(TypeError, match="warm_start must be a fitted NCF, got tuple"):
        NCF(**SMALL).fit(rated(9, 31, 5), warm_start=(1, 2))
    with pytest.raises(
        ValueError, match=r"same kind and widths, neumf of \(4, \(5, 2\)\), got neumf of \(3, \(5, 2\)\)"
    ):
        NCF(**(SMALL | {"n_factors": 4})).fit(rated(9, 31, 5), warm_start=model)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_scores_do_not_depend_on_threads():
    # The sizes are large enough for several threads.
    network = network_of("neumf", n_users=90, n_items=2000)
    parameters = network.start(KEY, "test")
    np.testing.assert_array_equal(*(network.score(*parameters, n_threads=n) for n in (1, 4)))


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
# Negatives are drawn by rejection, and from a list.
@pytest.mark.parametrize("n_seen", [2, 9])
def test_negatives_are_uniform(n_seen):
    from scipy.stats import chisquare

    data = Interactions.from_arrays(np.zeros(n_seen, int), np.arange(n_seen), item_ids=np.arange(12))
    examples = drawn(data, data, 100_000 // n_seen)
    counts = np.bincount(examples[examples[:, 2] == 0, 1], minlength=12)[n_seen:]
    assert chisquare(counts).pvalue > ALPHA
    biased = counts.astype(float)
    for factor in (0.9, 1.1):
        biased[0] = counts[0] * factor
        assert chisquare(biased * counts.sum() / biased.sum()).pvalue < ALPHA


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_torch(kind):
    import torch  # required in the nightly run

    network = network_of(kind, n_users=40, n_items=30, n_factors=8, layers=(32, 16, 8))
    rng = np.random.default_rng(4)
    start = start_of(network, 0.2, rng)
    examples = np.stack([rng.integers(40, size=4000), rng.integers(30, size=4000), rng.integers(2, size=4000)], axis=1)
    trainer = Trainer(network, *start, learning_rate=0.003)
    trainer.train(code(examples.astype(np.uint64)), 50)
    table, dense = (torch.tensor(part, requires_grad=True) for part in start)
    optimizer = torch.optim.Adam([table, dense], lr=0.003)
    for batch in np.split(torch.tensor(examples), 80):
        optimizer.zero_grad()
        p, q = table[batch[:, 0]], table[40 + batch[:, 1]]
        x, at = torch.cat([p[:, network.product :], q[:, network.product :]], dim=1), 0
        for width in network.layers:
            n = x.shape[1] * width
            x = torch.relu(x @ dense[at : at + n].reshape(-1, width) + dense[at + n : at + n + width])
            at += n + width
        z = torch.cat([p[:, : network.product] * q[:, : network.product], x], dim=1) @ dense[at:-1] + dense[-1]
        torch.nn.functional.binary_cross_entropy_with_logits(z, batch[:, 2].double()).backward()
        optimizer.step()
    expected = flat([table.detach().numpy(), dense.detach().numpy()])
    np.testing.assert_allclose(flat(trainer.parameters()), expected, atol=1e-6)
    assert np.abs(expected - flat(start)).max() > 0.05
