"""Peak memory of one whole run of each system, beyond that of its data."""

import subprocess
import sys
from pathlib import Path

from benches.whole_runs import MODELS, N_USERS

_RUN = """if True:
    import sys
    from pathlib import Path
    sys.path.append(sys.argv[3])  # last: what is installed comes first
    from benches import whole_runs

    def kibibytes(field):
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
        return int(line.split()[1])

    name, n_users = sys.argv[1], int(sys.argv[2])
    whole_runs.run(name, whole_runs.ratings(400, 300))  # what is imported and compiled belongs to no run
    data = whole_runs.ratings(n_users, whole_runs.N_ITEMS)
    Path("/proc/self/clear_refs").write_text("5")  # the highest use so far is the present one
    before = kibibytes("VmRSS")
    whole_runs.run(name, data)
    print(1024 * (kibibytes("VmHWM") - before))
    """


class Peak:
    """A run of 6,040 users and 3,706 items; a byte for each of their pairs would be 3,706 bytes a user."""

    param_names = ("system",)
    params = (list(MODELS),)
    timeout = 1800

    def setup_cache(self):
        return {(name, n): _peak(name, n) for name in MODELS for n in (N_USERS, 3 * N_USERS)}

    setup_cache.timeout = 3600

    def track_bytes(self, found, system):
        return found[system, N_USERS]

    def track_bytes_of_a_further_user(self, found, system):
        """From twice as many more users."""
        return (found[system, 3 * N_USERS] - found[system, N_USERS]) / (2 * N_USERS)

    track_bytes.unit = "bytes"
    track_bytes_of_a_further_user.unit = "bytes a user"


def _peak(name, n_users):
    command = [sys.executable, "-P", "-c", _RUN, name, str(n_users), str(Path(__file__).parents[1])]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
