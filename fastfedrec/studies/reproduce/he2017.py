"""NCF (He, Liao, Zhang, Nie, Hu, Chua 2017): hit ratios of its networks, a dot product and popularity."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec.core.check import check_instance
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.evaluation import LeaveOneOut, Split
from fastfedrec.studies.drawings import draw_bars
from fastfedrec.studies.files import Case, checksum, file_name, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import evaluate_quietly, select_models
from fastfedrec.systems.baselines.epochs import EpochBaseline
from fastfedrec.systems.baselines.implicit_als import ImplicitALS
from fastfedrec.systems.baselines.popularity import Baseline, Popularity
from fastfedrec.systems.ncf.model import NCF

__all__ = ["ncf_table"]

TABLES = ("accuracy",)
METRICS = ("hr@10", "ndcg@10")
N_NEGATIVES = 99
#: Printed (HR@10, NDCG@10), from He et al. 2017; Ferrari Dacrema et al. 2019; Rendle et al. 2020.
PRINTED = {
    "popularity, printed": (0.454, 0.254),
    "NeuMF, 64 factors, printed": (0.730, 0.447),
    "NeuMF, printed later": (0.709, 0.435),
    "dot product, printed": (0.7294, 0.4523),
}
#: Epochs and negatives were tuned with 32 factors, on the newest item of each user's train rows.
_TUNED: dict[str, Any] = {"n_epochs": 7, "n_negatives": 8}
MODELS: dict[str, Baseline | EpochBaseline] = {
    "popularity": Popularity(),
    "GMF, 8 factors": NCF(8, kind="gmf"),
    "GMF, 64 factors": NCF(64, kind="gmf"),
    "NeuMF, 16 factors": NCF(16),
    "NeuMF, 32 factors": NCF(32),
    "NeuMF, 32 factors, tuned": NCF(32, **_TUNED),
    "NeuMF, 64 factors, tuned": NCF(64, **_TUNED),
    "ImplicitALS": ImplicitALS(),
}
_QUICK = ("popularity", "GMF, 8 factors", "ImplicitALS")


def _compare_network(table: Report) -> str:
    """Compare the best network with the dot product."""
    ours = [row for row in table.rows if row.algorithm not in PRINTED]
    networks = [row for row in ours if isinstance(MODELS[row.algorithm], NCF)]
    # ImplicitALS is the dot product.
    dot_products = [row for row in ours if isinstance(MODELS[row.algorithm], ImplicitALS)]
    if not networks or not dot_products:
        return "No network and dot product were computed to compare."
    best, dot = max(networks, key=lambda row: row.hr), dot_products[0]
    relation = "ahead of" if best.hr > dot.hr else "behind" if best.hr < dot.hr else "level with"
    return f"The best network, {best.algorithm}, is {relation} the dot product: HR@10 {best.hr:.3f} and {dot.hr:.3f}."


def _draw(table: Report, figure: Any) -> None:
    # Printed rows are grey.
    colors = ["0.7" if row.algorithm in PRINTED else "C0" for row in table.rows[::-1]]
    bars = {row.algorithm: row.hr for row in table.rows}
    draw_bars(figure, bars, (8, 5), "HR@10", title=table.title, label_size="medium", color=colors)


STUDY = Study(
    title="NCF: the newest item of each user among 99 others",
    legend=(
        "All interactions are positives.  The newest one of each user is held out and ranked among 99 items that\n"
        "the user does not have; one seed.  An interaction without a timestamp counts as the oldest.  Tuned:\n"
        f"{_TUNED['n_epochs']} epochs and {_TUNED['n_negatives']} negatives.  Printed: for MovieLens 1M."
    ),
    columns=[("model", "{.algorithm}"), ("HR@10", "{.hr:.3f}"), ("NDCG@10", "{.ndcg:.3f}")],
    verdict=_compare_network,
    draw=_draw,
)


def _newest_split(data: Interactions, key: Key) -> Split:
    """Hold out the newest item of each user; interactions without a timestamp count as the oldest."""
    if data.timestamps is None:
        raise ValueError("data must have timestamps; the newest item of each user is held out")
    # The smallest int64 marks a missing timestamp for `Interactions`, so missing ones get the next larger value.
    times = np.where(data.timestamps == MISSING_TIMESTAMP, np.iinfo(np.int64).min + 1, data.timestamps)
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    dated = Interactions.from_arrays(data.user_ids[users], data.item_ids[data.indices], timestamps=times)
    return next(LeaveOneOut(latest=True).split(dated, key=key))


def ncf_table(data: Interactions, *, only: Sequence[str] | None = None, **options: Any) -> Report:
    """Compute the accuracy of NCF's networks by the published protocol.

    Parameters
    ----------
    data : Interactions
        Interactions with timestamps.  The printed figures are for MovieLens 1M.
    only : sequence of str or None
        Names of the models to compute; None computes all.
    **options : object
        Options of `RunOptions`; no figure depends on `n_threads`.  `quick`: the smallest network, popularity and the
        dot product.

    Returns
    -------
    Report
        The field `rows` has `algorithm`, `hr` and `ndcg` of each model, then the printed ones for MovieLens 1M.

    References
    ----------
    .. [1] He, Liao, Zhang, Nie, Hu, Chua, "Neural collaborative filtering", WWW 2017, section 4.
    .. [2] Ferrari Dacrema, Cremonesi, Jannach, "Are we really making much progress?", RecSys 2019.
    .. [3] Rendle, Krichene, Zhang, Anderson, "Neural collaborative filtering vs. matrix factorization revisited",
       RecSys 2020.
    """
    check_instance("data", data, Interactions, "use datasets.load_movielens")
    how, key = RunOptions(**options), Key.from_seed(0)
    split = _newest_split(data, key)
    settings = {
        "version": __version__,
        "n_interactions": data.n_interactions,
        "checksum": checksum(split),
        "n_negatives": N_NEGATIVES,
    }
    models = select_models(MODELS, only if only is not None or not how.quick else _QUICK)
    cases = {}
    for name, model in models.items():
        measure = functools.partial(_accuracy, model, split, key, how)
        cases[name] = Case(f"ncf-{file_name(name)}", settings | {"model": repr(model)}, measure)
    measured = measure_cases(cases, how, "Table accuracy", "model")
    rows = tuple(Record(algorithm=name, hr=hr, ndcg=ndcg) for name, (hr, ndcg) in [*measured.items(), *PRINTED.items()])
    source = f"The data given: {data.n_users:,} users x {data.n_items:,} items, {data.n_interactions:,} interactions"
    return Report(STUDY, source, settings, rows=rows)


def _accuracy(model: Baseline | EpochBaseline, split: Split, key: Key, how: RunOptions) -> list[float]:
    # `MODELS` are shared by all calls, so a copy is fitted.
    fitted = type(model)(**model.get_params()).fit(split.train, key=key, n_threads=how.n_threads)
    metrics = evaluate_quietly(fitted, split.train, split.test, list(METRICS), N_NEGATIVES, key, how.n_threads)
    return [metrics[name] for name in METRICS]


refuse_old_names(__name__, NCFTable="studies.report.Report", NCFRow="studies.report.Record")
