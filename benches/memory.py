"""Peak memory of one whole run of each system, beyond that of its data."""

import concurrent.futures
import multiprocessing
from pathlib import Path

from benches import whole_runs
from benches.whole_runs import MODELS, N_ITEMS, N_USERS


class Peak:
    """A run of 6,040 users and 3,706 items; a byte for each of their pairs would be 3,706 bytes a user."""

    param_names = ("system",)
    params = (list(MODELS),)

    def setup_cache(self):
        cases = [(name, n) for name in MODELS for n in (N_USERS, 3 * N_USERS)]
        spawn = multiprocessing.get_context("spawn")  # a process of its own each
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
            return dict(zip(cases, pool.map(_peak, *zip(*cases, strict=True)), strict=True))

    setup_cache.timeout = 3600

    def track_bytes(self, found, system):
        return found[system, N_USERS]

    def track_bytes_of_a_further_user(self, found, system):
        """From twice as many more users."""
        return (found[system, 3 * N_USERS] - found[system, N_USERS]) / (2 * N_USERS)

    track_bytes.unit = "bytes"
    track_bytes_of_a_further_user.unit = "bytes a user"


def _peak(name, n_users):
    whole_runs.run(name, whole_runs.ratings(400, 300))  # what is imported and compiled belongs to no run
    data = whole_runs.ratings(n_users, N_ITEMS)
    Path("/proc/self/clear_refs").write_text("5")  # the highest use so far is the present one
    before = _bytes("VmRSS")
    whole_runs.run(name, data)
    return _bytes("VmHWM") - before


def _bytes(field):
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))
