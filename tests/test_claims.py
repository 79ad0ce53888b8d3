"""Tests of every system with a guarantee: no user's data and no lack of data make a fit fail, warn or leak."""

import inspect
import logging
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from support.claims_case import KEY, N_ITEMS, ledger_text, ratings
from support.data import of_dense
from support.decision_case import prefer
from support.hostile_files import unpack
from support.models import CASES, gather, held, new

import fastfedrec
from fastfedrec import (
    FMFLDP,
    SDCF,
    FedGNN,
    FedRec,
    FedRecPlusPlus,
    Interactions,
    Key,
    LaplaceRRSVD,
    PrivatePrototypes,
    load,
)
from fastfedrec.accounting import Ledger
from fastfedrec.core import names
from fastfedrec.engines.deployment.deployment_of import deployment_of
from fastfedrec.rounds.local import LocalEngine

PRIVATE = gather("private", "private_for_users")
# These systems hide the value of a rating, but not its user and item, as the ledger states.
OF_VALUES = gather("private_values")
#: Models that may have extreme numbers.
ANY = gather("private", "private_for_users", "extreme")
NOTHING_CLAIMED = re.compile(r"None|The model depends on no interaction")


def with_guarantee():
    """Yield the names of models with a guarantee in their docstring."""
    for path in names.SYSTEMS.values():
        kind = getattr(fastfedrec, path.rpartition(".")[2])
        said = re.search(r"\*\*Guarantee(\.\*\*|\*\* \()\s*(.*)", kind.__doc__)
        assert said, f"the docstring of {kind.__name__} needs a **Guarantee.**, also where it is None"
        # A guarantee in parentheses or by default is a guarantee.
        if said[1].endswith("(") or not NOTHING_CLAIMED.match(said[2]) or "by default" in said[2]:
            yield kind.__name__


def empty_rows(n_users):
    return of_dense(np.zeros((n_users, N_ITEMS)))


def one_rating(n_users):
    dense = np.zeros((n_users, N_ITEMS))
    dense[0, 3] = 4
    return of_dense(dense)


def fit(name, data, **options):
    """Fit without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return new((ANY | OF_VALUES)[name]).fit(data, key=KEY, **options)


# ---- the lists ------------------------------------------------------------------------------------------------------


def test_every_model_with_a_guarantee_has_settings_for_these_tests():
    listed = {name for name, case in CASES.items() if case.private or case.private_for_users or case.private_values}
    assert listed == set(with_guarantee()), "each has `private`, or `private_for_users`, in its case.py"


# ---- whether there is anybody ---------------------------------------------------------------------------------------


def has_rounds(name):
    """Return whether a model has rounds; of few users without a trusted server, PrivateRecommender has none."""
    model = PRIVATE[name]
    is_local = type(model).__name__ == "PrivateRecommender" and model.trust != "central"
    return "engine" in inspect.signature(model.fit).parameters and not is_local


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("n_users", [1, 10])
def test_a_release_does_not_reveal_whether_any_user_has_interactions(name, n_users, tmp_path):
    empty, one = (fit(name, data(n_users)) for data in (empty_rows, one_rating))
    assert ledger_text(empty) == ledger_text(one)
    for model in (empty, one):
        model.save(tmp_path / "m", include_users=False)
        load(tmp_path / "m")
    for released in ("item_factors_", "item_counts_", "item_means_", "parameters_", "item_biases_"):
        if hasattr(empty, released):
            assert getattr(empty, released).shape[0] == getattr(one, released).shape[0]
            assert np.isfinite(getattr(empty, released)).all()


@pytest.mark.parametrize("name", gather("private"))
def test_a_release_does_not_need_a_user(name):
    model = fit(name, empty_rows(0))
    assert model.ledger_.events
    for released in ("item_factors_", "item_counts_", "item_means_"):
        if hasattr(model, released):
            assert np.isfinite(getattr(model, released)).all()


def test_counts_without_users_are_noise_around_zero():
    counts = fit("DPPopularity", empty_rows(0)).item_counts_
    assert counts.any()
    assert abs(counts).max() < 10 * 60  # a scale of 10, twelve draws
    means = fit("DPGram", empty_rows(0)).item_means_
    assert means.any()


@pytest.mark.parametrize("name", gather("private_for_users"))
def test_systems_with_a_public_number_of_users_refuse_0_users_by_name(name):
    with pytest.raises(ValueError, match="interactions must have at least one user, got"):
        fit(name, empty_rows(0))


@pytest.mark.parametrize("name", [name for name in PRIVATE if has_rounds(name)])
def test_an_empty_shard_is_a_shard(name):
    if name.startswith("PrivatePrototypes"):
        pytest.skip("its shards are entities: see below")
    whole, parts = (fit(name, one_rating(2), **options) for options in ({}, {"engine": LocalEngine(n_shards=4)}))
    whole, parts = held(whole), held(parts)
    for released in whole._saved:
        np.testing.assert_array_equal(getattr(whole, released), getattr(parts, released))


@pytest.mark.parametrize("name", [n for n in PRIVATE if n.startswith("PrivatePrototypes")])
def test_an_entity_without_rows_sends_noise_like_any_other(name):
    sizes = {"a": 10_000, "b": 10_000}
    both = fit(name, one_rating(2), entities=["a", "b"], public_sizes=sizes)
    of_one = fit(name, one_rating(1), entities=["a"], public_sizes=sizes)
    assert ledger_text(both) == ledger_text(of_one)
    assert both.communication_ == of_one.communication_
    assert of_one.entity_ids_.tolist() == ["a", "b"]
    assert of_one.n_prototypes_.tolist() == both.n_prototypes_.tolist()
    assert "entities was taken from the data" not in of_one.ledger_.summary()
    unlisted = fit(name, one_rating(2), entities=["a", "b"])
    assert "The list of entities was taken from the data." in unlisted.ledger_.summary()


@pytest.mark.parametrize("name", PRIVATE | OF_VALUES)
def test_whether_all_ratings_are_1_is_not_revealed(name):
    """Ratings that are all 1 are stored like none: one user's rating of 2 must not decide whether there is a model."""
    ones = (ratings() > 0).astype(float)
    another = ones.copy()
    another[3, np.flatnonzero(ones[3])[0]] = 2
    there = [fit(name, of_dense(dense)) for dense in (ones, another)]
    assert there[0].interactions_.values is None
    assert ledger_text(there[0]) == ledger_text(there[1])
    for model in there if there[0].serves_others else ():
        of_one, nothing = of_dense(ones[3:4]), of_dense(np.zeros((1, N_ITEMS)))
        both = model.with_users(of_dense(np.vstack([ones[3:4], 0 * ones[:1]])))
        for row, person in enumerate((of_one, nothing)):  # and whether one is served does not depend on who else is
            ids, scores = model.with_users(person).recommend([0], 3)
            assert ids.tolist() == both.recommend([row], 3)[0].tolist()
            assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", OF_VALUES)
