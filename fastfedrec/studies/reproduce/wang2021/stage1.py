"""Wang et al. 2021 (PrivRec): does the first stage help at equal epsilon?  The question that its Figure 4 leaves open.

The paper compares DP-PrivRec, whose first stage trains on private sequences without noise, with DP-PrivRec-One, which
has none, at what it calls the same epsilon; the former has no guarantee at all.  Here each kind of first stage stands
beside the others at what the ledger proves for the whole.
"""

import functools
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.networks.sequences import check_sequences
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_to_json
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.generate_sequences import generate_sequences
from fastfedrec.evaluation.new_users import PersonalizationSplit, evaluate_personalized, personalization_split
from fastfedrec.studies.reproduce._trials import each, mean_and_deviation
from fastfedrec.studies.reproduce.side_by_side import RunOptions, SideBySide, checksum, kept
from fastfedrec.studies.reproduce.wang2021._runs import fit_devices
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity
from fastfedrec.systems.privrec.model import PrivRec

__all__ = ["PublicPopularity", "StageOneTable", "stage1_table", "stage_models"]

TABLE = "stage1"
EPSILON = 2.0
METRICS = ("hr@10", "ndcg@10")
STAGES = {"none": "none", "public": "public", "dp": "private", "published": "as published"}
USER, ITEM = ("gender", "age", "occupation"), ("genres",)
_PUBLIC_SHARE = 0.25  # of all people: whose sequences are taken to be public, and nothing else of them is used
_GENERATED = {"n_users": 2_000, "n_items": 300, "n_topics": 6}
_SMALL = {"n_users": 200, "n_items": 100, "n_topics": 2}
_QUICK_ROUNDS = 2
PRIVREC, DP, START = "PrivRec", "DP-PrivRec", "private popularity, fine-tuned"
JOINT = "joint loss"
WEIGHT = 0.1  # of the contrastive losses beside the recommender's; the paper names none, and it was not tuned


@dataclass
class PublicPopularity:
    """How many of the public people have each item: it costs nothing, and needs no network.

    Parameters
    ----------
    counts : ndarray of shape (n_items,) or None
        None before they are counted.
    """

    counts: np.ndarray | None = None

    def score_items(self, user_ids: Any) -> NDArray[np.float64]:
        """The same for everybody.

        Parameters
        ----------
        user_ids : array_like of shape (n_users,)
            Whom for.

        Returns
        -------
        ndarray of shape (n_users, n_items), float64
            Counts.
        """
        assert self.counts is not None
        return np.tile(self.counts.astype(np.float64), (len(user_ids), 1))


@dataclass(frozen=True)
class StageOneTable(SideBySide):
    """Hits with each kind of first stage, beside the baselines.

    Parameters
    ----------
    source, settings : object
        As for `SideBySide`.
    rows : dict of str to dict
        By model: "stage1", "epsilon" ("infinite": no guarantee), and for each metric a figure a seed.
    """

    rows: dict[str, dict[str, Any]]

    title = "PrivRec: what the first stage is worth at equal epsilon"
    legend = (
        "Means over seeds, with the standard deviation where there are several: each seed draws the public people,\n"
        "the test users and all else (a simulation).  epsilon: of the whole, as the ledger proves it, for replacing\n"
        "all data of one user at delta 1e-6.  Devices of test users fine-tune the network; all unvisited items are\n"
        "ranked."
    )

    def verdict(self) -> str:
        """Say whether each first stage helps.

        Returns
        -------
        str
            A sentence for each model and kind of first stage.
        """
        lines = []
        for name, row in self.rows.items():
            family, _, stage = name.rpartition(", stage one ")
            if not family or stage == "none":
                continue
            alone = stage.removesuffix(f", {JOINT}")
            what, other = (f"stage one {stage}", "none") if alone == stage else (f"the joint loss after {alone}", alone)
            without = self.rows[f"{family}, stage one {other}"]["hr@10"]
            gains = [ours - theirs for ours, theirs in zip(row["hr@10"], without, strict=True)]
            better = sum(gain > 0 for gain in gains)
            lines.append(
                f"{family}: {what} changes HR@10 by {statistics.fmean(gains):+.3f}, and is ahead on "
                f"{better} of {len(gains)}."
            )
        return "\n".join(lines)

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        body = []
        for name, row in self.rows.items():
            cost = "none" if row["epsilon"] == "infinite" else f"{row['epsilon']:.3f}"
            body.append([name, cost, *(mean_and_deviation(row[metric], deviation=" ({:.3f})") for metric in METRICS)])
        return ["model", "epsilon", *(metric.upper() for metric in METRICS)], body

    def _draw(self, figure: Any) -> None:
        figure.set_size_inches(8, 5)
        panel = figure.subplots()
        names = list(self.rows)[::-1]
        panel.barh(names, [statistics.fmean(self.rows[name]["hr@10"]) for name in names])
        panel.set(xlabel="HR@10", title=self.title)
        panel.tick_params(axis="y", labelsize="x-small")


