"""Wang et al. 2021 (PrivRec): Tables 2 and 3 with baselines, and Tables 4 and 5 with proven upper bounds.

Table 1 is notation.  Table 6 (membership inference) is in `attacks`, and the figures are in `figures`.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec.accounting import Gaussian, PLDAccountant, RDPAccountant, published_privrec_epsilon
from fastfedrec.core.check import check_choice, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.evaluation.new_users import METRICS, PersonalizationSplit, evaluate_personalized, personalization_split
from fastfedrec.studies.files import Case, measure_cases
from fastfedrec.studies.report import Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import select_models
from fastfedrec.studies.reproduce.wang2021._runs import describe_split, first_test_users, fit_devices
from fastfedrec.systems.baselines.item_models import EASE, ItemKNN, OwnHistory
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity
from fastfedrec.systems.fedgnn.model import FedGNN
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP
from fastfedrec.systems.ncf.model import NCF
from fastfedrec.systems.privrec.model import PrivRec

__all__ = ["PUBLISHED", "accuracy_table", "epsilon_table"]

# Hits@5, 10, 20 and 30, then nDCG at the same cutoffs, from Tables 2 and 3.
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "2": {
        "FOFL-SELF": (0.118, 0.152, 0.195, 0.241, 0.101, 0.130, 0.169, 0.207),
        "NN-SELF": (0.109, 0.148, 0.190, 0.235, 0.098, 0.124, 0.162, 0.201),
        "FCF": (0.092, 0.140, 0.186, 0.228, 0.088, 0.118, 0.155, 0.195),
        "FedGNN": (0.120, 0.155, 0.201, 0.247, 0.109, 0.137, 0.174, 0.218),
        "NCF": (0.158, 0.206, 0.294, 0.347, 0.152, 0.186, 0.250, 0.307),
        "PrivRec": (0.131, 0.168, 0.217, 0.269, 0.114, 0.141, 0.189, 0.233),
        "PrivRec-CEN": (0.136, 0.187, 0.235, 0.287, 0.125, 0.152, 0.206, 0.258),
    },
    "3": {
        "FOFL-SELF": (0.536, 0.618, 0.655, 0.682, 0.479, 0.554, 0.600, 0.621),
        "NN-SELF": (0.531, 0.613, 0.651, 0.677, 0.472, 0.550, 0.595, 0.616),
        "FCF": (0.527, 0.506, 0.646, 0.671, 0.469, 0.544, 0.591, 0.612),
        "FedGNN": (0.541, 0.625, 0.672, 0.688, 0.486, 0.563, 0.617, 0.631),
        "NCF": (0.598, 0.658, 0.712, 0.770, 0.547, 0.612, 0.663, 0.698),
        "PrivRec": (0.549, 0.635, 0.679, 0.697, 0.495, 0.570, 0.621, 0.636),
        "PrivRec-CEN": (0.564, 0.641, 0.690, 0.726, 0.501, 0.574, 0.632, 0.651),
    },
}
# Number of train users and cohort sizes, by table.
_COHORTS = {"4": (4800, (5, 10, 15, 20, 25, 30)), "5": (760, (2, 5, 8, 10, 12, 15))}
_DELTAS = (1e-8, 1e-6, 1e-4)
_DATA = {"2": "MovieLens 1M", "3": "Frappe"}
_QUICK_ROUNDS, _QUICK_TEST_USERS = 5, 60


def _compare_baselines(table: Report) -> str:
    """Compare PrivRec with popularity and with the best baseline without a network; "" if one was omitted."""
    ours = {name: row["ours"]["hr@10"] for name, row in table.rows.items() if row["ours"] is not None}
    baselines = {name: ours[name] for name in ("popularity", "own history", "item-kNN", "EASE") if name in ours}
    if "PrivRec" not in ours or "popularity" not in ours:
        return ""
    best = max(baselines, key=lambda name: baselines[name])
    return (
        f"PrivRec: HR@10 {ours['PrivRec'] - ours['popularity']:+.3f} compared with popularity, "
        f"{ours['PrivRec'] - baselines[best]:+.3f} compared with the best baseline ({best})."
    )


def _draw_accuracy(table: Report, figure: Any) -> None:
    figure.set_size_inches(9, 5.5)
    panel = figure.subplots()
    cutoffs = [5, 10, 20, 30]
    # Each model has a colour and a marker; the published lines are dashed.
    for number, (name, row) in enumerate(table.rows.items()):
        mark = "os^"[number // 10 % 3]
        for kind, style in (("published", "--"), ("ours", f"-{mark}")):
            figures = row[kind]
            if figures is not None:
                hits = [figures[f"hr@{k}"] for k in cutoffs]
                panel.plot(cutoffs, hits, style, color=f"C{number % 10}", markersize=4, label=f"{name}, {kind}")
    panel.set(xlabel="k", ylabel="HR@k", title=table.title)
    panel.legend(fontsize="x-small", ncols=2, handlelength=3, bbox_to_anchor=(1.01, 1), loc="upper left")


ACCURACY = Study(
    title=lambda table: f"PrivRec, Table {table.table}: {_DATA[table.table]}",
    legend=(
        "HR and nDCG, averaged over each test user's held-out positives, then over users; all unvisited items are\n"
        "ranked (a simulation).  ours, new: positives with an item that is not in the user's known half."
    ),
    columns=[
        ("model", "{[model]}"),
        ("", lambda row: "ours, new" if row["kind"] == "new" else row["kind"]),
        *((metric.upper(), f"{{[{metric}]:.3f}}") for metric in METRICS),
    ],
    verdict=_compare_baselines,
    draw=_draw_accuracy,
    records=lambda table: [
        {"model": name, "kind": kind, **row[kind]}
        for name, row in table.rows.items()
        for kind in ("published", "ours", "new")
        if row[kind] is not None
    ],
)


def _compare_bounds(table: Report) -> str:
    """Compare the printed epsilons with the upper bounds."""
    ratios = [cell["published"] / cell["upper_bound"] for cell in table.cells]
    return f"As published is {min(ratios):.1f} to {max(ratios):.1f} times the upper bound; at delta 0 none is finite."


def _draw_epsilons(table: Report, figure: Any) -> None:
    figure.set_size_inches(7, 5)
    panel = figure.subplots()
    for name, style in (("published", "--"), ("upper_bound", "-")):
        for delta in _DELTAS:
            cells = [cell for cell in table.cells if cell["delta"] == delta]
            x = [cell["cohort_size"] for cell in cells]
            panel.semilogy(x, [cell[name] for cell in cells], style, marker=".", label=f"{name}, delta {delta:g}")
    panel.set(xlabel="users of a round", ylabel="epsilon", title=table.title)
    panel.legend(fontsize="small")


_EPSILON_COLUMNS = [
    ("cohort", "{[cohort_size]:.0f}"), ("delta", "{[delta]:g}"), ("as published", "{[published]:.4f}"),
    ("Renyi, 1000 rounds", "{[rdp]:.4f}"), ("upper bound", "{[upper_bound]:.4f}"),
]  # fmt: skip
EPSILON = Study(
    title="DP-PrivRec, Table {0.table}: epsilon over cohort and delta".format,
    legend=(
        "epsilon in nats, noise multiplier 1, 1000 rounds, for replacing all data of one user; exactly M users (the\n"
        "cohort) a round, without replacement, in secret.  as published: a Renyi bound of 1000 M rounds.\n"
        "Renyi: by the Renyi accountant at 1000 rounds.  upper bound: by privacy loss distributions; proven, and\n"
        "possibly not tight."
    ),
    columns=_EPSILON_COLUMNS,
    verdict=_compare_bounds,
    draw=_draw_epsilons,
    records="cells",
)


def epsilon_table(table: str) -> Report:
    """Compute Table 4 or 5 of the paper, with the proven cost of the same runs.

    Parameters
    ----------
    table : {"4", "5"}
        Number of the table: MovieLens (4800 train users) or Frappe (760).

    Returns
    -------
    Report
        Table of the 18 finite cells.  `cells` have "cohort_size", "delta", "published", "rdp" and "upper_bound".

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", The VLDB
       Journal, 2021, Tables 4 and 5.
    """
    n_users, cohorts = _COHORTS[check_choice("table", table, tuple(_COHORTS))]
    cells = []
    # All rounds have the same event, which is composed once for all deltas.
    for cohort in cohorts:
        sampling: dict[str, Any] = {"sampling": "without_replacement", "n_users": n_users, "cohort_size": cohort}
        event = Gaussian(1.0, neighboring="replace", **sampling)
        pld, rdp = (kind().compose(event, 1000) for kind in (PLDAccountant, RDPAccountant))
        for delta in _DELTAS:
            published = published_privrec_epsilon(n_users, cohort, rounds=1000, noise_multiplier=1.0, delta=delta)
            cell = {"cohort_size": cohort, "delta": delta, "published": published}
            cells.append(cell | {"rdp": rdp.get_epsilon(delta), "upper_bound": pld.get_epsilon(delta)})
    settings = {"version": __version__, "n_users": n_users, "rounds": 1000, "noise_multiplier": 1.0}
    return Report(EPSILON, f"No data: {n_users:,} users", settings, table=table, cells=tuple(cells))


def accuracy_table(
    data: Interactions | InteractionLog,
    table: str,
    *,
    seed: int = 0,
    only: Sequence[str] | None = None,
    **options: Any,
) -> Report:
    """Compute Table 2 or 3 of the paper, with the baselines that it lacks.

    Parameters
    ----------
    data : Interactions or InteractionLog
        MovieLens 1M with its features for "2"; Frappe for "3".
    table : {"2", "3"}
        Number of the table.
    seed : int
        Seed of the split and of every draw: the runs are simulations.
    only : sequence of str or None
        Names of the models to run; None for all.
    **options : object
        Options of `RunOptions`; no figure depends on `n_threads`.  `quick`: few rounds, as a test that everything runs.

    Returns
    -------
    Report
        Table.  `rows` have for each model of the paper and each baseline "published" and "ours" (each a dict by metric,
        or None), and "new" for items new to the user.

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", The VLDB
       Journal, 2021, Tables 2 and 3.
    """
    check_choice("table", table, tuple(PUBLISHED))
    key = Key.from_seed(check_integer("seed", seed, low=0, high=None))
    how = RunOptions(**options)
    expected_type = InteractionLog if table == "3" else Interactions
    if not isinstance(data, expected_type):
        raise TypeError(f"data of table {table} must be {expected_type.__name__}, got {type(data).__name__}")
    split = personalization_split(data, threshold=3.0 if table == "2" else 0.0, key=key)
    if how.quick:
        split = first_test_users(split, _QUICK_TEST_USERS)
    models = select_models(_paper_models(data, quick=how.quick), only)
    source, settings = describe_split(split, seed, quick=how.quick)
    cases = {}
    for name, model in models.items():
        measure = functools.partial(_run, model, split, key, how.n_threads)
        file = f"table-{table}-{name.replace(' ', '-')}"
        cases[name] = Case(file, settings | {"model": repr(model)}, measure)
    results = measure_cases(cases, how, f"Table {table}", "model")
    rows: dict[str, dict[str, dict[str, float] | None]] = {}
    for name in [*PUBLISHED[table], *(name for name in models if name not in PUBLISHED[table])]:
        # Baselines that the paper lacks have no printed figures.
        printed = PUBLISHED[table].get(name)
        ours = results.get(name)
        rows[name] = {
            "published": None if printed is None else dict(zip(METRICS, printed, strict=True)),
            "ours": None if ours is None else ours["all"],
            # On MovieLens every held-out item is new.
            "new": None if ours is None or table == "2" else ours.get("new"),
        }
    described = settings | {"models": {name: repr(model) for name, model in models.items()}}
    return Report(ACCURACY, source, described, table=table, rows=rows)


def _paper_models(data: Interactions | InteractionLog, *, quick: bool = False) -> dict[str, Any]:
    """Return every model of the tables and figures by its name, unfitted; with `quick`, for a few rounds only."""
    features: dict[str, Any] = {"user": ["gender", "age", "occupation"], "item": ["genres"]}
    by_equation_6: dict[str, Any] = {"server_optimizer": "sgd"}
    common: dict[str, Any] = by_equation_6 | {"threshold": 3.0}
    papers = common | {"preset": "paper"}
    if isinstance(data, InteractionLog):
        # All values of the log are public, so that a test user's context is known.
        features = {"item": ["cost"], "context": {name: np.unique(c).tolist() for name, c in data.contexts.items()}}
        common = by_equation_6 | {"negatives": 2, "n_rounds": 10, "cohort_size": 30, "local_epochs": 20}
        papers = common | {"n_rounds": 40, "local_epochs": 100}
    by_adam = common | {"server_optimizer": "adam"}
    if quick:
        by_adam |= {"n_rounds": _QUICK_ROUNDS, "local_epochs": 1}
        common |= {"n_rounds": _QUICK_ROUNDS, "local_epochs": 1}
        papers |= {"n_rounds": _QUICK_ROUNDS, "local_epochs": 1}
    # One step per client and round: a batch holds all examples.
    one_step = common | {"local_epochs": 1, "batch_size": 2**31 - 1}
    private = common | {"cohort_size": min(400, 2 * data.n_users // 5), "clip_norm": 0.3, "target_epsilon": 2.0}
    private |= {
        "n_rounds": _QUICK_ROUNDS if quick else 25,
        "local_epochs": 1 if quick else 3,
        "server_learning_rate": 2.0,
    }
    from_popularity = common | {"n_rounds": 0, "popularity_epsilon": 2.0, "local_epochs": 1 if quick else 10}
    adaptive: dict[str, Any] = {}
    # Adam was chosen on MovieLens 100K (`gap`), and was not tried on Frappe.
    if not isinstance(data, InteractionLog):
        adaptive["PrivRec, server by Adam"] = PrivRec(features, **by_adam)
        adaptive["PrivRec, first-order MAML, server by Adam"] = PrivRec(features, meta="first-order-maml", **by_adam)
    return {
        "PrivRec": PrivRec(features, **common),
        "PrivRec, the paper's E1, E2 and M": PrivRec(features, **papers),
        **adaptive,
        "FOFL-SELF": PrivRec(None, **common),
        "NN-SELF": PrivRec(features, meta="maml", **common),
        "PrivRec-SGD": PrivRec(features, **one_step),
        "PrivRec-CEN": PrivRec(features, **(common | {"cohort_size": "all", "n_rounds": 1 if quick else 10})),
        "DP-PrivRec-One, epsilon 2": PrivRec(features, **private),
        "DP-PrivRec-One, private popularity fine-tuned, epsilon 2": PrivRec(features, **from_popularity),
        "FCF": FMFLDP(epsilon=None),
        **_fedgnn(quick),
        "NCF": NCF(threshold=common.get("threshold", 0.0), n_epochs=1 if quick else 20),
        "popularity": Popularity(),
        # Replacing a user costs DPPopularity twice its epsilon.
        "DP popularity, epsilon 0.9": DPPopularity(0.45),
        "DP popularity, epsilon 2": DPPopularity(1.0),
        "own history": OwnHistory(),
        "item-kNN": ItemKNN(),
        "EASE": EASE(),
    }


def _fedgnn(quick: bool) -> dict[str, FedGNN]:
    """Return FedGNN as in its paper, and without the noise and pseudo items that hide clients' items."""
    # 141 rounds are three epochs of MovieLens 1M, and neighbours are added after two epochs.
    rounds = {"n_rounds": _QUICK_ROUNDS, "expansion_round": 2} if quick else {"n_rounds": 141, "expansion_round": 94}
    options: dict[str, Any] = rounds | {"n_factors": 16, "negatives": 4, "learning_rate": 0.05, "grid": (0.0, 1.0)}
    return {
        "FedGNN": FedGNN("published", **options),
        "FedGNN, without noise or pseudo items": FedGNN(
            "published", noise_scale=0.0, clip=10.0, n_pseudo_items=0, **options
        ),
    }


def _run(model: Any, split: PersonalizationSplit, key: Key, n_threads: int) -> dict[str, dict[str, float]]:
    # NCF applies its own threshold, so it is also given the items that a user has seen and not liked.
    if isinstance(model, NCF):
        known = split.known.interactions if isinstance(split.known, InteractionLog) else split.known
        fitted: Any = model.fit(known, key=key, n_threads=n_threads)
    # FedGNN predicts ratings; here its rating is 1 for each positive.
    elif isinstance(model, FedGNN):
        fitted = model.fit(split.known_positives.binarize(), key=key, n_threads=n_threads)
    else:
        fitted = fit_devices(model, split, key, n_threads)
    figures = evaluate_personalized(fitted, split, n_threads=n_threads)
    return {kind: metrics for kind, metrics in figures.items() if not any(map(math.isnan, metrics.values()))}


refuse_old_names(__name__, AccuracyTable="studies.report.Report", EpsilonTable="studies.report.Report")
