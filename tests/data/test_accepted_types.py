"""Tests that functions of users' data take the types of `fit`: Interactions, a SciPy matrix or array, or a frame."""

import ast
import dataclasses
import functools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from support.interaction_case import assert_same

from fastfedrec import DMF, EASE, FedGNN, FedRec, Interactions, Key, Popularity, PrivRec, attacks, choose_items
from fastfedrec.compute.networks.client_examples import Events
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.data.conversion import as_interactions
from fastfedrec.data.features import Features
from fastfedrec.data.log import InteractionLog
from fastfedrec.data.store import open_interactions, store_interactions
from fastfedrec.evaluation import (
    KFold,
    PublishedFolds,
    TemporalSplit,
    evaluate,
    evaluate_lists,
    evaluate_ratings,
    mean_percentile_rank,
)
from fastfedrec.evaluation.new_users import personalization_split
from fastfedrec.mechanisms.bounded_rows import limit_contributions, project_rows
from fastfedrec.studies.sweep.sweeps import sweep
from fastfedrec.systems.fedrec import attacks as fedrec_attacks
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes
from fastfedrec.systems.rating_svd.baselines import GlobalMean

ROOT = Path(__file__).parents[2]
KEY = Key.from_seed(1)
# SHARDS: arguments that are always Interactions. INTERACTIONS_ONLY: functions that take no other type, and why.
SHARDS = ("shard", "shards")
INTERACTIONS_ONLY = {
    "compute.als.kernel_values": "called by systems, of what fit has checked",
    "compute.networks.sequences.check_sequences": "called by those who have taken the data",
    "datasets.movielens.zip_regions": "looks at a feature, which Interactions alone have",
    "engines.flower.app.client_app": "a node's own users, whose ids another node must not have",
    "evaluation.new_users.score_rows": "called by metrics, of what they have taken",
    "rounds.engine.Engine.run": "called by systems, of what fit has checked",
    "studies.membership.attack.membership_loss": "a loss of one's own is given Interactions",
    "systems.baselines.item_models.count_pairs": "called by systems, of what fit has checked",
    "systems.baselines.epochs.places_before": "called by systems, of what fit has checked",
    "systems.dplcf.sum_answers": "called by systems, of what fit has checked",
}
REPRODUCED = "studies.reproduce."  # figures of papers, of the sets that their readers give


@functools.cache
def arguments_of_data():
    """Return (function, argument, annotation) of every public function of the reference that takes users' data."""
    arguments = []
    # The page of the reference lists a module on each indented line.
    reference = re.findall(r"^   fastfedrec\.([\w.]+)$", (ROOT / "docs/reference/index.md").read_text(), re.MULTILINE)
    for module in reference:
        path = ROOT / "fastfedrec" / module.replace(".", "/")
        tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
        functions = [(module, node) for node in tree.body]
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                functions += [(f"{module}.{node.name}", inner) for inner in node.body]
        for owner, node in functions:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                # All kinds of parameters except *args and **kwargs.
                every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                for argument in every:
                    if argument.annotation and "Interactions" in (annotation := ast.unparse(argument.annotation)):
                        arguments.append((f"{owner}.{node.name}", argument.arg, annotation))
    return arguments


def test_functions_of_interactions_only_are_listed_with_a_reason():
    names = {
        name
        for name, argument, annotation in arguments_of_data()
        if re.search(r"\bInteractions\b", annotation) and argument not in SHARDS and not name.startswith(REPRODUCED)
    }
    assert names == set(INTERACTIONS_ONLY)


# ---- what is taken --------------------------------------------------------------------------------------------------


def stored(data, tmp_path):
    folder = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
    store_interactions(data, folder)
    return open_interactions(folder)


def recorded(data):
    """Return the view of each participant in rounds of FedRec."""
    model = FedRec(rho=1, n_rounds=2, n_factors=2)
    return model.fit(as_interactions("data", data), key=KEY, record_views=[0, 1]).records_


