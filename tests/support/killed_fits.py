"""Kill a fit with a checkpoint at random moments, and fit it again, in forked processes: run as a program.

Each process reads the ledger of earlier runs from a file, which some processes write back after each round.

The parent runs no kernel, because threads of OpenMP do not survive a fork.
"""

import json
import math
import os
import random
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from fastfedrec import Key
from fastfedrec.accounting import Ledger, LocalReports
from fastfedrec.core.files import write_text
from fastfedrec.rounds.local import LocalEngine
from support.data import rated
from support.models import WITH_ROUNDS, held, new


def fit(name, folder, output, saves=False):
    """Fit a model with a checkpoint and the ledger of a file, and write its arrays and its costs."""
    warnings.simplefilter("ignore")
    path = output.parent / "users.json"
    ledger = Ledger.from_json(path.read_text())
    if saves:
        log_round = LocalEngine._log_round

        def save(*arguments):
            log_round(*arguments)
            write_text(path, ledger.to_json())

        LocalEngine._log_round = save
    data = rated(40, 50, 1)
    model = new(WITH_ROUNDS[name]).fit(data, key=Key.from_seed(2), n_threads=1, checkpoint=folder, ledger=ledger)
    arrays = {array: np.asarray(getattr(held(model), array)) for array in type(held(model))._saved}
    costs = {part: text for part, text in ledger.to_dict().items() if part not in ("runs", "digest")}
    np.savez(f"{output}.npz", **arrays, ledger=np.array(json.dumps(costs)))
    os.replace(f"{output}.npz", output)


def start(*arguments):
    """Fork a process that fits."""
    child = os.fork()
    if child:
        return child
    try:
        fit(*arguments)
    except BaseException as error:  # the fork must never return to the loop of its parent
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def is_done(child):
    """Return whether a process has ended by itself, without an error."""
    ended, status = os.waitpid(child, os.WNOHANG)
    assert not ended or status == 0, status
    return bool(ended)


def same(path, other):
    """Return whether two results have the same bits and the same ledger."""
    with np.load(path) as one, np.load(other) as two:
        return one.files == two.files and all(one[name].tobytes() == two[name].tobytes() for name in one.files)


def wait(child, run, seconds, n_changes=math.inf):
    """Return whether a fit has ended before some seconds after its key, and before some changes of its folder."""
    begun, known, seen = None, set(), 0
    while not (done := is_done(child)):
        # Files appear under another name before they replace the old ones, so that kills fall into each step.
        names = set(os.listdir(run)) if run.exists() else set()
        seen, known = seen + (names != known), names
        # Imports and the data take longer than a small fit, so the time counts from the key.
        begun = time.monotonic() if begun is None and "key.json" in names else begun
        if seen >= n_changes or (begun is not None and time.monotonic() - begun > seconds):
            return False
        time.sleep(0.0002)
    return done


def main(name, folder, n_kills):
    """Print the number of kills, of runs that ended, and of kills after which rounds were recorded."""
    random_numbers, folder = random.Random(name), Path(folder)
    run, killed, ended, recorded = folder / "run", 0, 0, 0
    earlier = Ledger()
    earlier.record(LocalReports("an earlier run", 0.5, n_reports=1, n_users=40))
    write_text(folder / "users.json", earlier.to_json())
    assert wait(start(name, None, folder / "whole"), run, math.inf)
    assert wait(start(name, folder / "timed", folder / "result"), run, math.inf)
    seconds = time.time() - (folder / "timed" / "key.json").stat().st_mtime
    while killed < n_kills or not ended:
        child = start(name, run, folder / "result", random_numbers.random() < 0.5)
        # The run after the last kill ends by itself.
        at_time, at_change = random_numbers.uniform(0, seconds), random_numbers.randint(1, 12)
        limits = [(at_time, math.inf), (math.inf, at_change)][killed % 2] if killed < n_kills else (math.inf, math.inf)
        if wait(child, run, *limits):
            assert same(folder / "result", folder / "whole"), "a resumed run has other bits"
            shutil.rmtree(run)
            write_text(folder / "users.json", earlier.to_json())
            ended += 1
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed += 1
            recorded += any(run.glob("round-*"))
    print(killed, ended, recorded)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