def test_a_private_mean_of_no_ratings_is_a_number(name):
    model = fit(name, empty_rows(3))
    assert np.isfinite(model.score([0, 2], [1, 5])).all()
    assert model.predict([0], [1]) == 1.0  # the least of the grid


@pytest.mark.parametrize("name", ANY)
def test_whether_a_node_takes_part_does_not_depend_on_its_rows(name):
    model = new(ANY[name])
    try:
        deployment = deployment_of(model)
    except (TypeError, ValueError):
        pytest.skip("its data do not stay on nodes")
    for dense in (np.zeros((1, N_ITEMS)), (ratings()[:1] > 0) * 1.0, ratings()[:1]):
        assert deployment.prepare(of_dense(dense)).n_users == 1


def test_systems_without_a_guarantee_refuse_no_data():
    for model in (fastfedrec.EASE(), fastfedrec.Popularity(), FMFLDP(epsilon=None), PrivatePrototypes(epsilon=None)):
        with pytest.raises(ValueError, match="interactions must not be empty"):
            model.fit(empty_rows(3), key=KEY)


# ---- what one user has ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("value", [1e16, 1e39, 1e300, 1.7e308, 5e-324, 2.7, "a full row", "only ones"])
def test_no_value_of_one_user_makes_a_private_fit_fail_or_warn(name, value, monkeypatch):
    prefer(monkeypatch, personal=False)  # a release may decide, and it depends on all rows
    dense = ratings()
    if value == "a full row":
        dense[0] = 5
    elif value == "only ones":
        dense = (dense > 0).astype(float)
    else:
        dense[0, :3] = value
    model = fit(name, of_dense(dense))
    assert ledger_text(model) == ledger_text(fit(name, of_dense(ratings())))
    assert np.isfinite(model.recommend(range(40), n=3, filter_seen=False)[1]).all()


#: Lines of the log about released values: a gate's mean, and epochs that held-out reports stop.
RELEASED = re.compile("by the released mean|^fit_factors: epoch")
#: Rows of the first user, of an item and its value each, in place of a single one.
ROWS = {
    "a pair twice": [(0, 4.0), (0, 4.0)],
    "a pair often": [(0, 1.0)] * 50 + [(1, 2.0)] * 3,
    "zeros": [(0, 0.0), (0, -0.0)],
    "huge values": [(0, 1e300), (0, 1e300), (1, 5e-324)],
    "everything": [(item, 5.0) for item in range(N_ITEMS)],
    "another scale": [(0, 2.7), (1, 1e16)],
}


