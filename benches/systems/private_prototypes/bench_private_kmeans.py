"""Losses of all swaps and a private draw, against NumPy; complete runs of k-means, against diffprivlib; one thread.

diffprivlib 0.6.6 exchanges the shares of epsilon for each coordinate of a sum and for the count, since `_split_epsilon`
returns them in the opposite order.  So it spends (1 + d c) / (d + c) times its nominal epsilon, for d coordinates and
c = (4 d .225^2)^(1/3), and it gets the nominal epsilon that makes its true epsilon equal to ours.  It also omits the
noise of empty clusters, which no epsilon covers; this stays as it is.
"""

import numpy as np
import threadpoolctl

from benches.core_suite import BEST, core
from benches.floors import fastest, few, integer_operations_per_second, read_bytes_per_second
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, nan_without_peers, times_faster
from fastfedrec import Key, PrivatePrototypes
from fastfedrec.compute.clustering import assign_rows, kmeans
from fastfedrec.datasets import generate_counts, generate_implicit
from fastfedrec.mechanisms.bounded_rows import project_rows, public_candidates
from fastfedrec.studies.reproduce.ribero2020.figures import entity_prototypes
from fastfedrec.systems.private_prototypes.private_kmeans import draw_loss, private_kmeans, swap_losses
from fastfedrec.systems.private_prototypes.private_lloyd import lloyd_rounds, private_lloyd

N_USERS, N_CLUSTERS, N_CANDIDATES = 6_040, 50, 400
N_ITEMS, N_DIMENSIONS, N_SWAPS, MAX_ENTRIES, N_GROUPS = 3_706, 4, 20, 150, 10  # sizes of complete runs
COUNTS = (10_000, 100)


@core("time_swaps", instruction_set=BEST)
class Swaps(OnInstructionSet):
    param_names = ("instruction_set",)
    params = (INSTRUCTION_SETS,)

    def setup(self, instruction_set):
        super().setup(instruction_set)
        rng = np.random.default_rng(0)
        self.distances = rng.integers(0, 65536, (N_USERS, N_CANDIDATES)).astype(np.uint16)
        self.chosen = rng.permutation(N_CANDIDATES)[:N_CLUSTERS]
        np.testing.assert_array_equal(self._ours(), self._numpy())

    def time_swaps(self, _):
        self._ours()

    def time_draw(self, _):
        draw_loss(self._ours().reshape(-1), 0.1, np.array([1, 2], dtype=np.uint64))

    def track_times_numpy(self, _):
        """Compare with NumPy, with one pass over users and candidates for each removed centre."""
        return times_faster(self._numpy, self._ours)

    def track_floor_share(self, instruction_set):
        """Count two minima, a difference and two sums of 16 bits for each distance, or one read of each distance."""
        counted = 5 / 2 * self.distances.size / integer_operations_per_second(instruction_set)
        reading = self.distances.nbytes / read_bytes_per_second(self.distances.nbytes)
        return max(counted, reading) / fastest(self._ours)

    track_times_numpy.unit = "times faster"
    track_floor_share.unit = "share of floor"

    def _ours(self):
        return swap_losses(self.distances, self.chosen, 1)

    def _numpy(self):
        wide = self.distances.astype(np.int64)
        chosen = wide[:, self.chosen]
        nearest_of_others = (np.delete(chosen, c, axis=1).min(axis=1) for c in range(N_CLUSTERS))
        return np.stack([np.minimum(wide, nearest[:, None]).sum(axis=0) for nearest in nearest_of_others])


