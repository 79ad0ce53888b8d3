"""The command ``fastfedrec compare``: a table of several systems on one train and test, with intervals."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastfedrec.accounting import Ledger
from fastfedrec.cli.comparison_table import ENDINGS, ComparedRun, ComparisonTable
from fastfedrec.cli.evaluate import add_negatives, add_threshold, check_metrics, check_threshold, read_negatives
from fastfedrec.cli.features import add_features, give_features, read_features
from fastfedrec.cli.inputs import UsageError, add_data, load_data, make_system, natural, positive, split_assignments
from fastfedrec.cli.outputs import add_details, can_show_progress, describe, same_list, show
from fastfedrec.cli.parts import load_parts, recorded_split, refuse_empty_test, sources
from fastfedrec.cli.settings import SystemSettings, add_choice, add_systems, warn_of_defaults
from fastfedrec.cli.splitters import add_by, by_splitter, refuse_by
from fastfedrec.cli.user_groups import add_user_groups, document_by_group, read_user_groups, table_by_group
from fastfedrec.core.files import check_destination
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import NOT_COVERED, epsilon_to_json, plain
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import Evaluation, Split, compare, evaluate
from fastfedrec.evaluation.metrics.averages import average_fits
from fastfedrec.evaluation.metrics.comparison import Comparison
from fastfedrec.mechanisms.item_choice import choose_items

__all__ = ["add_compare"]

# Maximum number of EASE's items in the default comparison: 300 MB, and some seconds.
_MAX_EASE_ITEMS = 5000
# Delta of a private choice from items that were taken from the data; far below the delta of ledgers.
_CHOICE_DELTA = 1e-8


def add_compare(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "compare",
        run_compare,
        "Fit and test several systems on the same data: a table with intervals, and paired tests. Without "
        "--system: popularity, item-knn, ease on the 5,000 most used items, implicit-als, and private-recommender with "
        "a trusted server at epsilon 2.",
        [
            "fastfedrec compare --train gowalla/train.txt --test gowalla/test.txt --out table.md plot.png",
            "fastfedrec compare --data ratings.csv --catalogue items.txt --by time --seeds 3",
            "fastfedrec compare --train a/train.csv --test a/test.csv --system ease --set top_items=5000 "
            "--system dp-gram --set epsilon=2 --choose 1000 1",
            "fastfedrec compare --data generated:5000x300 --system popularity --system item-knn --metrics recall@20",
        ],
    )
    add_systems(command, "NAME=VALUE", "parameters of the preceding --system; see systems SYSTEM")
    add_choice(command)
    add_data(command, in_parts=True)
    add_features(command)
    command.add_argument("--metrics", default="recall@20,ndcg@20", help="metrics, as for evaluate")
    add_negatives(command)
    add_threshold(command)
    add_by(command)
    add_user_groups(command)
    command.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of fits, splits and samples")
    command.add_argument(
        "--seeds", type=positive, default=1, metavar="N",
        help="number of fits of each system, with seeds from --seed on; the table has their means on one split, and "
        "intervals that cover the noise of a fit",
    )  # fmt: skip
    command.add_argument(
        "--out",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help=f"write the table or its plot to a file; the ending names the format: {', '.join(ENDINGS)}",
    )
    add_details(command)


def run_compare(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Check the arguments, fit and test each system, and return a table."""
    for out in arguments.out:
        if out.suffix.lower() not in ENDINGS:
            raise UsageError(f"--out {out} must end in one of {', '.join(ENDINGS)}")
        check_destination(out, "--out")
    # Systems are made before any data are read, so that a wrong name or parameter is reported at once.
    warn_of_defaults(arguments.system)
    runs = _make_runs(arguments.system or _default_systems(0))
    metrics, of_ratings = check_metrics(arguments.metrics, [run.model for run in runs])
    check_threshold(arguments, of_ratings)
    arguments.negatives = read_negatives(arguments)
    features = read_features(arguments, [run.model for run in runs])
    kinds = [type(run.model) for run in runs]
    key = Key.from_seed(arguments.seed)
    refuse_by(arguments)
    groups = read_user_groups(arguments)
    split = load_parts(arguments, kinds, of_ratings=of_ratings)
    stated = None if split is None else recorded_split(arguments, split)
    if split is None:
        data, splitter = load_data(arguments, kinds), by_splitter(arguments, of_ratings=of_ratings)
        refuse_by(arguments, data)
        split, stated = next(splitter.split(data, key=key)), repr(splitter)
        refuse_empty_test(arguments, split)
    if not arguments.system:
        runs = _make_runs(_default_systems(split.train.n_items))
    give_features(arguments, features, [run.model for run in runs], split.train)
    show_progress = can_show_progress(arguments.quiet)
    failures: list[tuple[str, str]] = []
    for run in runs:
        # Two systems at least must remain, or the last error is raised.
        try:
            _measure(run, split, metrics, stated, arguments, show_progress)
        except Exception as error:  # a failed system does not stop the comparison of the others
            failures.append((run.label, " ".join(str(error).split()) or type(error).__name__))
            show(f"fastfedrec: {run.label} failed: {failures[-1][1]}", file=sys.stderr)
            if arguments.debug or len(runs) - len(failures) < 2:
                raise
    done, excluded = _runs_on_same_users([run for run in runs if run.result is not None])
    for label, reason in excluded:
        show(f"fastfedrec: {label} is left out: {reason}", file=sys.stderr)
    failures += excluded
    comparison = compare({run.label: run.result for run in done if run.result is not None}, key=key)
    document = _document(arguments, split, done, comparison, failures)
    by_group = "" if groups is None else table_by_group(_results(done), groups) + "\n"
    if groups is not None:
        document["groups"] = document_by_group(_results(done), groups)
    head = _head(arguments, split, comparison)
    table = ComparisonTable(head, done, comparison, split.train, failures, document, by_group)
    table.write(arguments.out)
    return document if arguments.json else table.text(arguments)


