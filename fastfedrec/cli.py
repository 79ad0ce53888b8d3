"""The command line: ``fastfedrec demo | fit | evaluate | recommend | account | audit | reproduce | doctor | ...``."""

import argparse
import ast
import json
import math
import re
import statistics
import sys
import time
import traceback
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fastfedrec._cli_account import add_account
from fastfedrec._cli_audit import add_audit
from fastfedrec._cli_doctor import add_doctor
from fastfedrec._cli_reproduce import add_reproduce
from fastfedrec._cli_shuffler import add_shuffler
from fastfedrec._demo import EPSILON_LEGEND, missing_extra, run_demo
from fastfedrec._table import format_epsilon, format_table
from fastfedrec._version import __version__
from fastfedrec.accounting.views import SHORT_NAMES
from fastfedrec.datasets import generate_implicit, load_movielens, load_netflix, load_table
from fastfedrec.datasets._table_files import table_columns
from fastfedrec.datasets.netflix import holds_netflix
from fastfedrec.evaluation import (
    RATING_METRICS,
    evaluate,
    evaluate_ratings,
    leave_one_out,
    parse_metrics,
    random_split,
)
from fastfedrec.interactions import Interactions
from fastfedrec.randomness import Key
from fastfedrec.systems.baselines import DPPopularity, Popularity, Random
from fastfedrec.systems.dplcf import DPLCF
from fastfedrec.systems.fedrec import FedRec
from fastfedrec.systems.fedrec_plus_plus import FedRecPlusPlus
from fastfedrec.systems.fmf_ldp import FMFLDP
from fastfedrec.systems.laplace_rr_svd import LaplaceRRSVD
from fastfedrec.systems.rating_baselines import GlobalMean, ItemMean
from fastfedrec.systems.recommender import load