def stage1_table(data: Interactions | None = None, *, n_seeds: int = 3, **options: Any) -> StageOneTable:
    """Train PrivRec with each kind of first stage, at equal epsilon of the whole.

    Parameters
    ----------
    data : Interactions or None
        MovieLens with all of its timestamps (100K); None generates sequences.
    n_seeds : int
        Seeds 0 to n_seeds - 1.
    **options : object
        As for `RunOptions`; no figure depends on `n_threads`.  `quick`: few rounds and people: to see that everything
        runs.

    Returns
    -------
    StageOneTable
        A row a model.

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
    rows: dict[str, dict[str, Any]] = {}
    tasks = []
    sizes = set()
    for seed in range(n_seeds):
        key = Key.from_seed(seed)
        whole = generate_sequences(**(_SMALL if how.quick else _GENERATED), key=key) if data is None else data
        public, split = _split(whole, key, 0.0 if data is None else 3.0)
        settings = {"version": __version__, "data": checksum([whole]), "seed": seed, "quick": how.quick}
        sizes.add((len(split.train_users), public.n_users, len(split.test_users)))
        for name, model in stage_models(whole, split, quick=how.quick).items():
            tasks.append((seed, name, settings | {"model": repr(model)}, model, public, split, key))
    for task in each(tasks, how, "stage one", "model"):
        seed, name, settings, model, public, split, key = task
        run = functools.partial(_run, model, public, split, key, how.n_threads)
        found = kept(how.folder, f"stage1-{seed}-{name.replace(' ', '-').replace(',', '')}", settings, run)
        row = rows.setdefault(name, {"epsilon": found["epsilon"], **{metric: [] for metric in METRICS}})
        for metric in METRICS:
            row[metric].append(found[metric])
    what = "Generated sequences" if data is None else "The data given"
    n_train, n_public, n_test = max(sizes)
    source = f"{what}: {whole!r}; {n_train:,} train users, {n_public:,} public people, {n_test:,} test users"
    described = {"version": __version__, "seeds": n_seeds, "quick": how.quick}
    models = {name: settings["model"] for _, name, settings, *_ in tasks}
    return StageOneTable(source, described | {"models": models}, rows)


def stage_models(data: Interactions, split: PersonalizationSplit, *, quick: bool = False) -> dict[str, Any]:
    """Every model of the table, with its parameters.

    Parameters
    ----------
    data : Interactions
        Gives the features.
    split : PersonalizationSplit
        Gives the number of train users.
    quick : bool
        Train hardly at all.

    Returns
    -------
    dict of str to Recommender
        By name.
    """
    features = {
        # Public values: those of the whole, so that a test user's are known.
        "user": {name: np.unique(column).tolist() for name, column in data.user_features.items() if name in USER},
        "item": [name for name in ITEM if name in data.item_features],
    }
    n_train = len(split.train_users)
    common: dict[str, Any] = {"features": features, "threshold": split.threshold}
    common["server_optimizer"] = "sgd"  # equation 6, with noise and without
    common |= {"n_factors": 32, "hidden": (64, 32, 16)}
    plain = common | {"cohort_size": min(200, n_train)}
    half = {"cohort_size": 2 * n_train // 5}
    private = common | half | {"n_rounds": 25, "local_epochs": 3, "server_learning_rate": 2.0}
    private |= {"clip_norm": 0.3, "target_epsilon": EPSILON}
    start = common | {"n_rounds": 0, "local_epochs": 10, "popularity_epsilon": EPSILON}
    options: dict[str, Any] = {}
    noisy = half | {"n_rounds": 25, "clip_norm": 0.05}
    if quick:
        plain, private = ({**one, "n_rounds": _QUICK_ROUNDS, "local_epochs": 1} for one in (plain, private))
        options["n_rounds"] = noisy["n_rounds"] = start["local_epochs"] = _QUICK_ROUNDS
    # Half of the budget for each part where there are two.
    shared = {"popularity_epsilon": EPSILON / 2, "target_epsilon": EPSILON, "clip_norm": 0.05}
    models: dict[str, Any] = {}
    for family, parameters in ((PRIVREC, plain), (DP, private), (START, start)):
        for kind, said in STAGES.items():
            own: dict[str, Any] = {"stage1": kind, "stage1_options": options}
            if kind == "dp":
                own["stage1_options"] = noisy
                own |= shared if family == START else {}
            if (family, kind) not in {(PRIVREC, "dp"), (START, "published")}:
                models[f"{family}, stage one {said}"] = PrivRec(**(parameters | own))
                if kind != "none" and family != START:  # which has no rounds
                    own |= {"stage1_options": own["stage1_options"] | {"contrastive_weight": WEIGHT}}
                    models[f"{family}, stage one {said}, {JOINT}"] = PrivRec(**(parameters | own))
    models["popularity"] = Popularity()
    models["DP popularity"] = DPPopularity(EPSILON / 2)  # for replacing a user, which costs twice
    models["popularity of the public people"] = PublicPopularity()
    return models


def _split(data: Interactions, key: Key, threshold: float) -> tuple[Interactions, PersonalizationSplit]:
    """The public people, and a split of the others."""
    order = key.permutation("privrec.stage1.public", size=data.n_users)
    n_public = round(_PUBLIC_SHARE * data.n_users)
    others = data.select_users(np.sort(order[n_public:]))
    return data.select_users(np.sort(order[:n_public])), personalization_split(others, threshold=threshold, key=key)


def _run(
    model: Any, public: Interactions, split: PersonalizationSplit, key: Key, n_threads: int
) -> dict[str, float | str]:
    cost = 0.0
    if isinstance(model, PublicPopularity):
        fitted: Any = PublicPopularity(public.binarize(split.threshold).interactions_per_item())
    else:
        shown = public if isinstance(model, PrivRec) and model.stage1 == "public" else None
        fitted = fit_devices(model, split, key, n_threads, public=shown)
        cost = model.ledger_.epsilon("public")
    found = evaluate_personalized(fitted, split, metrics=METRICS, n_threads=n_threads)["all"]
    return {**found, "epsilon": epsilon_to_json(cost)}
