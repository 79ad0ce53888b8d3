"""Wang et al. 2021 (PrivRec): gain of the first stage at equal epsilon, a question that its Figure 4 leaves open.

The paper compares DP-PrivRec, which trains its first stage on private sequences without noise, with DP-PrivRec-One,
which has no first stage, at the same nominal epsilon.  DP-PrivRec has no guarantee at all.  Here all kinds of first
stages are compared at the epsilon that the ledger proves for the whole run.
"""

import functools
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.networks.sequences import check_sequences
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_to_json
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.generate_sequences import generate_sequences
from fastfedrec.evaluation.new_users import PersonalizationSplit, evaluate_personalized, personalization_split
from fastfedrec.studies.drawings import draw_bars
from fastfedrec.studies.files import Case, checksum, file_name, measure_cases
from fastfedrec.studies.report import Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import mean_and_deviation
from fastfedrec.studies.reproduce.wang2021._runs import fit_devices
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity
from fastfedrec.systems.privrec.model import PrivRec

__all__ = ["PublicPopularity", "stage1_table", "stage_models"]

EPSILON = 2.0
METRICS = ("hr@10", "ndcg@10")
STAGES = {"none": "none", "public": "public", "dp": "private", "published": "as published"}
USER, ITEM = ("gender", "age", "occupation"), ("genres",)
_PUBLIC_SHARE = 0.25  # share of the users with public sequences, which are their only data in use
_GENERATED = {"n_users": 2_000, "n_items": 300, "n_topics": 6}
_SMALL = {"n_users": 200, "n_items": 100, "n_topics": 2}
_QUICK_ROUNDS = 2
PRIVREC, DP, START = "PrivRec", "DP-PrivRec", "private popularity, fine-tuned"
JOINT = "joint loss"
WEIGHT = 0.1  # weight of the contrastive losses in the joint loss; not tuned, and not stated in the paper


@dataclass
class PublicPopularity:
    """Popularity among the users with public sequences, which has no cost and needs no network.

    Parameters
    ----------
    counts : ndarray of shape (n_items,) or None
        Number of these users that have each item; None before they are counted.
    """

    counts: np.ndarray | None = None

    def score_items(self, user_ids: Any) -> NDArray[np.float64]:
        """Return the counts as scores, equal for all users.

        Parameters
        ----------
        user_ids : array_like of shape (n_users,)
            Ids of the users to score items for.

        Returns
        -------
        ndarray of shape (n_users, n_items), float64
            Counts of the items.
        """
        assert self.counts is not None
        return np.tile(self.counts.astype(np.float64), (len(user_ids), 1))


def _compare_stages(table: Report) -> str:
    """Compare each first stage with the same model without it, in one sentence for each model and stage."""
    lines = []
    for name, row in table.rows.items():
        family, _, stage = name.rpartition(", stage one ")
        if not family or stage == "none":
            continue
        base_stage = stage.removesuffix(f", {JOINT}")
        description, baseline_stage = (
            (f"stage one {stage}", "none")
            if base_stage == stage
            else (f"the joint loss after {base_stage}", base_stage)
        )
        baseline = table.rows[f"{family}, stage one {baseline_stage}"]["hr@10"]
        gains = [ours - theirs for ours, theirs in zip(row["hr@10"], baseline, strict=True)]
        # Seeds are compared in pairs, because both models of a seed have the same split.
        better = sum(gain > 0 for gain in gains)
        lines.append(
            f"{family}: {description} changes HR@10 by {statistics.fmean(gains):+.3f}, and is ahead on "
            f"{better} of {len(gains)}."
        )
    return "\n".join(lines)


def _format_metric(metric: str, row: tuple[str, dict[str, Any]]) -> str:
    return mean_and_deviation(row[1][metric], deviation=" ({:.3f})")


def _draw(table: Report, figure: Any) -> None:
    bars = {name: statistics.fmean(row["hr@10"]) for name, row in table.rows.items()}
    draw_bars(figure, bars, (8, 5), "HR@10", title=table.title)