@nan_without_peers
class EqualEpsilon:
    """k-means at the same true epsilon, without delta, on the same rows."""

    # The space "projected" has the centres of 6,040 rows in 4 dimensions, in a ball for ours (`private_lloyd`) and in
    # the cube around it for the peer.  The space "counts" has prototypes of 10,000 x 100 counts from 0 to 8, as
    # `PrivatePrototypes` sends them.  The cost is the mean squared distance of rows to the nearest centre, relative to
    # exact k-means, and averaged over 5 seeds.

    param_names = ("space", "epsilon")
    params = (["projected", "counts"], [1.0, 10.0])

    def setup(self, space, epsilon):
        try:
            import diffprivlib.models  # noqa: F401
        except ImportError as error:
            raise NotImplementedError(f"diffprivlib cannot be imported: {error}") from error
        threadpoolctl.threadpool_limits(1)
        if space == "projected":
            data = generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1))
            # A row of MAX_ENTRIES ones has this norm, the radius of the ball.
            self.reach = MAX_ENTRIES**0.5
            self.rows = project_rows(data, N_DIMENSIONS, self.reach, key=Key.from_seed(1), round=0, n_threads=1)
            self.bounds = (-self.reach, self.reach)
        else:
            self.reach, self.bounds = 8.0, (0.0, 8.0)
            self.data = generate_counts(*COUNTS, key=Key.from_seed(1)).interactions
            self.rows = np.minimum(self.data.to_scipy().toarray(), self.reach)
        self.exact_cost = kmeans(self.rows, N_GROUPS, key=Key.from_seed(1), n_threads=1).objective / len(self.rows)

    def track_cost_over_exact(self, space, epsilon):
        return self._cost(self._ours, space, epsilon)

    def track_cost_over_exact_of_diffprivlib(self, space, epsilon):
        return self._cost(self._theirs, space, epsilon)

    def track_share_of_the_cost_of_diffprivlib(self, space, epsilon):
        return self._cost(self._ours, space, epsilon) / self._cost(self._theirs, space, epsilon)

    def track_times_diffprivlib(self, space, epsilon):
        runs = (lambda fit=fit: fit(space, epsilon, 0) for fit in (self._theirs, self._ours))
        return times_faster(*runs, repetitions=3)

    track_times_diffprivlib.unit = "times faster"

    def _cost(self, fit, space, epsilon):
        costs = [assign_rows(self.rows, fit(space, epsilon, seed), n_threads=1)[1].mean() for seed in range(few(5))]
        return float(np.mean(costs)) / self.exact_cost

    def _ours(self, space, epsilon, seed):
        key = Key.from_seed(seed)
        if space == "counts":
            model = PrivatePrototypes(
                N_GROUPS, 1, epsilon, None, grouping="kmeans", prototypes="zero_filled", value_range=(0.0, self.reach),
                max_entries=COUNTS[1],
            )  # fmt: skip
            return entity_prototypes(model, self.data, key, n_threads=1)
        n_rounds = lloyd_rounds(N_USERS, N_GROUPS, N_DIMENSIONS, epsilon)
        return private_lloyd(
            self.rows, N_GROUPS, radius=self.reach, n_rounds=n_rounds, epsilon=epsilon, key=key, n_threads=1
        )

    def track_cost_over_exact_of_swaps(self, space, epsilon):
        """Return the cost of `private_kmeans` in few dimensions, with 20 swaps."""
        if space == "counts":
            return np.nan  # the prototypes use swaps already, and only `setup` can skip a case
        return self._cost(self._swaps, space, epsilon)

    def _swaps(self, space, epsilon, seed):
        key = Key.from_seed(seed)
        candidates = public_candidates(N_CANDIDATES, N_DIMENSIONS, self.reach, key=key, round=0)
        return private_kmeans(
            self.rows, candidates, N_GROUPS, radius=self.reach, n_swaps=N_SWAPS, epsilon=epsilon / (N_SWAPS + 1),
            key=key, n_threads=1,
        )  # fmt: skip

    def _theirs(self, space, epsilon, seed):
        from diffprivlib.models import KMeans

        n_dimensions = self.rows.shape[1]
        # `weight` is c of the module's docstring, and `nominal` makes the true epsilon equal to `epsilon`.
        weight = np.cbrt(4 * n_dimensions * 0.225**2)
        nominal = epsilon * (n_dimensions + weight) / (1 + n_dimensions * weight)
        model = KMeans(N_GROUPS, epsilon=nominal, bounds=self.bounds, random_state=seed)
        count, coordinate = model._split_epsilon(n_dimensions, 1)  # in the order of its caller, see above
        np.testing.assert_allclose(count + n_dimensions * coordinate, epsilon)
        return model.fit(self.rows).cluster_centers_