def of_attack(data):
    views = recorded(data)
    results = [attacks.run_attacks(views, data), attacks.intersection(views, data), attacks.gradients(*views, data)]
    results.append(attacks.popularity(views[0], data, np.ones(10)))
    return results + [attack(views[0], data) for attack in (attacks.value_matching, attacks.group_sums)]


def of_neighbors(data):
    model = DMF(n_rounds=2).fit(as_interactions("data", data), key=KEY, record_views=range(2))
    return [attacks.neighbor_gradients(model.records_[0], data), attacks.neighbor_intersection(model.records_, data)]


def of_pseudo_items(data):
    options = {"n_rounds": 2, "n_factors": 5, "n_pseudo_items": 2, "negatives": 1, "grid": (0.0, 1.0)}
    rows = as_interactions("data", data).binarize()
    records = FedGNN("published", **options).fit(rows, key=KEY, record_views=range(2)).records_
    return [attacks.pseudo_item_values(records[0], data), attacks.pseudo_item_intersection(records, data)]


FEW = Interactions.from_arrays(range(8), range(8), user_ids=range(8), item_ids=range(10))


def fitted(data):
    return GlobalMean().fit(as_interactions("data", data), key=KEY)


def of_contexts(data):
    rows = as_interactions("data", data)
    return Events.from_log(data, rows.user_ids[:3], rows.item_ids[:3])


def of_privrec(data):
    small = {"n_rounds": 1, "cohort_size": 2, "n_factors": 16, "hidden": (16,), "local_epochs": 1}
    options = {"n_rounds": 1, "cohort_size": 2, "local_epochs": 1, "learning_rate": 0.01}
    rows = as_interactions("data", data)
    reversed_rows = rows.select_users(np.arange(rows.n_users)[::-1]).binarize()
    model = PrivRec(stage1="public", stage1_options=options, **small).fit(reversed_rows, public=data, key=KEY)
    return model.parameters_, model.personalize(data, key=KEY).score_items(rows.user_ids[:2])


#: Calls of each function with data of any type.
CALLS = {
    "compute.networks.client_examples.Events.from_log": of_contexts,
    "compute.networks.sequences.draw_contrastive_examples": lambda data: draw_contrastive_examples(
        data, [0, 1], key=KEY
    ),
    "data.features.Features.encode": lambda data: Features.from_interactions(as_interactions("x", data)).encode(data),
    "data.features.Features.from_interactions": Features.from_interactions,
    "data.log.InteractionLog": lambda data: InteractionLog(data, [0], [0], {}).interactions,
    "data.store.store_interactions": stored,

    "evaluation.metrics.evaluate.evaluate": lambda data: dict(evaluate(Popularity().fit(FEW), FEW, data)),
    "evaluation.metrics.lists.evaluate_lists": lambda data: dict(
        evaluate_lists(Popularity().fit(FEW).recommend(as_frame=True), FEW, data, metrics=["hr@5"])
    ),
    "evaluation.new_users.personalization_split": lambda data: personalization_split(data, key=KEY).known,
    "evaluation.percentiles.mean_percentile_rank": lambda data: [
        mean_percentile_rank(fitted(data), data), mean_percentile_rank(fitted(data), data, seen=data),
    ],
    "evaluation.rating_metrics.evaluate_ratings": lambda data: evaluate_ratings(fitted(data), data),
    "evaluation.splits.Splitter.split": lambda data: [split.test for split in KFold(2).split(data, key=KEY)],
    "evaluation.temporal_split.TemporalSplit.split": lambda data: next(TemporalSplit(share=0.5).split(data)).test,
    "mechanisms.bounded_rows.limit_contributions": lambda data: limit_contributions(
        data, 2, value_range=(0.0, 3.0), key=KEY
    ),
    "mechanisms.bounded_rows.project_rows": lambda data: project_rows(data, 3, 1.0, key=KEY),
    "mechanisms.item_choice.choose_items": lambda data: choose_items(data, 3, 50.0, delta=0.1, key=KEY),
    "studies.membership.attack.membership_loss": lambda data: attacks.membership_loss(
        EASE(), data, key=KEY, n_references=0, n_bootstrap=100
    ).scores,
    "studies.sweep.sweeps.sweep": lambda data: sweep([], data, seeds=1).cells[0].mean("hr@10"),
    "systems.dmf.attacks.neighbor_gradients": of_neighbors,
    "systems.fedgnn.attacks.pseudo_item_values": of_pseudo_items,
    "systems.fedrec.attacks.run_attacks": of_attack,
    "systems.private_prototypes.prototypes.recover_prototypes": lambda data: recover_prototypes(
        data, np.arange(8) % 2, 2, Recovery("masked", max_entries=10, value_range=(0.0, 9.0)), key=KEY
    ),
    "systems.privrec.model.PrivRec.fit": of_privrec,
    "systems.rating_model.RatingModel.evaluate": lambda data: fitted(data).evaluate(data),
}  # fmt: skip