@pytest.mark.parametrize("name", ANY)
def test_reports_of_a_private_fit_of_a_frame_do_not_depend_on_one_users_rows(name, caplog, capfd):
    """Warnings are errors in `fit`; logs and output equal those of a frame with one row of the user."""
    rows = scipy.sparse.coo_array(ratings()[1:])
    shared = list(zip((rows.row + 1).tolist(), rows.col.tolist(), rows.data.tolist(), strict=True))

    def reported(of_first):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="fastfedrec"):
            model = fit(name, pd.DataFrame([(0, *row) for row in of_first] + shared, columns=["user", "item", "value"]))
        return (
            ledger_text(model),
            [message for message in caplog.messages if not RELEASED.search(message)],
            capfd.readouterr(),
        )

    expected = reported([(0, 4.0)])
    for of_first in ROWS.values():
        assert reported(of_first) == expected


def test_a_fit_without_a_guarantee_warns_of_repeated_pairs():
    """The control: the same frame."""
    frame = pd.DataFrame([(0, 0, 2.0), (0, 0, 2.0), (1, 1, 4.0)], columns=["user", "item", "value"])
    with pytest.warns(UserWarning, match="1 rows repeat a user-item pair"):
        fastfedrec.EASE().fit(frame, key=KEY)


@pytest.mark.parametrize("name", ANY)
def test_one_dislike_is_a_rating_or_no_interaction_and_refusals_have_no_cost(name):
    """Counts are at least 0: negative ones are refused before any draw, and `positive` removes them."""
    dense = ratings()
    dense[0, 0] = -1
    data, ledger = of_dense(dense), Ledger()
    model = new(ANY[name])
    # Models of ratings move it to the nearest value on the scale.
    if isinstance(model, LaplaceRRSVD | FedGNN | FedRec | FedRecPlusPlus | SDCF | PrivatePrototypes):
        assert ledger_text(fit(name, data)) == ledger_text(fit(name, of_dense(ratings())))
        return
    key = Key.from_entropy()
    with pytest.raises(ValueError, match=f"{type(model).__name__} is for implicit feedback"):
        model.fit(data, key=key, ledger=ledger)
    assert not ledger.events
    key.claim("it is not used up")
    assert ledger_text(fit(name, data.positive())) == ledger_text(fit(name, of_dense(ratings())))


def file_form(model, path):
    """All of a file without users but for its numbers, which noise is in: header, names, types and shapes."""
    model.save(path, include_users=False)
    document, arrays = unpack(path.read_bytes())
    return document, {name: (array.dtype.str, array.shape) for name, array in arrays.items() if name != "json"}


def rated_by(users, value):
    """Return values of 1 for all users, except `value` for one item of the last user."""
    rows, items = np.nonzero(ratings())
    values = np.where(np.arange(len(rows)) == len(rows) - 1, value, 1.0)
    return Interactions.from_arrays(
        [users[row] for row in rows], items, values, user_ids=users, item_ids=range(N_ITEMS), timestamps=rows
    )


@pytest.mark.parametrize("name", ANY)
def test_a_file_without_users_has_one_form_for_any_ids_and_values(name, tmp_path):
    users = [f"user {u:02}" for u in range(40)]
    usual, *other_forms = (
        file_form(fit(name, rated_by([*users[:-1], last], value)), tmp_path / "m")
        for last, value in [(users[-1], 1.0), (users[-1], 2.7), ("zoe of a very long name", 1.0), ("zoe", 4.0)]
    )
    if "DPGram" in name or "Sketch" in name or "Subspace" in name:  # the number of factors above the noise is released
        usual, *other_forms = ((list(form[1]), form[0]["header"]) for form in (usual, *other_forms))
    assert all(form == usual for form in other_forms)
    numbered = file_form(fit(name, rated_by(range(40), 2.7)), tmp_path / "m")  # other ids, and so other draws
    assert "data.values" not in numbered[1]
    assert numbered[1]["data.user_ids"] == ("<i8", (0,))


@pytest.mark.parametrize("is_for_others", [True, False])
def test_a_file_for_others_has_no_columns_of_features(is_for_others, tmp_path):
    features = {"user_features": {"age": np.arange(40)}, "item_features": {"kind": np.arange(N_ITEMS)}}
    fit("DPGram", of_dense(ratings()).with_features(**features)).save(tmp_path / "m", include_users=not is_for_others)
    document, arrays = unpack((tmp_path / "m").read_bytes())
    columns = {name for name in arrays if "feature" in name}
    assert columns == (set() if is_for_others else {"data.user_feature.0", "data.item_feature.0"})
    assert ("age" in str(document)) == (not is_for_others)  # nor are there their names


def test_hidden_values_are_in_no_warning_and_in_no_note():
    dense = ratings()
    dense[0, 0] = 2.5  # on no grid
    for name in ("LaplaceRRSVD, hidden", "LaplaceRRSVD", "LaplaceRRSVD, serial"):
        assert ledger_text(fit(name, of_dense(dense))) == ledger_text(fit(name, of_dense(ratings())))
    with pytest.warns(UserWarning, match=r"1 of \d+ ratings are not on the grid"):
        LaplaceRRSVD("published").fit(of_dense(dense), key=KEY)  # has no guarantee