_SYSTEMS: dict[str, Any] = {
    "fmf-ldp": FMFLDP,
    "dplcf": DPLCF,
    "laplace-rr-svd": LaplaceRRSVD,
    "fedrec": FedRec,
    "fedrec-plus-plus": FedRecPlusPlus,
    "dp-popularity": DPPopularity,
    "popularity": Popularity,
    "random": Random,
}
_GENERATED_DATA_SEED = 0  # "generated:50000x1000" is one data set, whatever seed a run takes
_DATA_HELP = (
    "MovieLens or Netflix zip or folder as downloaded; a .csv, .tsv (or .gz of these) or .parquet file with columns "
    "user, item and perhaps value and timestamp; a SciPy sparse matrix saved as .npz; or generated:USERSxITEMS (always "
    "the same data for one size)"
)


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
    except KeyboardInterrupt:
        print("fastfedrec: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        # A KeyError's text is the repr of its message.
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        print(f"fastfedrec: error: {' '.join(message.split()) or type(error).__name__}", file=sys.stderr)
        return 2
    return 0


def _show_warning(message: Warning | str, *_: Any) -> None:
    print(f"fastfedrec: warning: {message}", file=sys.stderr)


class _UsageError(Exception):
    """The command line itself is wrong."""


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would print a page and exit; takes no abbreviated options."""

    def __init__(self, **arguments: Any):
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message}; see {self.prog} --help")


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
    demo.add_argument("--seed", type=_natural, metavar="N", help="simulate: take the noise from a seed")

    fit = add("fit", _fit, "Train a system, and show what it cost in privacy and bytes.")
    _add_system_and_data(fit)
    fit.add_argument("--seed", type=_natural, metavar="N", help="simulate: take the noise from a seed, not entropy")
    fit.add_argument("--out", type=Path, metavar="FILE", help="save the model here")

    evaluation = add(
        "evaluate",
        _evaluate,
        "Leave one interaction of each user out, train, and rank it; mean and deviation over seeds.",
    )
    _add_system_and_data(evaluation)
    evaluation.add_argument("--metrics", default="hr@10,ndcg@10", help="hr@K, ndcg@K, mrr; or rmse, mae")
    evaluation.add_argument("--negatives", type=_negatives, default=99, metavar="N|all", help="unseen items to beat")
    evaluation.add_argument("--seeds", type=_positive, default=3, metavar="N", help="runs with seeds 0 to N - 1")

    recommend = add("recommend", _recommend, "Best items of some users, from a saved model.")
    recommend.add_argument("file", metavar="FILE", type=Path, help="as saved by fit --out")
    recommend.add_argument("--users", nargs="+", required=True, metavar="ID", help="external user ids")
    recommend.add_argument("-n", type=_positive, default=10, metavar="N", help="items for each user (10)")
    recommend.add_argument("--include-seen", action="store_true", help="also items that the user has")
    add_account(commands, common)
    add_audit(add)
    add_reproduce(add)
    add_doctor(add)
    add_shuffler(add)
    return parser


def _add_system_and_data(command: argparse.ArgumentParser) -> None:
    command.add_argument("system", metavar="SYSTEM", help=", ".join(_SYSTEMS))
    command.add_argument("--data", required=True, metavar="PATH", help=_DATA_HELP)
    command.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="its parameters")
    command.add_argument("--top-items", type=_positive, metavar="N", help="keep the N most used items, first of all")
    command.add_argument(
        "--min-interactions", type=_positive, metavar="N", help="then keep users with N items, and items with a user"
    )
    command.add_argument("--threads", type=_natural, default=0, metavar="N", help="0 (all); changes no result")


def _natural(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _negatives(text: str) -> int | None:
    return None if text == "all" else _positive(text)


# ---- what the arguments stand for ---------------------------------------------------------------------------------


def _make_system(name: str, assignments: Sequence[str]) -> Any:
    kind = _SYSTEMS.get(name.lower()) or {key.replace("-", ""): value for key, value in _SYSTEMS.items()}.get(
        name.lower().replace("-", "")
    )
    if kind is None:
        raise _UsageError(f"unknown system {name!r}; there are {', '.join(_SYSTEMS)}")
    known = list(kind().get_params())
    parameters: dict[str, Any] = {}
    for assignment in assignments:
        parameter, equals, text = assignment.partition("=")
        if not equals:
            raise _UsageError(f"--set takes NAME=VALUE, got {assignment!r}")
        if parameter not in known:
            valid = f"it has {', '.join(known)}" if known else "it has none"
            raise _UsageError(f"{kind.__name__} has no parameter {parameter!r}; {valid}")
        if parameter in parameters:
            raise _UsageError(f"--set gives {parameter!r} twice")
        parameters[parameter] = _parse_literal(text)
    return kind(**parameters)


def _parse_literal(text: str) -> Any:
    """Read a Python literal where it is one, else keep the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _load_data(arguments: argparse.Namespace) -> Interactions:
    source = arguments.data
    if source.startswith("generated:"):
        size = re.fullmatch(r"generated:([0-9]+)x([0-9]+)", source)
        if size is None:
            raise _UsageError(f"--data must be like generated:50000x1000 (users x items), got {source!r}")
        key = Key.from_seed(_GENERATED_DATA_SEED)
        data = generate_implicit(int(size[1]), int(size[2]), key=key, n_threads=arguments.threads)
    elif source.endswith(".npz"):
        data = Interactions.from_scipy(_read_sparse(source))
    elif re.search(r"\.([ct]sv(\.gz)?|parquet|pq)$", source):
        data = _read_table(source)
    elif holds_netflix(Path(source)):
        data = load_netflix(source)
    else:
        data = load_movielens(source)
    if arguments.top_items is not None:
        data = data.top_items(arguments.top_items)
    if arguments.min_interactions is not None:
        data = data.filter_core(min_interactions_per_user=arguments.min_interactions, min_interactions_per_item=1)
    if not data.n_interactions:
        raise ValueError(f"--data {source} has no interactions left; lower --min-interactions")
    return data


def _read_sparse(path: str) -> Any:
    import scipy.sparse

    try:
        return scipy.sparse.load_npz(path)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"--data {path} is not a SciPy sparse matrix ({error}); see scipy.sparse.save_npz") from error


def _read_table(path: str) -> Interactions:
    separator = "\t" if ".tsv" in path else ","
    columns = table_columns(path, separator)
    value, timestamp = (name if name in columns else None for name in ("value", "timestamp"))
    return load_table(path, user="user", item="item", value=value, timestamp=timestamp, separator=separator)