#: Functions of other tests: every `fit` in systems/test_fit_inputs.py, kernels in compute/test_kernel_inputs.py.
ELSEWHERE = re.compile(
    r"(.*\.(fit|refit|with_users|serve)|compute\.(als|nmf|clustering|sgd|ranking|row_sums)\..*|data\.conversion\..*"
    r"|compute\.networks\.client_examples\.(Events\.from_interactions|draw_examples)"
    r"|evaluation\.published_folds\.PublishedFolds\.split)"
)
#: Functions that a call above uses in addition to the function in its name.
BESIDE = {
    "studies.membership.attack.membership_shadow",  # uses the same lines, before forests that take seconds
    "systems.privrec.model.PrivRec.personalize",
    "systems.dmf.attacks.neighbor_intersection",
    "systems.fedgnn.attacks.pseudo_item_intersection",
    *(f"systems.fedrec.attacks.{attack}" for attack in attacks.__all__ if attack in vars(fedrec_attacks)),
}


def test_each_function_of_users_data_is_called():
    taken = {name for name, _, annotation in arguments_of_data() if "InteractionsLike" in annotation}
    assert {name for name in taken if not ELSEWHERE.fullmatch(name)} - set(CALLS) - BESIDE == set()


def assert_equal(one, other):
    if isinstance(one, Interactions):
        assert_same(one, other)
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_equal(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_equal(first, second)
    else:
        np.testing.assert_equal(one, other)


# A pattern of 8 users and 10 items with about two thirds of the pairs.
USERS, ITEMS = (part.ravel() for part in np.divmod(np.flatnonzero(np.arange(80) % 7 > 2), 10))
COLUMNS = {"user": USERS, "item": ITEMS, "value": 1.0 + (USERS + ITEMS) % 5, "timestamp": np.arange(len(USERS)) * 3}
MATRIX = scipy.sparse.coo_array((COLUMNS["value"], (USERS, ITEMS)), shape=(8, 10))
NEEDS_TIMES = ("draw_contrastive_examples", "TemporalSplit", "PrivRec.fit")


@pytest.mark.ignores_values
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("given", [MATRIX, pd.DataFrame(COLUMNS), pl.LazyFrame(COLUMNS)], ids=["coo", "pandas", "lazy"])
def test_a_matrix_and_a_frame_give_the_result_of_their_interactions(name, given, tmp_path):
    call, made = CALLS[name], as_interactions("interactions", given)
    if made.timestamps is None and any(part in name for part in NEEDS_TIMES):
        pytest.skip("a matrix has no times")
    arguments = (tmp_path,) if call is stored else ()
    assert_equal(call(given, *arguments), call(made, *arguments))


def test_a_split_as_published_takes_them():
    with pytest.raises(FileNotFoundError, match="nowhere"):
        PublishedFolds("nowhere").split(MATRIX)