def _results(runs: Sequence[ComparedRun]) -> dict[str, list[Evaluation]]:
    return {run.label: [run.result] for run in runs if run.result is not None}


def _runs_on_same_users(done: list[ComparedRun]) -> tuple[list[ComparedRun], list[tuple[str, str]]]:
    """Return the runs that tested all users, and the labels of all other runs with the reason of their exclusion."""
    counts = {run.label: run.result.n_users for run in done if run.result is not None}
    max_users = max(counts.values())
    fewer = [
        (label, f"it serves {n:,} of the {max_users:,} tested users, and metrics on fewer users are not comparable")
        for label, n in counts.items()
        if n < max_users
    ]
    if len(done) - len(fewer) < 2:
        reasons = "; ".join(f"{label}: {reason}" for label, reason in fewer)
        raise ValueError(f"compare must have two systems on the same users, got fewer: {reasons}; add systems")
    return [run for run in done if counts[run.label] == max_users], fewer


def _default_systems(n_items: int) -> list[SystemSettings]:
    """Return the systems of a comparison without --system, for a number of items."""
    ease = [f"top_items={_MAX_EASE_ITEMS}"] if n_items > _MAX_EASE_ITEMS else []
    return [
        SystemSettings("popularity"),
        SystemSettings("item-knn"),
        SystemSettings("ease", ease),
        SystemSettings("implicit-als"),
        # It has a system for every number of items, so that no item has to be chosen.
        SystemSettings("private-recommender", ["epsilon=2"]),
    ]


def _make_runs(settings: Sequence[SystemSettings]) -> list[ComparedRun]:
    """Make each system with its parameters, under a label that is unique."""
    runs: dict[str, ComparedRun] = {}
    for system in settings:
        model = make_system(system.name, system.assignments)
        given = ", ".join(f"{name}={model.get_params()[name]!r}" for name in split_assignments(system.assignments))
        label = type(model).__name__ + (f"({given})" if given else "")
        if system.choice is not None:
            label += f" on {system.choice.n:,} chosen items"
        if label in runs:
            raise UsageError(f"--system {system.name} is given twice with the same parameters; leave one out")
        runs[label] = ComparedRun(label, system, model)
    if len(runs) < 2:
        raise UsageError("compare needs at least two systems; use evaluate for one")
    return list(runs.values())


