"""One rule for numbers: values of one user, and storage types, change no bit of another user's contribution."""

import inspect
import re
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models import CASES, MODELS, case_of, gather, held, new
from support.one_user import KINDS, N_ITEMS, N_USERS, ONE, OTHERS, SEED, Recorder, answers, data_of, row_of_one, without
from support.one_user import shards_of as shards_of_engine
from test_conventions import public_objects

import fastfedrec
from fastfedrec import DPPopularity, Interactions, Key, PrivRec, als
from fastfedrec.compute.clustering import assign_rows
from fastfedrec.compute.nmf import solve_rows_nonnegative
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core import names
from fastfedrec.core.arrays import exceed
from fastfedrec.data.conversion import as_interactions, borrow_rows
from fastfedrec.data.store import open_interactions, store_interactions
from fastfedrec.evaluation.new_users import personalization_split
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.mechanisms.bounded_rows import limit_contributions, project_rows
from fastfedrec.mechanisms.item_choice import choose_items
from fastfedrec.rounds import fit as fit_module
from fastfedrec.systems.dplcf import sum_answers
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes

ALL = gather("small", "one_user")
REFUSES_ONES = {name for name, model in MODELS.items() if name.partition(", ")[2] in case_of(model).refuses_ones}


def is_repeated(model):
    """Return whether a model has rounds of reports, or of exact sums of integers over all users."""
    sums_floats = (
        getattr(model, {"FMFLDP": "epsilon", "PrivRec": "noise_multiplier"}.get(type(model).__name__, ""), 1) is None
    )
    return not (case_of(model).without_rounds or sums_floats or getattr(model, "grouping", "") == "kmeans")


IN_ROUNDS = [name for name, model in ALL.items() if is_repeated(model)]


def run(name, kind, other_values):
    """Return the engine of a fit with recorded rounds."""
    engine = Recorder()
    with mock.patch.object(fit_module, "LocalEngine", return_value=engine):
        new(ALL[name]).fit(data_of(kind, other_values), key=Key.from_seed(SEED))
    return engine


def shards_of(name, kind, other_values):
    """Return the shards of a model's first round."""
    engine = Recorder(stops=True)
    with mock.patch.object(fit_module, "LocalEngine", return_value=engine):
        return shards_of_engine(new(ALL[name]), data_of(kind, other_values), engine)


