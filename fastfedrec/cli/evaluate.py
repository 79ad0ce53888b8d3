"""The command ``fastfedrec evaluate``: a system's quality on held-out data, beside plain baselines."""

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastfedrec.accounting.views import SHORT_NAMES
from fastfedrec.cli.features import add_features, give_features, read_features
from fastfedrec.cli.inputs import UsageError, add_system_and_data, load_data, make_system, positive
from fastfedrec.cli.outputs import EPSILON_LEGEND, can_show_progress, describe
from fastfedrec.cli.parts import load_parts, sources, stated_split, tell_dropped
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import NOT_COVERED, epsilon_from_json, format_epsilon, format_table, plain
from fastfedrec.core.version import __version__
from fastfedrec.evaluation import (
    Evaluation,
    LeaveOneOut,
    RandomHoldout,
    Sampled,
    evaluate,
    parse_metrics,
)
from fastfedrec.systems.baselines.popularity import Popularity, Random
from fastfedrec.systems.claims import catalogue_note
from fastfedrec.systems.rating_svd.baselines import GlobalMean, ItemMean
from fastfedrec.systems.registry import SYSTEMS

__all__ = ["add_evaluate", "add_negatives", "check_metrics"]


def add_evaluate(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `main`."""
    command = add(
        "evaluate",
        run_evaluate,
        "Leave one interaction of each user out, or take --train and --test; fit, and measure; mean and deviation.",
        [
            "fastfedrec evaluate dp-gram --data generated:5000x300 --metrics recall@20,ndcg@20",
            "fastfedrec evaluate laplace-rr-svd --data ml-100k.zip --metrics rmse,mae",
            "fastfedrec evaluate implicit-als --train a/train.csv --test a/test.csv --metrics recall@20,ndcg@20",
        ],
    )
    add_system_and_data(command, in_parts=True)
    add_features(command)
    command.add_argument(
        "--metrics",
        default="hr@10,ndcg@10",
        help="recall@K, precision@K, hit@K, ndcg@K, map@K, mrr@K, auc, coverage@K, gini@K; or rmse, mae",
    )
    add_negatives(command)
    command.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs with seeds 0 to N - 1")


def add_negatives(command: argparse.ArgumentParser) -> None:
    """The argument that has test items ranked against some items alone, as a value of `evaluate`'s `candidates`."""
    command.add_argument(
        "--negatives", type=_negatives, default=None, metavar="N|all", help="sampled unseen items to rank against (all)"
    )


def _negatives(text: str) -> Sampled | None:
    return None if text == "all" else Sampled(positive(text))


def check_metrics(text: str, models: Sequence[Any]) -> tuple[list[str], bool]:
    """The names in --metrics, and whether they are of ratings: a bad one is told before the training, not after it."""
    metrics = list(dict.fromkeys(name.strip() for name in text.split(",")))
    parsed = parse_metrics(metrics)
    of_ratings = any(metric.is_of_ratings for metric in parsed)
    if of_ratings and not all(metric.is_of_ratings for metric in parsed):
        raise UsageError(
            f"--metrics: rmse and mae are measured by themselves, on another split; got {','.join(metrics)}"
        )
    for model in models:
        if of_ratings and not hasattr(model, "predict"):
            raise UsageError(
                f"{type(model).__name__} predicts no ratings; --metrics must be of rankings, such as ndcg@10"
            )
    return metrics, of_ratings


def run_evaluate(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Fit and measure under every seed."""
    if arguments.system.lower() not in SYSTEMS and Path(arguments.system).is_file():
        raise UsageError(
            f"evaluate takes a system, not the saved model {arguments.system}: that one was trained on all of its "
            f"data, so none is held out for it; there are {', '.join(SYSTEMS)}"
        )
    model = make_system(arguments.system, arguments.set)
    metrics, of_ratings = check_metrics(arguments.metrics, [model])
    scale = {"grid": model.grid} if hasattr(model, "grid") else {}  # of the same ratings
    baselines: tuple[Any, ...] = (GlobalMean(**scale), ItemMean(**scale)) if of_ratings else (Random(), Popularity())
    models = {type(model).__name__: model}
    for baseline in baselines:
        models.setdefault(type(baseline).__name__, baseline)  # the model may be one of them, with its own parameters
    systems = [type(candidate) for candidate in models.values()]
    features = read_features(arguments, [model])
    parts, stated = load_parts(arguments, systems, of_ratings=of_ratings), stated_split(arguments)
    data = load_data(arguments, systems) if parts is None else parts.train
    give_features(arguments, features, [model], data)
    show_progress = can_show_progress(arguments.quiet)
    splitter = RandomHoldout(share=0.2) if of_ratings else LeaveOneOut()
    found: dict[str, list[Evaluation]] = {name: [] for name in models}
    for seed in range(arguments.seeds):
        key = Key.from_seed(seed)
        split = parts or next(splitter.split(data, key=key))
        for name, candidate in models.items():
            candidate.fit(split.train, key=key, n_threads=arguments.threads, show_progress=show_progress)
            found[name].append(
                evaluate(
                    candidate,
                    split.train,
                    split.test,
                    given=split.given,
                    metrics=metrics,
                    candidates=arguments.negatives,
                    split=splitter if parts is None else stated,
                    key=key,
                    n_threads=arguments.threads,
                )
            )
    results = {name: {m: _summarize([run[m] for run in runs]) for m in metrics} for name, runs in found.items()}
    epsilons = {name: candidate.ledger_.to_dict()["epsilon"] for name, candidate in models.items()}
    if arguments.json:
        return {
            "version": __version__,
            "system": type(model).__name__,
            "parameters": plain(model.get_params()),
            "data": {"source": arguments.data if parts is None else sources(arguments), **describe(data)},
            "split": found[type(model).__name__][0].split,
            "dropped": {name: runs[0].dropped for name, runs in found.items()},
            "protocol": found[type(model).__name__][0].protocol,
            "seeds": list(range(arguments.seeds)),
            "results": results,
            "epsilon": epsilons,
            "not_covered": NOT_COVERED,
            "catalogue": catalogue_note(data) or "the list of items is public",
        }
    rows = [
        (
            name,
            *(
                f"{summary[k]:.3f}" if summary[k] is not None else "-"
                for summary in of.values()
                for k in ("mean", "std")
            ),
            *(format_epsilon(epsilon_from_json(spent)) for spent in (epsilons[name][view] for view in SHORT_NAMES)),
        )
        for name, of in results.items()
    ]
    header = ("", *(text for m in metrics for text in (m, "+-")), *(f"epsilon, {who}" for who in SHORT_NAMES.values()))
    first = found[type(model).__name__][0]
    if parts is None:
        tested = "a fifth of each user's ratings held out" if of_ratings else "leave one out"
    else:
        tested = " and ".join(f"{name} {path}" for name, path in sources(arguments).items())
        tested += f", by {stated}" if stated else ""
    against = "" if of_ratings else f", against {first.protocol}"
    seeds = "seed 0 (a simulation)" if arguments.seeds == 1 else f"seeds 0 to {arguments.seeds - 1} (simulations)"
    note, own = catalogue_note(data), f"{type(model).__name__}: "
    told = [text.removeprefix(own) for text in model.ledger_.notes if text != note and "SIMULATION" not in text]
    return "\n".join(
        [
            f"{model!r}\n{data!r}, {tested}{against}, {seeds}\n",
            format_table(header, rows),
            *tell_dropped(first.dropped),
            EPSILON_LEGEND,
            *([f"{note[0].upper()}{note[1:]}."] if note else []),
            *(f"{type(model).__name__}: {said}" for said in told),
        ]
    )


def _summarize(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": values,
    }
