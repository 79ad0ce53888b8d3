"""The command ``fastfedrec compare``: several systems on one train and test, in one table with intervals."""

import argparse
import csv
import io
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.views import SHORT_NAMES
from fastfedrec.cli.evaluate import add_negatives, check_metrics
from fastfedrec.cli.features import add_features, give_features, read_features
from fastfedrec.cli.inputs import UsageError, add_data, load_data, make_system, natural, split_assignments
from fastfedrec.cli.outputs import can_show_progress, describe
from fastfedrec.cli.parts import load_parts, sources, stated_split, tell_dropped
from fastfedrec.cli.settings import Asked, Choice, add_choice, add_systems
from fastfedrec.core.files import check_destination, write_text
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import NOT_COVERED, epsilon_to_json, format_epsilon, format_table, plain
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import Evaluation, LeaveOneOut, RandomHoldout, Split, compare, evaluate
from fastfedrec.evaluation.metrics import tables
from fastfedrec.evaluation.metrics.comparison import Comparison
from fastfedrec.mechanisms.item_choice import choose_items

__all__ = ["add_compare"]

_MOST_PAIRED = 5000  # items of EASE where nobody is named: 300 MB, and some seconds
_MOST_CHOSEN = 1000  # items of DPGram likewise
_CHOICE_DELTA = 1e-8  # of a choice from a list that was taken from the data; far below the delta that ledgers state
_ENDINGS = (".md", ".csv", ".json", ".tex", ".txt")
_LEGEND = (
    "epsilon: of a user in the whole run, in nats, against the strongest who is protected from: the server, the same "
    "behind a shuffler, or the public; 'none' is no guarantee\n" + NOT_COVERED
)


@dataclass
class _Run:
    """A system, as it is named, before and after its fit."""

    label: str
    asked: Asked
    model: Any
    parameters: dict[str, Any] = field(default_factory=dict)
    result: Evaluation | None = None
    epsilon: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    n_items: int = 0
    seconds: float = 0.0


