"""The command line: ``fastfedrec demo``, ``fit``, ``evaluate``, ``recommend``, ``account`` and all others."""

import argparse
import json
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.views import SHORT_NAMES
from fastfedrec.cli.account import add_account
from fastfedrec.cli.audit import add_audit
from fastfedrec.cli.demo import EPSILON_LEGEND, missing_extra, run_demo
from fastfedrec.cli.doctor import add_doctor
from fastfedrec.cli.inputs import (
    DATA_HELP,
    UsageError,
    add_catalogue,
    load_data,
    make_system,
    natural,
    parse_literal,
    positive,
)
from fastfedrec.cli.reproduce import add_reproduce
from fastfedrec.cli.shuffler import add_shuffler
from fastfedrec.cli.sweep import add_sweep
from fastfedrec.core.files import check_place
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import NOT_COVERED, epsilon_from_json, format_epsilon, format_table
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import (
    RATING_METRICS,
    evaluate,
    evaluate_ratings,
    leave_one_out,
    parse_metrics,
    random_split,
)
from fastfedrec.systems.baselines.popularity import Popularity, Random
from fastfedrec.systems.claims import catalogue_note
from fastfedrec.systems.rating_svd.baselines import GlobalMean, ItemMean
from fastfedrec.systems.recommender import load
from fastfedrec.systems.registry import SYSTEMS


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str or None
        Arguments without the program's name; None takes the process's own.

    Returns
    -------
    int
        0; 2 after an error, which is one line on standard error; 130 where it was interrupted.
    """
    debug = False
    try:
        arguments = _build_parser().parse_args(argv)
        debug = arguments.debug
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            arguments.run(arguments)
    except KeyboardInterrupt as error:
        print("fastfedrec: interrupted", file=sys.stderr)
        _show_what_was_spent(error)
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        # A KeyError's text is the repr of its message.
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        print(f"fastfedrec: error: {' '.join(message.split()) or type(error).__name__}", file=sys.stderr)
        _show_what_was_spent(error)
        return 2
    return 0


def _show_what_was_spent(error: BaseException) -> None:
    """After a fit that did not finish: what its rounds have cost all the same."""
    ledger = getattr(error, "ledger", None)
    if isinstance(ledger, Ledger) and ledger.events:
        print("fastfedrec: the model is not there, but this was spent:\n\n" + ledger.summary(), file=sys.stderr)


def _show_warning(message: Warning | str, *_: Any) -> None:
    print(f"fastfedrec: warning: {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would print a page and exit; takes no abbreviated options."""

    def __init__(self, **arguments: Any):
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _build_parser() -> _Parser:
    parser = _Parser(prog="fastfedrec", description="Private federated recommenders, compiled.")
    parser.add_argument("--version", action="version", version=f"fastfedrec {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = _Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def add(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[common], help=text, description=text)
        command.set_defaults(run=run)
        return command

    demo = add("demo", _demo, "Train privately on generated data, compare, account, and plot.")
    demo.add_argument("--out", type=Path, default=Path("demo-output"), metavar="DIR", help="folder for the plot")
    demo.add_argument("--seed", type=natural, metavar="N", help="simulate: take the noise from a seed")

    fit = add("fit", _fit, "Train a system, and show what it cost in privacy and bytes.")
    _add_system_and_data(fit)
    fit.add_argument("--seed", type=natural, metavar="N", help="simulate: take the noise from a seed, not entropy")
    fit.add_argument("--out", type=Path, metavar="FILE", help="save the model here, with the users' data")
    fit.add_argument(
        "--without-users", action="store_true", help="save nothing of the users, so that others may have it"
    )

    evaluation = add(
        "evaluate",
        _evaluate,
        "Leave one interaction of each user out, train, and rank it; mean and deviation over seeds.",
    )
    _add_system_and_data(evaluation)
    evaluation.add_argument("--metrics", default="hr@10,ndcg@10", help="hr@K, ndcg@K, mrr; or rmse, mae")
    evaluation.add_argument("--negatives", type=_negatives, default=99, metavar="N|all", help="unseen items to beat")
    evaluation.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs with seeds 0 to N - 1")

    recommend = add("recommend", _recommend, "Best items of some users, from a saved model.")
    recommend.add_argument("file", metavar="FILE", type=Path, help="as saved by fit --out")
    recommend.add_argument("--users", nargs="+", required=True, metavar="ID", help="external user ids")
    recommend.add_argument("-n", type=positive, default=10, metavar="N", help="items for each user (10)")
    recommend.add_argument("--include-seen", action="store_true", help="also items that the user has")
    add_account(commands, common)
    add_audit(add)
    add_reproduce(add)
    add_sweep(add)
    add_doctor(add)
    add_shuffler(add)
    return parser


def _add_system_and_data(command: argparse.ArgumentParser) -> None:
    command.add_argument("system", metavar="SYSTEM", help=", ".join(SYSTEMS))
    command.add_argument("--data", required=True, metavar="PATH", help=DATA_HELP)
    command.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="its parameters")
    add_catalogue(command)
    command.add_argument(
        "--top-items", type=positive, metavar="N",
        help="for experiments: keep the N most used items, a choice that no guarantee covers",
    )  # fmt: skip
    command.add_argument(
        "--min-interactions", type=positive, metavar="N", help="then keep users with N items, and items with a user"
    )
    command.add_argument("--threads", type=natural, default=0, metavar="N", help="0 (all); changes no result")