STUDY = Study(
    title="PrivRec: what the first stage is worth at equal epsilon",
    legend=(
        "Means over seeds, with the standard deviation if there are several.  Each seed draws the users with public\n"
        "sequences, the test users and all remaining randomness (a simulation).  epsilon: of the whole run, as the\n"
        "ledger proves it, for replacing all data of one user at delta 1e-6.  Devices of test users fine-tune the\n"
        "network; all unvisited items are ranked."
    ),
    columns=[
        ("model", "{[0]}"),
        ("epsilon", lambda row: "none" if row[1]["epsilon"] == "infinite" else f"{row[1]['epsilon']:.3f}"),
        *((metric.upper(), functools.partial(_format_metric, metric)) for metric in METRICS),
    ],
    verdict=_compare_stages,
    draw=_draw,
    records=lambda table: table.rows.items(),
)


def stage1_table(data: Interactions | None = None, *, n_seeds: int = 3, **options: Any) -> Report:
    """Train PrivRec with each kind of first stage, at equal epsilon of the whole run.

    Parameters
    ----------
    data : Interactions or None
        MovieLens with all of its timestamps (100K); None generates sequences.
    n_seeds : int
        Number of seeds; they are 0 to n_seeds - 1.
    **options : object
        Options of `RunOptions`; no figure depends on `n_threads`.  `quick`: few rounds and users, as a test that
        everything runs.

    Returns
    -------
    Report
        Table.  `rows` have for each model "epsilon", which is "infinite" without a guarantee, and for each metric the
        figures of all seeds.

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", The VLDB
       Journal, 2021, sections 2.4 and 4.3.
    """
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    how = RunOptions(**options)
    if data is not None:
        check_instance("data", data, Interactions, "use a reader of fastfedrec.datasets")
        check_sequences("data", data)
    cases, sizes = {}, set()
    for seed in range(n_seeds):
        key = Key.from_seed(seed)
        all_data = generate_sequences(**(_SMALL if how.quick else _GENERATED), key=key) if data is None else data
        public, split = _split(all_data, key, 0.0 if data is None else 3.0)
        settings = {"version": __version__, "data": checksum([all_data]), "seed": seed, "quick": how.quick}
        sizes.add((len(split.train_users), public.n_users, len(split.test_users)))
        for name, model in stage_models(all_data, split, quick=how.quick).items():
            measure = functools.partial(_run, model, public, split, key, how.n_threads)
            file = f"stage1-{seed}-{file_name(name)}"
            cases[name, seed] = Case(file, settings | {"model": repr(model)}, measure)
    rows: dict[str, dict[str, Any]] = {}
    for (name, _), results in measure_cases(cases, how, "stage one", "model").items():
        row = rows.setdefault(name, {"epsilon": results["epsilon"], **{metric: [] for metric in METRICS}})
        for metric in METRICS:
            row[metric].append(results[metric])
    kind = "Generated sequences" if data is None else "The data given"
    n_train, n_public, n_test = max(sizes)
    counts = f"{n_train:,} train users, {n_public:,} users with public sequences, {n_test:,} test users"
    source = f"{kind}: {all_data!r}; {counts}"
    described = {"version": __version__, "seeds": n_seeds, "quick": how.quick}
    models = {name: case.settings["model"] for (name, _), case in cases.items()}
    return Report(STUDY, source, described | {"models": models}, rows=rows)