def _describe(data: Interactions) -> dict[str, int]:
    return {"n_users": data.n_users, "n_items": data.n_items, "n_interactions": data.n_interactions}


def _can_show_progress() -> bool:
    if problem := missing_extra("tqdm", "no progress bar"):
        print(f"fastfedrec: {problem}", file=sys.stderr)
    return problem is None


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


# ---- the commands -------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
    if arguments.out.exists() and not arguments.out.is_dir():
        raise _UsageError(f"--out {arguments.out} must be a folder, and a file is there")

    def show(text: str) -> None:
        if not arguments.json:
            print(text + "\n", flush=True)

    document = run_demo(arguments.out, seed=arguments.seed, show=show)
    if arguments.json:
        _print_json(document)


def _fit(arguments: argparse.Namespace) -> None:
    model = _make_system(arguments.system, arguments.set)
    out = arguments.out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):  # before the work, not after it
        raise _UsageError(f"--out {out} must be a file in a folder that exists")
    data = _load_data(arguments)
    key = None if arguments.seed is None else Key.from_seed(arguments.seed)
    started = time.perf_counter()
    model.fit(data, key=key, n_threads=arguments.threads, show_progress=_can_show_progress())
    seconds = time.perf_counter() - started
    if out is not None:
        model.save(out)
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
                "communication": None if communication is None else communication.to_dict(),
                "model": None if out is None else str(out),
            }
        )
        return
    print(f"{model!r}\nfitted in {seconds:.1f} s on {data!r}\n\n{model.ledger_.summary()}\n")
    if communication is not None:
        print(communication.summary() + "\n")
    print("The model was not saved; --out FILE saves it." if out is None else f"Saved: {out} (with users' own data)")


def _evaluate(arguments: argparse.Namespace) -> None:
    if arguments.system.lower() not in _SYSTEMS and Path(arguments.system).is_file():
        raise _UsageError(
            f"evaluate takes a system, not the saved model {arguments.system}: that one was trained on all of its "
            f"data, so none is held out for it; there are {', '.join(_SYSTEMS)}"
        )
    model = _make_system(arguments.system, arguments.set)
    metrics = list(dict.fromkeys(arguments.metrics.split(",")))
    of_ratings = set(metrics) <= set(RATING_METRICS)
    if not of_ratings:
        parse_metrics(metrics)  # an unknown one is named before the training, not after it
    elif not hasattr(model, "predict"):
        raise _UsageError(f"{type(model).__name__} predicts no ratings; --metrics must be hr@K, ndcg@K or mrr")
    baselines: tuple[Any, ...] = (GlobalMean(), ItemMean()) if of_ratings else (Random(), Popularity())
    models = {type(m).__name__: m for m in (model, *baselines)}
    data = _load_data(arguments)
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
            *(
                format_epsilon(math.inf if spent is None else spent)
                for spent in (epsilons[name][view] for view in SHORT_NAMES)
            ),
        )
        for name, of in results.items()
    ]
    header = ("", *(text for m in metrics for text in (m, "+-")), *(f"epsilon, {who}" for who in SHORT_NAMES.values()))
    negatives = "all unseen items" if arguments.negatives is None else f"{arguments.negatives} unseen items"
    split = "a fifth of each user's ratings held out" if of_ratings else f"leave one out, against {negatives}"
    print(f"{model!r}\n{data!r}, {split}, seeds 0 to {arguments.seeds - 1} (simulations)\n")
    print(format_table(header, rows))
    print(EPSILON_LEGEND)


def _summarize(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": values,
    }


def _recommend(arguments: argparse.Namespace) -> None:
    model = load(arguments.file)
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
    kinds: dict[str, Any] = {"i": int, "u": int, "f": float, "U": str, "O": _parse_literal}
    convert = kinds.get(known.dtype.kind)
    if convert is None:
        raise TypeError(f"the model's user ids are of dtype {known.dtype}, which --users cannot name; use recommend()")
    try:
        return [convert(text) for text in texts]
    except ValueError:
        raise _UsageError(f"--users must be numbers like the model's own ids ({known.dtype}), got {texts}") from None