def _negatives(text: str) -> int | None:
    return None if text == "all" else positive(text)


# ---- what is said of data and progress ---------------------------------------------------------------------------


def _describe(data: Interactions) -> dict[str, int]:
    return {"n_users": data.n_users, "n_items": data.n_items, "n_interactions": data.n_interactions}


#: Of what `fit` prints beside a guarantee.
_EXACT = "sizes of the data and fit's duration are exact, and no guarantee covers them: keep them with the data"


def _can_show_progress() -> bool:
    if problem := missing_extra("tqdm", "no progress bar"):
        print(f"fastfedrec: {problem}", file=sys.stderr)
    return problem is None


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


# ---- the commands -------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
    if arguments.out.exists() and not arguments.out.is_dir():
        raise UsageError(f"--out {arguments.out} must be a folder, and a file is there")

    def show(text: str) -> None:
        if not arguments.json:
            print(text + "\n", flush=True)

    document = run_demo(arguments.out, seed=arguments.seed, show=show)
    if arguments.json:
        _print_json(document)


def _fit(arguments: argparse.Namespace) -> None:
    model = make_system(arguments.system, arguments.set)
    out = arguments.out
    if out is not None:  # before the work, not after it
        if out.is_dir() or not out.parent.is_dir():
            raise UsageError(f"--out {out} must be a file in a folder that exists")
        check_place(out)
    elif arguments.without_users:
        raise UsageError("--without-users is about the file of --out, which is not given")
    data = load_data(arguments, [type(model)])
    key = None if arguments.seed is None else Key.from_seed(arguments.seed)
    started = time.perf_counter()
    model.fit(data, key=key, n_threads=arguments.threads, show_progress=_can_show_progress())
    seconds = time.perf_counter() - started
    if out is not None:
        model.save(out, include_users=not arguments.without_users)
    communication = getattr(model, "communication_", None)  # models fitted in one step keep none
    if arguments.json:
        _print_json(
            {
                "version": __version__,
                "system": type(model).__name__,
                "parameters": model.get_params(),
                "seed": arguments.seed,
                "data": {"source": arguments.data, **_describe(data)},
                "fit_seconds": seconds,
                "privacy": model.ledger_.to_dict(),
                "not_covered": _EXACT,
                "communication": None if communication is None else communication.to_dict(),
                "model": None if out is None else str(out),
            }
        )
        return
    print(f"{model!r}\nfitted in {seconds:.1f} s on {data!r}\n({_EXACT})\n\n{model.ledger_.summary()}\n")
    if communication is not None:
        print(communication.summary() + "\n")
    if out is None:
        print("The model was not saved; --out FILE saves it.")
    elif arguments.without_users:
        print(f"Saved: {out} (without users: it serves those whose data are brought to with_users)")
    else:
        print(f"Saved: {out} (with users' own data, so only its owner may read it; --without-users leaves them out)")


