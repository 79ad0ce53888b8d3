"""The command ``fastfedrec evaluate``: a system's quality on held-out data, compared with simple baselines."""

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastfedrec.accounting.views import OBSERVERS, show_costs
from fastfedrec.cli.features import add_features, give_features, read_features
from fastfedrec.cli.inputs import UsageError, add_system_and_data, load_data, make_system, positive
from fastfedrec.cli.outputs import (
    add_details,
    can_show_progress,
    describe,
    epsilon_legend,
    footer,
    list_source,
    same_list,
)
from fastfedrec.cli.parts import describe_dropped, load_parts, recorded_split, refuse_empty_test, sources
from fastfedrec.cli.splitters import add_by, by_splitter, refuse_by
from fastfedrec.cli.user_groups import add_user_groups, document_by_group, read_user_groups, table_by_group
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import NOT_COVERED, format_table, plain
from fastfedrec.core.version import __version__
from fastfedrec.evaluation import (
    Evaluation,
    Sampled,
    evaluate,
    parse_metrics,
    read_test_negatives,
)
from fastfedrec.evaluation.metrics.names import KNOWN_METRICS
from fastfedrec.systems.baselines.popularity import Popularity, Random
from fastfedrec.systems.claims import catalogue_note
from fastfedrec.systems.rating_svd.baselines import GlobalMean, ItemMean
from fastfedrec.systems.registry import SYSTEMS

__all__ = ["add_evaluate", "add_negatives", "add_threshold", "check_metrics", "check_threshold", "read_negatives"]


def add_evaluate(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "evaluate",
        run_evaluate,
        "Fit a system several times and report its metrics: mean, and standard deviation (+-) over seeds. One "
        "interaction of each user is held out unless you pass --train and --test.",
        [
            "fastfedrec evaluate dp-gram --data generated:5000x300 --metrics recall@20,ndcg@20",
            "fastfedrec evaluate laplace-rr-svd --data ml-100k.zip --metrics rmse,mae",
            "fastfedrec evaluate implicit-als --train a/train.csv --test a/test.csv --metrics recall@20,ndcg@20",
        ],
    )
    add_system_and_data(command, in_parts=True)
    add_features(command)
    command.add_argument("--metrics", default="hr@10,ndcg@10", help=KNOWN_METRICS)
    add_by(command)
    add_negatives(command)
    add_threshold(command)
    add_user_groups(command)
    command.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs with seeds 0 to N - 1")
    add_details(command)


def add_negatives(command: argparse.ArgumentParser) -> None:
    """Add the argument of negatives, which becomes `candidates` of `evaluate`."""
    command.add_argument(
        "--negatives",
        type=_negatives,
        default=None,
        metavar="N|FILE|all",
        help="rank against N sampled unseen items, or each user's items in a test.negative file of NCF (all)",
    )


def _negatives(text: str) -> Sampled | Path | None:
    if text == "all":
        return None
    # A file stays a path until it is read, so that no output replaces it.
    return Path(text) if Path(text).is_file() else Sampled(positive(text))


def read_negatives(arguments: argparse.Namespace) -> Any:
    """Return the `candidates` of `evaluate` that --negatives names."""
    given = arguments.negatives
    return read_test_negatives(given) if isinstance(given, Path) else given


def add_threshold(command: argparse.ArgumentParser) -> None:
    """Add the argument of relevant test items."""
    command.add_argument(
        "--threshold", type=float, default=None, metavar="X", help="only test items with a value above X are relevant"
    )


def check_metrics(text: str, models: Sequence[Any]) -> tuple[list[str], bool]:
    """Return the names in --metrics and whether they are of ratings, after checks that need no training."""
    metrics = list(dict.fromkeys(name.strip() for name in text.split(",")))
    parsed = parse_metrics(metrics)
    of_ratings = any(metric.is_rating_metric for metric in parsed)
    if of_ratings and not all(metric.is_rating_metric for metric in parsed):
        raise UsageError(
            f"--metrics must not mix rmse and mae with rankings, got {','.join(metrics)}; run each kind "
            "separately, since the splits differ"
        )
    for model in models:
        if of_ratings and not hasattr(model, "predict"):
            raise UsageError(
                f"--metrics must be of rankings, for {type(model).__name__} predicts no ratings; use for "
                "example ndcg@10"
            )
    return metrics, of_ratings


def check_threshold(arguments: argparse.Namespace, of_ratings: bool) -> None:
    """Refuse --threshold with metrics of ratings, before anything is fitted."""
    if arguments.threshold is not None and of_ratings:
        raise UsageError("--threshold is for rankings, got metrics of ratings; leave it out")


