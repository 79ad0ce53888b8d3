"""Private k-means groups users by the centres released under a guarantee, and by no other function of the rows."""

import numpy as np
import pytest
from support.prototypes_case import KEY, rated, start

from fastfedrec import PrivatePrototypes
from fastfedrec.compute.clustering import assign_rows, kmeans
from fastfedrec.mechanisms.bounded_rows import project_rows
from fastfedrec.systems.private_prototypes import rounds
from fastfedrec.systems.private_prototypes.rounds import N_DIMENSIONS

N_GROUPS = 4
MODELS = {
    "public candidates": PrivatePrototypes(N_GROUPS, 2, 40.0, grouping="kmeans", max_entries=8),
    "candidates of a grid": PrivatePrototypes(
        N_GROUPS, 2, 40.0, 1e-5, grouping="kmeans", max_entries=8, candidates="grid"
    ),
}
DATA = rated(60)
#: Released centres that a test sets, far from the centres that the rows would give.
CENTERS = KEY.normal("test.centers", size=N_GROUPS * N_DIMENSIONS).reshape(N_GROUPS, N_DIMENSIONS) * 3


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request, monkeypatch):
    monkeypatch.setattr(rounds, "private_kmeans", lambda *_, **__: CENTERS)
    return request.param


def points_of(model, data):
    """Return each user's row as a point, in its entity's coordinates."""
    limited = model._rounds(data.n_items)._limit(data, KEY)
    radius = float(model.value_range[1]) * min(model.max_entries, data.n_items) ** 0.5
    return limited, project_rows(limited, N_DIMENSIONS, radius, key=KEY, round=0)


def groups(model, data):
    """Return the groups of users by the centres that the step with a guarantee returned."""
    return model._rounds(data.n_items)._group(points_of(model, data)[0], N_GROUPS, KEY, 0, 1)


def test_users_are_in_the_group_of_the_nearest_released_centre(model):
    _, points = points_of(model, DATA)
    labels = groups(model, DATA)
    np.testing.assert_array_equal(labels, assign_rows(points, CENTERS)[0])
    assert len(np.unique(labels)) == N_GROUPS
    # Control: centres computed from the rows give other groups.
    exact = kmeans(points, N_GROUPS, key=KEY)
    assert (assign_rows(points, exact.centers)[0] != labels).any()
    assert np.abs(np.sort(exact.centers, axis=0) - np.sort(CENTERS, axis=0)).max() > 1


@pytest.mark.parametrize("other_rows", ["without anything", "with everything", "absent", "in another order"])
def test_a_users_group_does_not_depend_on_other_users_rows(model, other_rows):
    labels = groups(model, DATA)
    for user in range(0, 60, 7):
        if other_rows == "absent":
            data, row = DATA.select_users(np.array([user])), 0
        elif other_rows == "in another order":
            order = np.roll(np.arange(60), 13)
            data, row = DATA.select_users(order), int(np.flatnonzero(order == user)[0])
        else:
            is_own = np.repeat(np.arange(60), DATA.interactions_per_user()) == user
            data = DATA.keep_interactions(is_own) if other_rows == "without anything" else DATA
            if other_rows == "with everything":
                data = data._replace(values=np.where(is_own, DATA.values, 5.0))
            row = user
        assert groups(model, data)[row] == labels[user]


def test_the_sums_of_a_round_are_those_of_these_groups(model, monkeypatch):
    seen = []

    def recovered(limited, labels, *arguments, **options):
        seen.append(labels)
        return recover(limited, labels, *arguments, **options)

    recover = rounds.recover_prototypes
    monkeypatch.setattr(rounds, "recover_prototypes", recovered)
    new, state = start(type(model)(**model.get_params()), DATA)
    new.local_round(state, DATA, KEY, 0, sender="a", n_threads=1)
    np.testing.assert_array_equal(seen, [assign_rows(points_of(model, DATA)[1], CENTERS)[0]])


def test_centres_are_chosen_from_the_projected_rows_at_the_budgets_price(monkeypatch):
    """Check that the released choice matches its event: the epsilon of a swap, and the radius, are public."""
    for model in MODELS.values():
        calls = []
        monkeypatch.setattr(rounds, "private_kmeans", lambda *a, **o: calls.append((a, o)) or CENTERS)  # noqa: B023
        groups(model, DATA)
        ((points, _, n_clusters), options), budget = calls[0], model._budget(DATA.n_items)
        np.testing.assert_array_equal(points, points_of(model, DATA)[1])
        assert (n_clusters, options["epsilon"]) == (N_GROUPS, budget.swap_epsilon)
