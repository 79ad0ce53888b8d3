"""Lloyd's iterations on noisy sums: their releases, and each user's effect on them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.systems.private_prototypes import private_lloyd as naive
from support.strategies import seeds

from fastfedrec import Key
from fastfedrec.accounting import PureAccountant
from fastfedrec.compute.clustering import assign_rows
from fastfedrec.mechanisms import DiscreteLaplace
from fastfedrec.mechanisms.bounded_rows import public_candidates
from fastfedrec.systems.private_prototypes import private_lloyd
from fastfedrec.systems.private_prototypes.private_kmeans import private_kmeans
from fastfedrec.systems.private_prototypes.private_lloyd import limit_steps, lloyd_event, lloyd_rounds, round_epsilons

KEY = Key.from_seed(1)
CORNERS = np.array([[1.0, -1.0, 1.0], [-1.0, -1.0, -1.0], [0.0, 0.0, 0.0], [1e200, -1e200, 1e200], [0.5, 0.5, -1e-9]])


def points(n, p=3, seed=0):
    return np.random.default_rng(seed).uniform(-0.6, 0.6, (n, p))


def run(x, *, n_clusters=3, n_rounds=3, epsilon=1.0, key=KEY, n_threads=1, **options):
    return private_lloyd.private_lloyd(
        x, n_clusters, radius=1.0, n_rounds=n_rounds, epsilon=epsilon, key=key, n_threads=n_threads, **options
    )


@pytest.fixture
def releases(monkeypatch):
    """Return every release of a run; each returns data-independent values, so that runs are comparable."""
    seen = []

    def release(exact, sensitivity, epsilon, key, purpose, stream):
        seen.append((exact.copy(), sensitivity, epsilon, purpose, stream))
        return np.random.default_rng(len(exact) + stream).integers(1, 10**5, exact.shape)

    monkeypatch.setattr(private_lloyd, "_release", release)
    return seen


def largest_changes(releases, x):
    """Return the L1 change of each release when each user is removed, divided by the sensitivity."""
    run(x)
    whole, out = list(releases), []
    for user in range(len(x)):
        releases.clear()
        run(np.delete(x, user, axis=0))
        out.append([np.abs(a[0] - b[0]).sum() / a[1] for a, b in zip(whole, releases, strict=True)])
    return np.array(out)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(seed=seeds(), n=st.integers(1, 40), p=st.integers(1, 5), farthest=st.integers(1, 20_000))
def test_limited_steps_equal_the_twin(seed, n, p, farthest):
    x = np.random.default_rng(seed).uniform(-2, 2, (n, p))
    assert limit_steps(x, farthest).tolist() == [naive.limited(row, farthest) for row in x.tolist()]


def test_sums_equal_the_twin(releases):
    x = points(50)
    run(x, n_rounds=2)
    exact, sensitivity, *_ = releases[1]
    farthest = next(f for f in range(sensitivity) if f + f // 4 == sensitivity)
    centers = []
    original = private_lloyd.clustering.assign_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            private_lloyd.clustering, "assign_rows", lambda x, c, **k: centers.append(c.copy()) or original(x, c, **k)
        )
        run(x, n_rounds=2)
    assert exact.tolist() == naive.sums(x.tolist(), centers[0].tolist(), farthest, farthest // 4)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_no_user_moves_a_release_by_more_than_its_sensitivity(releases, monkeypatch):
    changes = largest_changes(releases, np.concatenate([points(15), CORNERS]))
    assert changes.shape == (20, 4)
    assert changes.max() <= 1
    # The noise is not larger than needed.
    assert changes.max() > 0.99
    monkeypatch.setattr(private_lloyd, "limit_steps", lambda x, _: np.rint(x * 4096).astype(np.int64))
    releases.clear()
    assert largest_changes(releases, np.concatenate([points(15), CORNERS])).max() > 1


@pytest.mark.parametrize("n_rounds", [1, 2, 7])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
def test_all_releases_cost_epsilon(releases, n_rounds, epsilon):
    run(points(10), n_rounds=n_rounds, epsilon=epsilon)
    assert [release[2] for release in releases] == round_epsilons(epsilon, n_rounds)
    assert sum(release[2] for release in releases) == Fraction(epsilon)
    # No random stream is used twice.
    assert len({release[3:] for release in releases}) == n_rounds + 1
    assert PureAccountant().compose(lloyd_event(epsilon)).get_epsilon() == epsilon


def test_noise_has_the_scale_of_the_sensitivity(monkeypatch):
    scales = []
    monkeypatch.setattr(DiscreteLaplace, "add_noise", lambda self, exact, **_: scales.append(self.scale) or exact)
    private_lloyd._release(np.zeros(3, dtype=np.int64), 700, Fraction(1, 3), KEY, "test", 0)
    assert scales == [2100]


def test_only_the_releases_depend_on_the_data(releases):
    seen = []
    for x in (points(30), points(30)[1:], points(0), points(500, seed=9), CORNERS):
        releases.clear()
        centers = run(x)
        seen.append((centers.tobytes(), [(release[0].shape, *release[1:]) for release in releases]))
    assert all(other == seen[0] for other in seen)


def test_centres_are_good_with_small_noise_and_stay_in_the_ball():
    true_centers = np.array([[-0.5, 0.0, 0.3], [0.5, 0.5, 0.0], [0.1, -0.6, -0.5]])
    x = np.concatenate([points(2_000, seed=4) * 0.1 + center for center in true_centers])
    centers = run(x, epsilon=20.0, n_rounds=9)
    assert assign_rows(true_centers, centers)[1].max() < 0.02**2
    for seed in range(5):
        assert np.linalg.norm(run(points(5), epsilon=0.01, key=Key.from_seed(seed)), axis=1).max() < 1 + 1e-12


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_better_than_swaps_in_few_dimensions(epsilon):
    x, costs = points(4_000, 4), []
    n_rounds = lloyd_rounds(len(x), 8, 4, epsilon)
    for seed in range(3):
        key = Key.from_seed(seed)
        candidates = public_candidates(200, 4, 1.0, key=key)
        swaps = private_kmeans(x, candidates, 8, radius=1.0, n_swaps=20, epsilon=epsilon / 21, key=key)
        rounds = run(x, n_clusters=8, epsilon=epsilon, n_rounds=n_rounds, key=key)
        costs.append([assign_rows(x, centers)[1].mean() for centers in (rounds, swaps)])
    assert np.mean(costs, axis=0)[0] < 0.9 * np.mean(costs, axis=0)[1]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    x = points(5)
    with pytest.raises(TypeError, match="points must be an array of float64"):
        run(x.astype(np.float32))
    with pytest.raises(ValueError, match="n_clusters must be at least 1, got 0"):
        run(x, n_clusters=0)
    with pytest.raises(ValueError, match="n_rounds must be at most 255, got 256"):
        run(x, n_rounds=256)
    with pytest.raises(ValueError, match="epsilon must be"):
        run(x, epsilon=0.0)
    with pytest.raises(TypeError, match="key must be Key, got NoneType"):
        run(x, key=None)
    with pytest.raises(ValueError, match="n_users must be at least 1"):
        lloyd_rounds(0, 2, 2, 1.0)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_a_bit():
    x = points(9_000)
    assert run(x).tobytes() == run(x, n_threads=4).tobytes()
    assert run(x).tobytes() != run(x, round=1).tobytes()
