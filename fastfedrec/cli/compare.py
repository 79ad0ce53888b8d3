"""The command ``fastfedrec compare``: a table of several systems on one train and test, with intervals."""

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.views import SHORT_NAMES
from fastfedrec.cli.evaluate import add_negatives, add_threshold, check_metrics, check_threshold
from fastfedrec.cli.features import add_features, give_features, read_features
from fastfedrec.cli.inputs import UsageError, add_data, load_data, make_system, natural, split_assignments
from fastfedrec.cli.outputs import can_show_progress, describe
from fastfedrec.cli.parts import describe_dropped, load_parts, recorded_split, sources
from fastfedrec.cli.settings import Choice, SystemSettings, add_choice, add_systems
from fastfedrec.core.files import check_destination, write_text
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import NOT_COVERED, epsilon_to_json, format_csv, format_epsilon, format_table, plain
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import Evaluation, LeaveOneOut, RandomHoldout, Split, compare, evaluate
from fastfedrec.evaluation.metrics import tables
from fastfedrec.evaluation.metrics.comparison import Comparison
from fastfedrec.mechanisms.item_choice import choose_items

__all__ = ["add_compare"]

# Maximum number of EASE's items in the default comparison: 300 MB, and some seconds.
_MAX_EASE_ITEMS = 5000
# Maximum number of DPGram's items in the default comparison.
_MAX_GRAM_ITEMS = 1000
# Delta of a private choice from items that were taken from the data; far below the delta of ledgers.
_CHOICE_DELTA = 1e-8
_ENDINGS = (".md", ".csv", ".json", ".tex", ".txt")
_LEGEND = (
    "epsilon: cost of a user in the whole run, in nats, against the strongest adversary with a guarantee: the server, "
    "the server behind a shuffler, or the public; 'none' means no guarantee\n" + NOT_COVERED
)


@dataclass
class _Run:
    """A system under its label, before and after its fit."""

    label: str
    settings: SystemSettings
    model: Any
    parameters: dict[str, Any] = field(default_factory=dict)
    result: Evaluation | None = None
    epsilon: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    n_items: int = 0
    seconds: float = 0.0