def add_compare(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `main`."""
    command = add(
        "compare",
        run_compare,
        "Fit several systems on one train and test them by one test: a table with bootstrap intervals, and paired "
        "tests. Without --system: popularity, item-knn, ease on its 5,000 most used items, implicit-als, and dp-gram "
        "at epsilon 2, of many items on 1,000 that are chosen privately at epsilon 1.",
        [
            "fastfedrec compare --train gowalla/train.txt --test gowalla/test.txt --out table.md",
            "fastfedrec compare --train a/train.csv --test a/test.csv --system ease --set top_items=5000 "
            "--system dp-gram --set epsilon=2 --choose 1000 1",
            "fastfedrec compare --data generated:5000x300 --system popularity --system item-knn --metrics recall@20",
        ],
    )
    add_systems(command, "NAME=VALUE", "parameters of the system before it; see systems SYSTEM")
    add_choice(command)
    add_data(command, in_parts=True)
    add_features(command)
    command.add_argument("--metrics", default="recall@20,ndcg@20", help="as evaluate takes them")
    add_negatives(command)
    command.add_argument("--seed", type=natural, default=0, metavar="N", help="of fits and all else that is drawn")
    command.add_argument(
        "--out",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help=f"write it; by its ending: {', '.join(_ENDINGS)}",
    )


def run_compare(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Check everything, fit one system after the other, measure, and lay out one table."""
    for out in arguments.out:
        if out.suffix.lower() not in _ENDINGS:
            raise UsageError(f"--out {out} must end in {', '.join(_ENDINGS)}")
        check_destination(out)
    runs = _make_runs(arguments.system or _line_up(0))
    metrics, of_ratings = check_metrics(arguments.metrics, [run.model for run in runs])
    features = read_features(arguments, [run.model for run in runs])
    kinds = [type(run.model) for run in runs]
    key = Key.from_seed(arguments.seed)
    split, stated = load_parts(arguments, kinds, of_ratings=of_ratings), stated_split(arguments)
    if split is None:
        splitter = RandomHoldout(share=0.2) if of_ratings else LeaveOneOut()
        split, stated = next(splitter.split(load_data(arguments, kinds), key=key)), repr(splitter)
    if not arguments.system:
        runs = _make_runs(_line_up(split.train.n_items))
    give_features(arguments, features, [run.model for run in runs], split.train)
    show_progress = can_show_progress(arguments.quiet)
    failures: list[tuple[str, str]] = []
    for run in runs:
        try:
            _measure(run, split, metrics, stated, arguments, key, show_progress)
        except Exception as error:  # the others are worth their table all the same
            failures.append((run.label, " ".join(str(error).split()) or type(error).__name__))
            if arguments.debug or len(runs) - len(failures) < 2:
                raise
    done, others = _of_same_users([run for run in runs if run.result is not None])
    failures += others
    found = compare({run.label: run.result for run in done if run.result is not None}, key=key)
    document = _document(arguments, split, done, found, failures)
    head, remarks = _head(arguments, split, found), _remarks(split, done, found, failures)
    answer = _write(arguments.out, head, remarks, done, found, document)
    return document if arguments.json else answer


def _of_same_users(done: list[_Run]) -> tuple[list[_Run], list[tuple[str, str]]]:
    """The runs that were tested by all users, and why the others have no place beside them."""
    counts = {run.label: run.result.n_users for run in done if run.result is not None}
    most = max(counts.values())
    fewer = [
        (label, f"it serves {n:,} of the {most:,} tested users, and figures of other users are not comparable")
        for label, n in counts.items()
        if n < most
    ]
    if len(done) - len(fewer) < 2:
        raise ValueError(f"nothing is left to compare: {'; '.join(f'{label}: {reason}' for label, reason in fewer)}")
    return [run for run in done if counts[run.label] == most], fewer


def _line_up(n_items: int) -> list[Asked]:
    """Who is compared on so many items where nobody is named."""
    ease = [f"top_items={_MOST_PAIRED}"] if n_items > _MOST_PAIRED else []
    choice = Choice(_MOST_CHOSEN, 1.0) if n_items > _MOST_CHOSEN else None
    return [
        Asked("popularity"),
        Asked("item-knn"),
        Asked("ease", ease),
        Asked("implicit-als"),
        Asked("dp-gram", ["epsilon=2"], choice),
    ]


def _make_runs(asked: Sequence[Asked]) -> list[_Run]:
    """The systems with their parameters, each under a name of its own."""
    runs: dict[str, _Run] = {}
    for one in asked:
        model = make_system(one.name, one.assignments)
        given = ", ".join(f"{name}={model.get_params()[name]!r}" for name in split_assignments(one.assignments))
        label = type(model).__name__ + (f"({given})" if given else "")
        if one.choice is not None:
            label += f" on {one.choice.n:,} chosen items"
        if label in runs:
            raise UsageError(f"--system {one.name} is given twice with the same parameters")
        runs[label] = _Run(label, one, model)
    if len(runs) < 2:
        raise UsageError("compare takes two systems at least; for one there is evaluate")
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
    """Fit a system and test it, and keep what is told of it; the model itself may be large."""
    started = time.perf_counter()
    ledger, train = Ledger(), split.train
    if (choice := run.asked.choice) is not None:
        train = choose_items(train, choice.n, choice.epsilon, delta=_CHOICE_DELTA, key=key, ledger=ledger)
        if not train.n_items:
            raise ValueError(
                f"--choose {choice.n} {choice.epsilon:g} keeps no item: none has so many users that its being there "
                "tells nothing of one; pass a public list (--catalogue FILE), of which the best are kept, or a larger "
                "EPSILON"
            )
    run.parameters = run.model.get_params()
    model = run.model.fit(train, key=key, n_threads=arguments.threads, show_progress=shows, ledger=ledger)
    result = evaluate(
        model, split.train, split.test, given=split.given, metrics=metrics, candidates=arguments.negatives,
        split=stated, key=key, n_threads=arguments.threads,
    )  # fmt: skip
    run.epsilon = {view: ledger.epsilon(view) for view in SHORT_NAMES}
    run.notes, run.n_items = tuple(model.ledger_.notes), model.interactions_.n_items
    run.result, run.model, run.seconds = result, None, time.perf_counter() - started


# ---- what is told ---------------------------------------------------------------------------------------------------


def _columns(done: list[_Run], found: Comparison, dash: str = "to") -> dict[str, list[str]]:
    """Cells of the table: each system's metrics with intervals, and what it costs."""
    metrics = list(next(iter(found.results.values())))
    return (
        {"system": [run.label for run in done]}
        | {m: [tables.show_interval(found.results[r.label][m], found.intervals[r.label][m], dash) for r in done]
           for m in metrics}
        | {"epsilon": [_cost(run) for run in done]}
    )  # fmt: skip


def _cost(run: _Run) -> str:
    """Against the one who sees most of those who are protected from."""
    for view, name in SHORT_NAMES.items():
        if math.isfinite(run.epsilon[view]):
            return f"{format_epsilon(run.epsilon[view])} ({name})"
    return "none"


def _remarks(split: Split, done: list[_Run], found: Comparison, failures: list[tuple[str, str]]) -> list[str]:
    """Lines about the table: what failed, who is best, what was left out, and what a guarantee does not cover."""
    lines = [f"{label} failed: {error}" for label, error in failures] + found.verdicts()
    results = next(iter(found.results.values()))
    lines += tell_dropped(results.dropped)
    for run in done:
        if run.n_items < split.train.n_items:
            lines.append(f"{run.label} knows {run.n_items:,} of {split.train.n_items:,} items; all others rank last")
        if _cost(run) != "none":
            own = f"{found.results[run.label].model}: "
            lines += [f"{run.label}: {note.removeprefix(own)}" for note in run.notes]
    return lines


def _head(arguments: argparse.Namespace, split: Split, found: Comparison) -> list[str]:
    """Lines above the table: what was fitted and tested, and how."""
    first = next(iter(found.results.values()))
    split_by = f", {first.split}" if first.split else ""
    return [
        *(f"{name} {source}: {part!r}" for name, source, part in _parts(arguments, split)),
        f"{first.n_users:,} users tested{split_by}, against {first.protocol}; 95% bootstrap intervals over users; seed "
        f"{arguments.seed} (a simulation)",
    ]


def _parts(arguments: argparse.Namespace, split: Split) -> list[tuple[str, str, Interactions]]:
    if arguments.train is None:
        return [("data", arguments.data, split.train), ("held out of", arguments.data, split.test)]
    named = {"train": split.train, "test": split.test, "given": split.given}
    return [(name, path, part) for name, path in sources(arguments).items() if (part := named[name]) is not None]


def _document(
    arguments: argparse.Namespace, split: Split, done: list[_Run], found: Comparison, failures: list[tuple[str, str]]
) -> dict[str, Any]:
    first = next(iter(found.results.values()))
    compared = json.loads(found.to_json())
    return {
        "version": __version__,
        "data": {name: {"source": source, **describe(part)} for name, source, part in _parts(arguments, split)},
        "split": first.split,
        "protocol": first.protocol,
        "seed": arguments.seed,
        "n_users": first.n_users,
        "dropped": {run.label: found.results[run.label].dropped for run in done},
        "systems": [
            {
                "name": run.label,
                "system": compared["results"][run.label]["model"],
                "parameters": plain(run.parameters),
                "choice": None if run.asked.choice is None else vars(run.asked.choice),
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
    found: Comparison,
    document: dict[str, Any],
) -> str:
    """Write the table to each file in the format that its ending names, and return it as text."""
    columns = _columns(done, found)
    table = format_table(list(columns), zip(*columns.values(), strict=True))
    answer = "\n".join([*head, "", table, "", *remarks, "", _LEGEND])
    makers: dict[str, Callable[[], str]] = {
        ".txt": lambda: answer,
        ".md": lambda: _to_markdown(head, columns, [*remarks, _LEGEND]),
        ".tex": lambda: tables.to_latex(_columns(done, found, "--")),
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
    """A line for each system and metric."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["system", "metric", "value", "low", "high", *(f"epsilon_{name}" for name in SHORT_NAMES.values()), "n_users",
         "protocol"]
    )  # fmt: skip
    for system in document["systems"]:
        for metric, found in system["metrics"].items():
            writer.writerow(
                [system["name"], metric, *found.values(), *system["epsilon"].values(), document["n_users"],
                 document["protocol"]]
            )  # fmt: skip
    return text.getvalue()