def run_evaluate(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Fit and measure the system and the baselines with every seed."""
    if arguments.system.lower() not in SYSTEMS and Path(arguments.system).is_file():
        raise UsageError(
            f"evaluate needs a system, got the saved model {arguments.system}, which was trained on all of its data, "
            f"so no data are held out; there are {', '.join(SYSTEMS)}"
        )
    model = make_system(arguments.system, arguments.set)
    metrics, of_ratings = check_metrics(arguments.metrics, [model])
    candidates = read_negatives(arguments)
    check_threshold(arguments, of_ratings)
    refuse_by(arguments)
    groups = read_user_groups(arguments)
    # Baselines predict on the same scale of ratings as the system.
    scale = {"grid": model.grid} if hasattr(model, "grid") else {}
    baselines: tuple[Any, ...] = (GlobalMean(**scale), ItemMean(**scale)) if of_ratings else (Random(), Popularity())
    models = {type(model).__name__: model}
    for baseline in baselines:
        # The system may itself be a baseline, with other parameters.
        models.setdefault(type(baseline).__name__, baseline)
    systems = [type(candidate) for candidate in models.values()]
    features = read_features(arguments, [model])
    parts = load_parts(arguments, systems, of_ratings=of_ratings)
    stated = None if parts is None else recorded_split(arguments, parts)
    data = load_data(arguments, systems) if parts is None else parts.train
    give_features(arguments, features, [model], data)
    show_progress = can_show_progress(arguments.quiet)
    splitter = by_splitter(arguments, of_ratings=of_ratings)
    if parts is None:
        refuse_by(arguments, data)
    evaluations: dict[str, list[Evaluation]] = {name: [] for name in models}
    for seed in range(arguments.seeds):
        key = Key.from_seed(seed)
        split = parts or next(splitter.split(data, key=key))
        refuse_empty_test(arguments, split)
        for name, candidate in models.items():
            candidate.fit(split.train, key=key, n_threads=arguments.threads, show_progress=show_progress)
            evaluations[name].append(
                evaluate(
                    candidate,
                    split.train,
                    split.test,
                    given=split.given,
                    metrics=metrics,
                    threshold=arguments.threshold,
                    candidates=candidates,
                    split=splitter if parts is None else stated,
                    key=key,
                    n_threads=arguments.threads,
                )
            )
    results = {name: {m: _summarize([run[m] for run in runs]) for m in metrics} for name, runs in evaluations.items()}
    # Each fit has a ledger; the output shows the last one.
    epsilons = {name: candidate.ledger_.to_dict()["epsilon"] for name, candidate in models.items()}
    if arguments.json:
        return {
            "version": __version__,
            "system": type(model).__name__,
            "parameters": plain(model.get_params()),
            "data": {"source": arguments.data if parts is None else sources(arguments), **describe(data)},
            "split": evaluations[type(model).__name__][0].split,
            "dropped": {name: runs[0].dropped for name, runs in evaluations.items()},
            "protocol": evaluations[type(model).__name__][0].protocol,
            **({} if arguments.threshold is None else {"threshold": arguments.threshold}),
            "seeds": list(range(arguments.seeds)),
            "results": results,
            **({} if groups is None else {"groups": document_by_group(evaluations, groups)}),
            "epsilon": epsilons,
            "not_covered": NOT_COVERED,
            "catalogue": catalogue_note(data) or "the list of items is public",
        }
    rows = [
        (
            name,
            *(
                f"{summary[k]:.3f}" if summary[k] is not None else "-"
                for summary in summaries.values()
                for k in ("mean", "std")
            ),
            # Each fit has a ledger of its own; the largest cost is stated.
            show_costs(
                {view: max(run.epsilon[view] for run in evaluations[name]) for view in OBSERVERS},
                {party for run in evaluations[name] for party in run.parties},
            ),
        )
        for name, summaries in results.items()
    ]
    header = ("", *(text for m in metrics for text in (m, "+-")), "true epsilon")
    first = evaluations[type(model).__name__][0]
    if parts is None:
        tested = "a fifth of each user's ratings held out" if of_ratings else "leave one out"
        tested = tested if arguments.by is None else repr(splitter)
    else:
        tested = " and ".join(f"{name} {path}" for name, path in sources(arguments).items())
        tested += f", by {stated}" if stated else ""
    against = "" if of_ratings else f", against {first.protocol}"
    against += "" if arguments.threshold is None else f", values above {arguments.threshold:g} relevant"
    seeds = "seed 0 (a simulation)" if arguments.seeds == 1 else f"seeds 0 to {arguments.seeds - 1} (simulations)"
    # The catalogue and the seeds have lines of their own.
    note = catalogue_note(data)
    facts = [*same_list(type(model).__name__, model), *describe_dropped(first.dropped)]
    return "\n".join(
        [
            f"{model!r}\n{data!r}, {tested}{against}, {seeds}\n",
            format_table(header, rows),
            "",
            *([] if groups is None else [table_by_group(evaluations, groups), ""]),
            *footer(
                arguments,
                *[" ".join(facts)] * bool(facts),
                epsilon_legend(run for runs in evaluations.values() for run in runs),
                " ".join([NOT_COVERED, *list_source(data)]),
                details=[f"{type(model).__name__}: {text}" for text in model.ledger_.notes if text != note],
            ),
        ]
    )


def _summarize(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": values,
    }