def add_compare(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "compare",
        run_compare,
        "Fit and test several systems on the same data: a table with bootstrap intervals, and paired tests. Without "
        "--system: popularity, item-knn, ease on the 5,000 most used items, implicit-als, and dp-gram at epsilon 2; if "
        "there are more than 1,000 items, dp-gram uses 1,000 that are chosen privately at epsilon 1.",
        [
            "fastfedrec compare --train gowalla/train.txt --test gowalla/test.txt --out table.md",
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
    command.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of fits, splits and samples")
    command.add_argument(
        "--out",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help=f"write the table to a file; its format is given by the ending: {', '.join(_ENDINGS)}",
    )


def run_compare(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Check the arguments, fit and test each system, and return a table."""
    for out in arguments.out:
        if out.suffix.lower() not in _ENDINGS:
            raise UsageError(f"--out {out} must end in one of {', '.join(_ENDINGS)}")
        check_destination(out)
    # Systems are made before any data are read, so that a wrong name or parameter is reported at once.
    runs = _make_runs(arguments.system or _default_systems(0))
    metrics, of_ratings = check_metrics(arguments.metrics, [run.model for run in runs])
    check_threshold(arguments, of_ratings)
    features = read_features(arguments, [run.model for run in runs])
    kinds = [type(run.model) for run in runs]
    key = Key.from_seed(arguments.seed)
    split, stated = load_parts(arguments, kinds, of_ratings=of_ratings), recorded_split(arguments)
    if split is None:
        splitter = RandomHoldout(share=0.2) if of_ratings else LeaveOneOut()
        split, stated = next(splitter.split(load_data(arguments, kinds), key=key)), repr(splitter)
    if not arguments.system:
        runs = _make_runs(_default_systems(split.train.n_items))
    give_features(arguments, features, [run.model for run in runs], split.train)
    show_progress = can_show_progress(arguments.quiet)
    failures: list[tuple[str, str]] = []
    for run in runs:
        # Two systems at least must remain, or the last error is raised.
        try:
            _measure(run, split, metrics, stated, arguments, key, show_progress)
        except Exception as error:  # a failed system does not stop the comparison of the others
            failures.append((run.label, " ".join(str(error).split()) or type(error).__name__))
            if arguments.debug or len(runs) - len(failures) < 2:
                raise
    done, excluded = _runs_on_same_users([run for run in runs if run.result is not None])
    failures += excluded
    comparison = compare({run.label: run.result for run in done if run.result is not None}, key=key)
    document = _document(arguments, split, done, comparison, failures)
    head, remarks = _head(arguments, split, comparison), _remarks(split, done, comparison, failures)
    answer = _write(arguments.out, head, remarks, done, comparison, document)
    return document if arguments.json else answer


def _runs_on_same_users(done: list[_Run]) -> tuple[list[_Run], list[tuple[str, str]]]:
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
    choice = Choice(_MAX_GRAM_ITEMS, 1.0) if n_items > _MAX_GRAM_ITEMS else None
    return [
        SystemSettings("popularity"),
        SystemSettings("item-knn"),
        SystemSettings("ease", ease),
        SystemSettings("implicit-als"),
        SystemSettings("dp-gram", ["epsilon=2"], choice),
    ]


def _make_runs(settings: Sequence[SystemSettings]) -> list[_Run]:
    """Make each system with its parameters, under a label that is unique."""
    runs: dict[str, _Run] = {}
    for system in settings:
        model = make_system(system.name, system.assignments)
        given = ", ".join(f"{name}={model.get_params()[name]!r}" for name in split_assignments(system.assignments))
        label = type(model).__name__ + (f"({given})" if given else "")
        if system.choice is not None:
            label += f" on {system.choice.n:,} chosen items"
        if label in runs:
            raise UsageError(f"--system {system.name} is given twice with the same parameters; leave one out")
        runs[label] = _Run(label, system, model)
    if len(runs) < 2:
        raise UsageError("compare needs at least two systems; use evaluate for one")
    return list(runs.values())


def _measure(
    run: _Run,
    split: Split,
    metrics: list[str],
    stated: str | None,
    arguments: argparse.Namespace,
    key: Key,
    shows: bool,
) -> None:
    """Fit and test a system, and keep its figures but not the model, which may be large."""
    started = time.perf_counter()
    # The ledger of the choice is passed to the fit, so that it states the cost of both.
    ledger, train = Ledger(), split.train
    if (choice := run.settings.choice) is not None:
        train = choose_items(train, choice.n, choice.epsilon, delta=_CHOICE_DELTA, key=key, ledger=ledger)
        if not train.n_items:
            raise ValueError(
                f"--choose {choice.n} {choice.epsilon:g} keeps no item: no item has enough users for its presence to "
                "be private; pass a public list (--catalogue FILE), or a larger EPSILON"
            )
    run.parameters = run.model.get_params()
    model = run.model.fit(train, key=key, n_threads=arguments.threads, show_progress=shows, ledger=ledger)
    # The test is on all items of train, so that systems with fewer items are comparable.
    result = evaluate(
        model, split.train, split.test, given=split.given, metrics=metrics, candidates=arguments.negatives,
        threshold=arguments.threshold, split=stated, key=key, n_threads=arguments.threads,
    )  # fmt: skip
    run.epsilon = {view: ledger.epsilon(view) for view in SHORT_NAMES}
    run.notes, run.n_items = tuple(model.ledger_.notes), model.interactions_.n_items
    run.result, run.model, run.seconds = result, None, time.perf_counter() - started


# ---- output ---------------------------------------------------------------------------------------------------------


def _columns(done: list[_Run], comparison: Comparison, dash: str = "to") -> dict[str, list[str]]:
    """Return the columns of the table: each system's metrics with intervals, and its privacy cost."""
    results, intervals = comparison.results, comparison.intervals
    metrics = list(next(iter(results.values())))
    return (
        {"system": [run.label for run in done]}
        | {m: [tables.show_interval(results[r.label][m], intervals[r.label][m], dash) for r in done]
           for m in metrics}
        | {"epsilon": [_cost(run) for run in done]}
    )  # fmt: skip


def _cost(run: _Run) -> str:
    """Return the finite epsilon against the strongest adversary, or "none"."""
    # Views are in order of strength: the server, the server behind a shuffler, the public.
    for view, name in SHORT_NAMES.items():
        if math.isfinite(run.epsilon[view]):
            return f"{format_epsilon(run.epsilon[view])} ({name})"
    return "none"


def _remarks(split: Split, done: list[_Run], comparison: Comparison, failures: list[tuple[str, str]]) -> list[str]:
    """Return lines below the table: failures, best systems, dropped interactions and notes of guarantees."""
    lines = [f"{label} failed: {error}" for label, error in failures] + comparison.verdicts()
    results = next(iter(comparison.results.values()))
    lines += describe_dropped(results.dropped)
    for run in done:
        if run.n_items < split.train.n_items:
            lines.append(
                f"{run.label} scores {run.n_items:,} of {split.train.n_items:,} items; all other items rank last"
            )
        if _cost(run) != "none":
            lines += [f"{run.label}: {note}" for note in run.notes]
    return lines


def _head(arguments: argparse.Namespace, split: Split, comparison: Comparison) -> list[str]:
    """Return lines above the table: data, protocol and seed."""
    first = next(iter(comparison.results.values()))
    split_by = f", {first.split}" if first.split else ""
    return [
        *(f"{name} {source}: {part!r}" for name, source, part in _parts(arguments, split)),
        f"{first.n_users:,} users tested{split_by}, against {first.protocol}; 95% bootstrap intervals over users; seed "
        f"{arguments.seed} (a simulation)",
    ]


def _parts(arguments: argparse.Namespace, split: Split) -> list[tuple[str, str, Interactions]]:
    if arguments.train is None:
        return [("data", arguments.data, split.train), ("held out of", arguments.data, split.test)]
    parts = {"train": split.train, "test": split.test, "given": split.given}
    return [(name, path, part) for name, path in sources(arguments).items() if (part := parts[name]) is not None]


def _document(
    arguments: argparse.Namespace,
    split: Split,
    done: list[_Run],
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
        "n_users": first.n_users,
        "dropped": {run.label: comparison.results[run.label].dropped for run in done},
        "systems": [
            {
                "name": run.label,
                "system": compared["results"][run.label]["model"],
                "parameters": plain(run.parameters),
                "choice": None if run.settings.choice is None else vars(run.settings.choice),
                "n_items": run.n_items,
                "metrics": compared["results"][run.label]["metrics"],
                "epsilon": {view: epsilon_to_json(epsilon) for view, epsilon in run.epsilon.items()},
                "notes": list(run.notes),
                "seconds": run.seconds,
            }
            for run in done
        ],
        "tests": compared["tests"],
        "failures": [{"name": label, "error": error} for label, error in failures],
        "not_covered": NOT_COVERED,
    }


def _write(
    files: list[Path],
    head: list[str],
    remarks: list[str],
    done: list[_Run],
    comparison: Comparison,
    document: dict[str, Any],
) -> str:
    """Write the table to each file in the format that its ending names, and return it as text."""
    columns = _columns(done, comparison)
    table = format_table(list(columns), zip(*columns.values(), strict=True))
    answer = "\n".join([*head, "", table, "", *remarks, "", _LEGEND])
    # Functions of the text in each format, called only for requested formats.
    makers: dict[str, Callable[[], str]] = {
        ".txt": lambda: answer,
        ".md": lambda: _to_markdown(head, columns, [*remarks, _LEGEND]),
        ".tex": lambda: tables.to_latex(_columns(done, comparison, "--")),
        ".csv": lambda: _to_csv(document),
        ".json": lambda: json.dumps(document, indent=2, allow_nan=False),
    }
    for path in files:
        write_text(path, makers[path.suffix.lower()]().rstrip("\n") + "\n")
    return answer


def _to_markdown(head: list[str], columns: dict[str, list[str]], remarks: list[str]) -> str:
    lines = [f"- {text}".replace("\n", " ") for text in remarks]
    return "\n".join(["  \n".join(head), "", tables.to_markdown(columns), "", *lines])


def _to_csv(document: dict[str, Any]) -> str:
    """Return CSV text with a line for each system and metric."""
    epsilons = [f"epsilon_{name}" for name in SHORT_NAMES.values()]
    shared = document["n_users"], document["protocol"]
    rows = [
        [system["name"], metric, *interval.values(), *system["epsilon"].values(), *shared]
        for system in document["systems"]
        for metric, interval in system["metrics"].items()
    ]
    return format_csv(["system", "metric", "value", "low", "high", *epsilons, "n_users", "protocol"], rows)
