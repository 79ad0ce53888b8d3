"""Peak memory of one run of each system, without the memory of its data."""

import concurrent.futures
import multiprocessing
from pathlib import Path

from benches import whole_runs
from benches.whole_runs import MODELS, N_ITEMS, N_USERS


class Peak:
    """A run with 6,040 users and 3,706 items, where one byte for each pair would be 3,706 bytes a user."""

    param_names = ("system",)
    params = (list(MODELS),)
    timeout = 600

    def track_bytes(self, system):
        return peak(system, N_USERS)

    def track_bytes_of_a_further_user(self, system):
        """Return the additional peak memory of twice the users, for each additional user."""
        return (peak(system, 2 * N_USERS) - peak(system, N_USERS)) / N_USERS

    track_bytes.unit = "bytes"
    track_bytes_of_a_further_user.unit = "bytes a user"


def peak(name, n_users):
    """Return the bytes of one run, measured in a separate process."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_peak, name, n_users).result()


def _peak(name, n_users):
    # A small run first imports and compiles everything.  Rounds have equal peaks, so a few rounds suffice.
    whole_runs.run(name, whole_runs.ratings(400, 300), short=True)
    data = whole_runs.ratings(n_users, N_ITEMS)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current use
    before = _bytes("VmRSS")
    whole_runs.run(name, data, short=True)
    return _bytes("VmHWM") - before


def _bytes(field):
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))