def stage_models(data: Interactions, split: PersonalizationSplit, *, quick: bool = False) -> dict[str, Any]:
    """Return every model of the table with its parameters.

    Parameters
    ----------
    data : Interactions
        Data with the features.
    split : PersonalizationSplit
        Split with the train users.
    quick : bool
        Whether to train for a few rounds only.

    Returns
    -------
    dict of str to Recommender
        Unfitted models by name.
    """
    features = {
        # All values of the data are public, so that a test user's values are known.
        "user": {name: np.unique(column).tolist() for name, column in data.user_features.items() if name in USER},
        "item": [name for name in ITEM if name in data.item_features],
    }
    n_train = len(split.train_users)
    common: dict[str, Any] = {"features": features, "threshold": split.threshold}
    # Equation 6 of the paper is a plain gradient step of the server, with and without noise.
    common["server_optimizer"] = "sgd"
    common |= {"n_factors": 32, "hidden": (64, 32, 16)}
    not_private = common | {"cohort_size": min(200, n_train)}
    half_cohort = {"cohort_size": 2 * n_train // 5}
    private = common | half_cohort | {"n_rounds": 25, "local_epochs": 3, "server_learning_rate": 2.0}
    private |= {"clip_norm": 0.3, "target_epsilon": EPSILON}
    start = common | {"n_rounds": 0, "local_epochs": 10, "popularity_epsilon": EPSILON}
    stage1_options: dict[str, Any] = {}
    noisy = half_cohort | {"n_rounds": 25, "clip_norm": 0.05}
    if quick:
        not_private, private = (
            {**options, "n_rounds": _QUICK_ROUNDS, "local_epochs": 1} for options in (not_private, private)
        )
        stage1_options["n_rounds"] = noisy["n_rounds"] = start["local_epochs"] = _QUICK_ROUNDS
    # A private first stage and private popularity have half of the budget each.
    shared = {"popularity_epsilon": EPSILON / 2, "target_epsilon": EPSILON, "clip_norm": 0.05}
    models: dict[str, Any] = {}
    for family, parameters in ((PRIVREC, not_private), (DP, private), (START, start)):
        for kind, label in STAGES.items():
            # A private stage needs rounds and a clip norm of its own.
            stage_options: dict[str, Any] = {"stage1": kind, "stage1_options": stage1_options}
            if kind == "dp":
                stage_options["stage1_options"] = noisy
                stage_options |= shared if family == START else {}
            if (family, kind) not in {(PRIVREC, "dp"), (START, "published")}:
                models[f"{family}, stage one {label}"] = PrivRec(**(parameters | stage_options))
                # START has no rounds, so there is no joint loss.
                if kind != "none" and family != START:
                    stage_options |= {
                        "stage1_options": stage_options["stage1_options"] | {"contrastive_weight": WEIGHT}
                    }
                    models[f"{family}, stage one {label}, {JOINT}"] = PrivRec(**(parameters | stage_options))
    models["popularity"] = Popularity()
    # Replacing a user costs DPPopularity twice its epsilon.
    models["DP popularity"] = DPPopularity(EPSILON / 2)
    models["popularity of the public people"] = PublicPopularity()
    return models


def _split(data: Interactions, key: Key, threshold: float) -> tuple[Interactions, PersonalizationSplit]:
    """Draw the users with public sequences, and split the remaining users."""
    order = key.permutation("privrec.stage1.public", size=data.n_users)
    n_public = round(_PUBLIC_SHARE * data.n_users)
    remaining = data.select_users(np.sort(order[n_public:]))
    return data.select_users(np.sort(order[:n_public])), personalization_split(remaining, threshold=threshold, key=key)


def _run(
    model: Any, public: Interactions, split: PersonalizationSplit, key: Key, n_threads: int
) -> dict[str, float | str]:
    # Public sequences have no cost.
    cost = 0.0
    if isinstance(model, PublicPopularity):
        fitted: Any = PublicPopularity(public.binarize(split.threshold).interactions_per_item())
    else:
        public_rows = public if isinstance(model, PrivRec) and model.stage1 == "public" else None
        fitted = fit_devices(model, split, key, n_threads, public=public_rows)
        cost = model.ledger_.epsilon("public")
    figures = evaluate_personalized(fitted, split, metrics=METRICS, n_threads=n_threads)["all"]
    return {**figures, "epsilon": epsilon_to_json(cost)}


refuse_old_names(__name__, StageOneTable="studies.report.Report")