def _measure(
    run: ComparedRun,
    split: Split,
    metrics: list[str],
    stated: str | None,
    arguments: argparse.Namespace,
    shows: bool,
) -> None:
    """Fit and test a system with each seed, and keep its figures but not the model, which may be large."""
    started = time.perf_counter()
    run.parameters = run.model.get_params()
    results = []
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        key = Key.from_seed(seed)
        # The ledger of the choice is passed to the fit, so that it states the cost of both.
        ledger, train = Ledger(), split.train
        if (choice := run.settings.choice) is not None:
            train = choose_items(train, choice.n, choice.epsilon, delta=_CHOICE_DELTA, key=key, ledger=ledger)
            if not train.n_items:
                raise ValueError(
                    f"--choose {choice.n} {choice.epsilon:g} keeps no item: no item has enough users for its presence "
                    "to be private; pass a public list (--catalogue FILE), or a larger EPSILON"
                )
        model = run.model.fit(train, key=key, n_threads=arguments.threads, show_progress=shows, ledger=ledger)
        # The test is on all items of train, so that systems with fewer items are comparable.  Its samples have one
        # seed, so that all fits are tested alike.
        results.append(evaluate(
            model, split.train, split.test, given=split.given, metrics=metrics, candidates=arguments.negatives,
            threshold=arguments.threshold, split=stated, key=Key.from_seed(arguments.seed), n_threads=arguments.threads,
        ))  # fmt: skip
    run.notes, run.n_items = tuple(model.ledger_.notes), model.interactions_.n_items
    run.same_list = " ".join(same_list(run.label, model))
    run.seconds = (time.perf_counter() - started) / arguments.seeds
    run.result, run.model = average_fits(results), None
    run.epsilon, run.parties = run.result.epsilon, run.result.parties


# ---- output ---------------------------------------------------------------------------------------------------------


def _head(arguments: argparse.Namespace, split: Split, comparison: Comparison) -> list[str]:
    """Return lines above the table: data, protocol and seed."""
    first = next(iter(comparison.results.values()))
    split_by = f", {first.split}" if first.split else ""
    return [
        *(f"{name} {source}: {part!r}" for name, source, part in _parts(arguments, split)),
        f"{first.n_users:,} users tested{split_by}, against {first.protocol}; {_describe_seeds(arguments)}",
        comparison.coverage("; --seeds 3 covers both"),
    ]


def _describe_seeds(arguments: argparse.Namespace) -> str:
    if arguments.seeds == 1:
        return f"seed {arguments.seed} (a simulation)"
    last = arguments.seed + arguments.seeds - 1
    return f"means of fits with seeds {arguments.seed} to {last} (simulations), epsilon of one fit"


def _parts(arguments: argparse.Namespace, split: Split) -> list[tuple[str, str, Interactions]]:
    if arguments.train is None:
        return [("data", arguments.data, split.train), ("held out of", arguments.data, split.test)]
    parts = {"train": split.train, "test": split.test, "given": split.given}
    return [(name, path, part) for name, path in sources(arguments).items() if (part := parts[name]) is not None]


def _document(
    arguments: argparse.Namespace,
    split: Split,
    done: list[ComparedRun],
    comparison: Comparison,
    failures: list[tuple[str, str]],
) -> dict[str, Any]:
    first = next(iter(comparison.results.values()))
    compared = json.loads(comparison.to_json())
    return {
        "version": __version__,
        "data": {name: {"source": source, **describe(part)} for name, source, part in _parts(arguments, split)},
        "split": first.split,
        "protocol": first.protocol,
        "seed": arguments.seed,
        "seeds": arguments.seeds,
        "n_users": first.n_users,
        "dropped": {run.label: comparison.results[run.label].dropped for run in done},
        "systems": [
            {
                "name": run.label,
                "system": compared["results"][run.label]["model"],
                "parameters": plain(run.parameters),
                "choice": None if run.settings.choice is None else vars(run.settings.choice),
                "n_items": run.n_items,
                "is_popularity": bool(run.same_list),
                "metrics": compared["results"][run.label]["metrics"],
                "epsilon": {view: epsilon_to_json(epsilon) for view, epsilon in run.epsilon.items()},
                "epsilon_by_trust": compared["results"][run.label]["epsilon"],
                "notes": list(run.notes),
                "seconds": run.seconds,
            }
            for run in done
        ],
        "tests": compared["tests"],
        "failures": [{"name": label, "error": error} for label, error in failures],
        "not_covered": NOT_COVERED,
    }
