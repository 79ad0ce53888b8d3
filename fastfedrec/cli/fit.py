"""The command ``fastfedrec fit``: train a system, print its privacy cost, and save the model."""

import argparse
import inspect
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfedrec.cli.cost_table import cost_sentences, cost_table
from fastfedrec.cli.features import add_features, give_features, read_features
from fastfedrec.cli.inputs import UsageError, add_system_and_data, load_data, make_system, natural
from fastfedrec.cli.ledgers import fit_sentence, open_ledger
from fastfedrec.cli.outputs import add_details, can_show_progress, describe, footer, list_source, same_list
from fastfedrec.core.files import check_destination
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import plain
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions

__all__ = ["add_fit"]

#: Note on figures of the output that no guarantee covers.
_EXACT = "sizes of the data and fit's duration are exact, and no guarantee covers them: keep them with the data"


def add_fit(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "fit",
        run_fit,
        "Train a system, and print its cost in privacy and bytes.",
        [
            "fastfedrec fit dp-gram --data generated:5000x300 --set epsilon=2",
            "fastfedrec fit dp-gram --data ml-1m.zip --catalogue published --features movielens",
            "fastfedrec fit fmf-ldp --data ml-20m.zip --catalogue published --out model.npz --no-users",
            "fastfedrec fit private-recommender --data week2.csv --ledger users.json --budget 4",
            "fastfedrec fit laplace-rr-svd --data ratings.csv --set epsilon_1=2 epsilon_2=1 --out model.npz",
        ],
    )
    add_system_and_data(command)
    add_features(command)
    command.add_argument(
        "--seed", type=natural, metavar="N", help="seed of the noise, for a simulation; default: entropy"
    )
    command.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="ledger's .json of all fits on these users: this fit is added to it; a missing file is created",
    )
    command.add_argument(
        "--budget",
        type=float,
        metavar="EPSILON",
        help="with --ledger: largest epsilon of all fits against the public; a fit beyond it is refused",
    )
    command.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="folder that stores key, ledger and rounds of the run; the same command resumes a run that was stopped",
    )
    command.add_argument("--out", type=Path, metavar="FILE", help="file of the model, including the users' data")
    command.add_argument(
        "--no-users", action="store_true", help="save the model without users' data, so that it can be shared"
    )
    add_details(command)


def run_fit(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Check the destination, train and save the model, and return its cost."""
    model = make_system(arguments.system, arguments.set)
    out = arguments.out
    # A bad destination is reported before the training.
    if out is not None:
        check_destination(out, "--out")
    elif arguments.no_users:
        raise UsageError("--no-users needs --out FILE; name a file, or leave it out")
    options = {} if arguments.checkpoint is None else {"checkpoint": _check_folder(arguments, model)}
    ledger = open_ledger(arguments.ledger, arguments.budget, getattr(model, "delta", None))
    features = read_features(arguments, [model])
    data = load_data(arguments, [type(model)])
    give_features(arguments, features, [model], data)
    key = None if arguments.seed is None else Key.from_seed(arguments.seed)
    started = time.perf_counter()
    with ledger as opened:
        earlier = Counter(opened.events) if opened is not None else None
        model.fit(
            data, key=key, n_threads=arguments.threads, show_progress=can_show_progress(arguments.quiet),
            ledger=opened, **options,
        )  # fmt: skip
    seconds = time.perf_counter() - started
    if out is not None:
        model.save(out, include_users=not arguments.no_users)
    communication = getattr(model, "communication_", None)  # only models fitted in rounds have it
    together = [] if earlier is None else [fit_sentence(arguments.ledger, model.ledger_, earlier)]
    if arguments.json:
        return {
            "version": __version__,
            "system": type(model).__name__,
            "parameters": plain(model.get_params()),
            "seed": arguments.seed,
            "data": {"source": arguments.data, **describe(data)},
            "fit_seconds": seconds,
            "privacy": model.ledger_.to_dict(),
            "not_covered": _EXACT,
            "communication": None if communication is None else communication.to_dict(),
            "model": None if out is None else str(out),
        }
    if out is None:
        saved = "The model was not saved; --out FILE saves it."
    elif arguments.no_users:
        saved = f"Saved: {out} (without users; fastfedrec recommend {out} --data FILE serves users with their data)"
    else:
        saved = f"Saved: {out} (with users' data, so only its owner may read it; --no-users leaves them out)"
    ledger = model.ledger_
    facts = [*together, *same_list(type(model).__name__, model)]
    sentences = [*[" ".join(facts)] * bool(facts), *cost_sentences(ledger), _not_covered(data)]
    if arguments.details:  # the ledger's summary has the notes
        cost, below = ledger.summary().rstrip(), sentences
    else:
        cost, below = cost_table(ledger), footer(arguments, *sentences, details=[str(note) for note in ledger.notes])
    traffic = [] if communication is None else [communication.summary()]
    return "\n\n".join([f"{model!r}\nfitted in {seconds:.1f} s on {data!r}", cost, "\n".join(below), *traffic, saved])


def _check_folder(arguments: argparse.Namespace, model: Any) -> Path:
    """Return the folder of the checkpoint, or raise for a fit that stores none."""
    if "checkpoint" not in inspect.signature(model.fit).parameters:
        raise UsageError(f"--checkpoint needs a system with rounds, and {type(model).__name__} has none; omit it")
    folder: Path = arguments.checkpoint
    return folder


def _not_covered(data: Interactions) -> str:
    """Return the sentence on figures and lists that no guarantee covers."""
    sizes = "No guarantee covers the exact sizes of the data and the duration of the fit."
    return " ".join([sizes, *list_source(data)])