# ---- Oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other_values", OTHERS)
@pytest.mark.parametrize("name", IN_ROUNDS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_values_of_one_user_change_no_part_of_other_users(name, other_values):
    engine = run(name, "whole", other_values)
    assert engine.runs
    expected = None
    for kind in KINDS:
        if kind == "one" and other_values == "only ones" and name in REFUSES_ONES:
            continue
        shards = shards_of(name, kind, other_values)
        parts = []
        for system, rounds in engine.runs.values():
            if not hasattr(system, "local_round"):
                continue
            whole = answers(system, rounds[:2], shards)
            of_user = answers(system, rounds[:2], {sender: row_of_one(shard) for sender, shard in shards.items()})
            parts += [without(*pair) for pair in zip(whole, of_user, strict=True)]
        expected = expected or parts
        assert parts == expected, kind


def rows(array):
    return np.delete(np.asarray(array), ONE, axis=0).tobytes()


def entries(data):
    """Return items and values of the other users, in the type of the arithmetic."""
    is_other = np.repeat(data.global_user_ids != ONE, data.interactions_per_user())
    return data.interactions_per_user()[data.global_user_ids != ONE].tobytes(), *(
        column[is_other].tobytes() for column in (data.indices, data.values_or_ones())
    )


def parts_of_sums(function):
    """Return a function that computes the other users' part of sums."""

    def difference(data):
        whole, of_user = function(data), function(row_of_one(data))
        return [(a - b).tobytes() for a, b in zip(whole, of_user, strict=True)]

    return difference


KEY = Key.from_seed(SEED)
FACTORS = KEY.normal("factors", size=N_ITEMS * 3).reshape(N_ITEMS, 3)
RANGE = (0.0, 5.3)


def recovered(data):
    limited = limit_contributions(data, 6, value_range=RANGE, key=KEY)
    rule = Recovery("masked", 6, RANGE, epsilon=1.0, steps_per_unit=8)
    recovered = recover_prototypes(limited, np.zeros(data.n_users, dtype=int), 1, rule, key=KEY)
    return recovered.sums, recovered.counts


def stored(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        store_interactions(data, path)
        return entries(open_interactions(path))


#: The results for the other users, by public function.
FUNCTIONS = {
    "data.interactions.Interactions.binarize": lambda d: [entries(d.binarize(t)) for t in (0.0, 0.1, 1.0, 5.3, 1e39)],
    "data.interactions.Interactions.positive": lambda d: entries(d.positive()),
    "data.conversion.as_interactions": lambda d: entries(as_interactions("data", d.to_scipy())),
    "data.conversion.borrow_rows": lambda d: entries(borrow_rows("rows", d, wide=True)),
    "data.store.store_interactions": stored,
    "compute.als.solve_users": lambda d: [
        rows(als.solve_users(clipped(d).positive(), FACTORS.astype(dtype), regularization=0.1, confidence_weight=0.5,
                             use_values=True, solver=solver))
        for dtype in (np.float32, np.float64) for solver in ("cholesky", "cg")
    ],
    "compute.als.HalfStep.solve": lambda d: rows(
        als.HalfStep(FACTORS, regularization=0.1, confidence_weight=0.5, use_values=True).solve(clipped(d).positive())),
    "compute.als.solve_own_users": lambda d: rows(als.solve_own_users(d.positive(), FACTORS, regularization=0.1,
                                                                      confidence_weight=0.5)),
    "compute.clustering.assign_rows": lambda d: [rows(part) for part in assign_rows(clipped(d), CENTERS)],
    "compute.nmf.solve_rows_nonnegative": lambda d: rows(
        solve_rows_nonnegative(clipped(d), np.abs(FACTORS), regularization=0.1)
    ),
    "compute.row_sums.sum_rows": lambda d: rows(sum_rows(d, FACTORS)),
    "compute.ranking.sample_unseen": lambda d: rows(
        fastfedrec.ranking.sample_unseen(d.binarize(0.1), np.arange(N_USERS), 2, key=KEY, purpose="x")[0]
    ),
    "evaluation.new_users.personalization_split": lambda d: [
        entries(getattr(personalization_split(d, threshold=0.1, key=KEY), part)) for part in ("known", "held_out")
    ],
    "mechanisms.bounded_rows.limit_contributions": lambda d: entries(
        limit_contributions(d, 6, value_range=RANGE, key=KEY)
    ),
    "mechanisms.bounded_rows.project_rows": lambda d: rows(
        project_rows(limit_contributions(d, 6, value_range=RANGE, key=KEY), 4, 5.3 * 6**0.5, key=KEY)
    ),
    "mechanisms.item_choice.choose_items": lambda d: choose_items(d, 4, epsilon=1.0, key=KEY).item_ids.tolist(),
    "systems.private_prototypes.prototypes.recover_prototypes": parts_of_sums(recovered),
    "systems.dplcf.sum_answers": parts_of_sums(lambda d: sum_answers(d.binarize(0.1), KEY, BinaryResponse(1.0))),
}  # fmt: skip
CENTERS = np.abs(KEY.normal("centers", size=40 * N_ITEMS)).reshape(40, N_ITEMS)
#: Public functions of several users' data that are not tried, by the beginning of their name.
EXEMPT = {
    "results of all values together, without a guarantee": (
        "compute.clustering.kmeans", "compute.nmf.fit_nmf", "compute.sgd.fit_factors", "evaluation.", "studies.",
        "systems.baselines.item_models.", "systems.baselines.epochs.",
    ),
    "experiments on what attacks reach": (
        "systems.dmf.attacks.", "systems.fedgnn.attacks.", "systems.fedrec.attacks.",
    ),
    "values are not read": (
        "compute.networks.client_examples.", "compute.networks.sequences.", "data.features.", "data.log.",
        "datasets.movielens.zip_regions", "rounds.system.FederatedSystem.count_clients",
        "rounds.system.FederatedSystem.unpack_devices",
    ),
    "parts of functions that are tried": (
        "compute.als.kernel_values",
    ),
    "systems, tried in rounds and with users": (
        "rounds.engine.Engine.run", "rounds.system.FederatedSystem.local_round", "engines.flower.app.client_app",
        "systems.private_prototypes.model.PrivatePrototypes.serve",
        "systems.private_recommender.model.PrivateRecommender.with_users",
        "systems.privrec.model.PrivRec.personalize", "systems.recommender.Recommender.with_users",
        "systems.recommender.Recommender.refit",
    ),
    "simulated counts": ("datasets.generate_counts.PoissonCounts",),
}  # fmt: skip


def clipped(data):
    """Within a range, so that a huge value is refused nowhere, and stored as the values allow."""
    narrow = np.clip(data.values_or_ones(), 0.0, 1e4)
    return Interactions.from_arrays(
        np.repeat(np.arange(data.n_users), data.interactions_per_user()), data.indices, narrow,
        user_ids=np.arange(data.n_users), item_ids=np.arange(data.n_items),
    )  # fmt: skip


@pytest.mark.parametrize("other_values", OTHERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_other_users_the_same_bits(name, other_values):
    results = {kind: FUNCTIONS[name](data_of(kind, other_values)) for kind in KINDS}
    assert len({str(result) for result in results.values()}) == 1


@pytest.mark.parametrize("other_values", OTHERS)
def test_counts_of_other_users(other_values):
    """Sums and noise of a central release are linear; a local one depends only on the sign of values."""
    key = KEY
    scores = [
        DPPopularity(1.0).fit(data, key=key).item_counts_
        - DPPopularity(1.0).fit(row_of_one(data), key=key).item_counts_
        for data in (data_of(kind, other_values) for kind in KINDS)
    ]
    assert all(np.array_equal(counts, scores[0]) for counts in scores)
    for positive in (True, False):
        # Kinds with one sign give equal local reports.
        kinds = [kind for kind, value in KINDS.items() if (value > 0) == positive]
        local = [
            DPPopularity(4.0, trust="local").fit(data_of(kind, other_values), key=key).item_counts_ for kind in kinds
        ]
        assert all(np.array_equal(counts, local[0]) for counts in local)


#: Models that serve others than the users of the fit, from data.
SERVED = [name for name, model in ALL.items() if name != "Random" and case_of(model).serves_new_users]


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.filterwarnings("ignore")
def test_a_device_scores_by_its_users_values(name):
    model = new(ALL[name]).fit(data_of("one", "float32 numbers"), key=Key.from_seed(SEED))
    scores = []
    for kind in KINDS:
        data = data_of(kind, "float32 numbers")
        served = model.serve(data) if hasattr(model, "serve") else model.with_users(data)
        scores.append(rows(served.score(np.repeat(range(N_USERS), N_ITEMS), np.tile(range(N_ITEMS), N_USERS))
                           .reshape(N_USERS, N_ITEMS)))  # fmt: skip
    assert len(set(scores)) == 1


# ---- what is listed --------------------------------------------------------------------------------------------------


def test_every_system_has_rounds_that_are_repeated_or_a_reason():
    classes = {path.rpartition(".")[2] for path in names.SYSTEMS.values()}
    assert classes == {name.partition(",")[0] for name in IN_ROUNDS} | {n for n, c in CASES.items() if c.without_rounds}


def takes_interactions():
    for name, value in public_objects():
        methods = {
            f"{name}.{method}": getattr(value, method)
            for method in (vars(value) if inspect.isclass(value) else ())
            if not method.startswith("_") and callable(getattr(value, method, None))
        }
        for path, target in {name: value, **methods}.items():
            try:
                parameters = inspect.signature(target).parameters.values()
            except (TypeError, ValueError):
                continue
            if any(re.search("Interactions|RowsLike|InteractionLog", str(p.annotation)) for p in parameters):
                yield path.removeprefix("fastfedrec.")


def test_every_public_function_of_users_values_is_listed():
    exempt = tuple(prefix for prefixes in EXEMPT.values() for prefix in prefixes)
    functions = set(takes_interactions())
    fits = {name for name in functions if name.startswith("systems.") and name.endswith(".fit")}
    assert {name for name in functions - fits - set(FUNCTIONS) if not name.startswith(exempt)} == set()
    assert all(any(name.startswith(prefix) for name in functions) for prefix in exempt)  # each exemption is in use


# ---- Invariants ------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=20),
    st.floats(allow_nan=False, allow_infinity=False) | st.floats(allow_nan=False, allow_infinity=False, width=32),
)
def test_a_threshold_is_compared_in_double(values, threshold):
    stored = np.array(values, dtype=np.float32)
    expected = stored.astype(np.float64) > threshold
    assert np.array_equal(exceed(stored, threshold), expected)
    assert np.array_equal(exceed(stored.astype(np.float64), threshold), expected)


def test_a_comparison_in_single_precision_is_detected():
    """Negative control: one user's value determines the type of all values, and so the threshold for other users."""

    def as_before(data):
        positive = data.values_or_ones() > 0.1 if data.values is None else data.values > 0.1
        return entries(data._keep(positive)._replace(values=None))

    results = {str(as_before(data_of(kind, "float32 numbers"))) for kind in KINDS}
    assert len(results) == 2
    bounds = [
        entries(data._replace(values=np.clip(data.values_or_ones(
            np.float32 if data.values is None else data.values.dtype), *RANGE)))
        for data in (data_of(kind, "float32 numbers") for kind in ("float32", "decimal"))
    ]  # fmt: skip
    assert bounds[0] != bounds[1]


def test_one_value_does_not_change_other_users_positives():
    """The data have 2,000 users with float32(0.1), and one user with a value of either type."""
    n, value = 2000, float(np.float32(0.1))

    def data(last):
        return Interactions.from_arrays(
            list(range(n + 1)), ["i0"] * n + ["i1"], [value] * n + [last], item_ids=[f"i{j}" for j in range(16)]
        )

    assert [data(last).binarize(0.1).n_interactions for last in (0.5, 0.2)] == [n + 1, n + 1]
    options = {"n_rounds": 0, "popularity_epsilon": 1.0, "threshold": 0.1, "n_factors": 16, "hidden": (16,)}
    fits = [PrivRec(**options).fit(data(last), key=Key.from_seed(3)) for last in (0.5, 0.2)]
    assert np.array_equal(*(model.parameters_ for model in fits))


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("Random")])
@pytest.mark.filterwarnings("ignore")
def test_a_file_without_users_does_not_store_the_type_of_values(name, tmp_path):
    """The files of two data sets of one release are equal byte for byte."""
    model = new(ALL[name]).fit(data_of("one", "float32 numbers"), key=Key.from_seed(SEED))
    files = []
    for other_values in OTHERS:
        # Both files have the same release, because another fit may store a number at another offset.
        data = data_of("one", other_values)
        for holder in (model, held(model)):
            holder.interactions_ = holder._as_fitted(data) if hasattr(holder, "_as_fitted") else data
        model.save(tmp_path / "model", include_users=False)
        files.append((tmp_path / "model").read_bytes())
    assert files.count(files[0]) == len(files)