def _evaluate(arguments: argparse.Namespace) -> None:
    if arguments.system.lower() not in SYSTEMS and Path(arguments.system).is_file():
        raise UsageError(
            f"evaluate takes a system, not the saved model {arguments.system}: that one was trained on all of its "
            f"data, so none is held out for it; there are {', '.join(SYSTEMS)}"
        )
    model = make_system(arguments.system, arguments.set)
    metrics = list(dict.fromkeys(arguments.metrics.split(",")))
    of_ratings = set(metrics) <= set(RATING_METRICS)
    if not of_ratings:
        parse_metrics(metrics)  # an unknown one is named before the training, not after it
    elif not hasattr(model, "predict"):
        raise UsageError(f"{type(model).__name__} predicts no ratings; --metrics must be hr@K, ndcg@K or mrr")
    baselines: tuple[Any, ...] = (GlobalMean(), ItemMean()) if of_ratings else (Random(), Popularity())
    models = {type(model).__name__: model}
    for baseline in baselines:
        models.setdefault(type(baseline).__name__, baseline)  # the model may be one of them, with its own parameters
    data = load_data(arguments, map(type, models.values()))
    show_progress = _can_show_progress()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in models}
    for seed in range(arguments.seeds):
        key = Key.from_seed(seed)
        train, test = random_split(data, test_fraction=0.2, key=key) if of_ratings else leave_one_out(data, key=key)
        for name, candidate in models.items():
            candidate.fit(train, key=key, n_threads=arguments.threads, show_progress=show_progress)
            found[name].append(
                evaluate_ratings(candidate, test, metrics=metrics)
                if of_ratings
                else evaluate(
                    candidate,
                    train,
                    test,
                    metrics=metrics,
                    n_negatives=arguments.negatives,
                    key=key,
                    n_threads=arguments.threads,
                )
            )
    results = {name: {m: _summarize([run[m] for run in runs]) for m in metrics} for name, runs in found.items()}
    epsilons = {name: candidate.ledger_.to_dict()["epsilon"] for name, candidate in models.items()}
    if arguments.json:
        _print_json(
            {
                "version": __version__,
                "system": type(model).__name__,
                "parameters": model.get_params(),
                "data": {"source": arguments.data, **_describe(data)},
                "n_negatives": None if of_ratings else arguments.negatives,
                "seeds": list(range(arguments.seeds)),
                "results": results,
                "epsilon": epsilons,
                "not_covered": NOT_COVERED,
                "catalogue": catalogue_note(data) or "the list of items is public",
            }
        )
        return
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
    negatives = "all unseen items" if arguments.negatives is None else f"{arguments.negatives} unseen items"
    split = "a fifth of each user's ratings held out" if of_ratings else f"leave one out, against {negatives}"
    print(f"{model!r}\n{data!r}, {split}, seeds 0 to {arguments.seeds - 1} (simulations)\n")
    print(format_table(header, rows))
    print(EPSILON_LEGEND)
    if note := catalogue_note(data):
        print(f"{note[0].upper()}{note[1:]}.")


def _summarize(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": values,
    }


def _recommend(arguments: argparse.Namespace) -> None:
    model = load(arguments.file)
    if not model.interactions_.n_users:
        raise UsageError(f"{arguments.file} was saved without users; in Python, with_users serves those of your data")
    users = _convert_ids(arguments.users, model.interactions_.user_ids)
    ids, scores = model.recommend(users, n=arguments.n, filter_seen=not arguments.include_seen)
    # A user with too few unseen items gets a shorter list.
    lists = [
        list(zip(i[s > -np.inf].tolist(), s[s > -np.inf].tolist(), strict=True))
        for i, s in zip(ids, scores, strict=True)
    ]
    if arguments.json:
        _print_json(
            {
                "model": str(arguments.file),
                "recommendations": [
                    {"user": user, "items": [item for item, _ in best], "scores": [score for _, score in best]}
                    for user, best in zip(users, lists, strict=True)
                ],
            }
        )
        return
    rows = [
        (user, place, item, f"{score:.4g}")
        for user, best in zip(users, lists, strict=True)
        for place, (item, score) in enumerate(best, start=1)
    ]
    print(format_table(("user", "place", "item", "score"), rows))


def _convert_ids(texts: Sequence[str], known: np.ndarray) -> list[Any]:
    """Ids in the type of the model's own: what stands on a command line is text."""
    kinds: dict[str, Any] = {"i": int, "u": int, "f": float, "U": str, "O": parse_literal}
    convert = kinds.get(known.dtype.kind)
    if convert is None:
        raise TypeError(f"the model's user ids are of dtype {known.dtype}, which --users cannot name; use recommend()")
    try:
        return [convert(text) for text in texts]
    except ValueError:
        raise UsageError(f"--users must be numbers like the model's own ids ({known.dtype}), got {texts}") from None
