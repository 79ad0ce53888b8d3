"""FMF-LDP on two Dask workers: what a round costs beside the same round in one process, and the engine's own share."""

import time

from fastfedrec import FMFLDP, Key
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines import LocalEngine

N_ROUNDS = 10


class Rounds:
    """200,000 users x 5,000 items, two workers of one thread each."""

    timeout = 900

    def setup(self):
        try:
            from distributed import Client
        except ImportError:
            raise NotImplementedError("Dask is not installed") from None
        from fastfedrec.engines import DaskEngine

        self.data = generate_implicit(200_000, 5_000, key=Key.from_seed(0))
        self.client = Client(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0")
        self.dask, self.local = DaskEngine(self.client), LocalEngine(2)
        if (self._fit(self.dask)[0] != self._fit(self.local)[0]).any():
            raise AssertionError("the model is another")

    def teardown(self):
        if hasattr(self, "client"):
            self.client.close()

    def _fit(self, engine):
        """The factors, and the seconds between the first round's end and the last's: data are where they belong."""
        ends = []
        model = FMFLDP(n_rounds=N_ROUNDS).fit(
            self.data, key=Key.from_seed(1), engine=engine, callback=lambda *_: ends.append(time.perf_counter())
        )
        return model.item_factors_, ends[-1] - ends[0]

    def track_seconds_a_round(self):
        return min(self._fit(self.dask)[1] for _ in range(3)) / (N_ROUNDS - 1)

    track_seconds_a_round.unit = "s"

    def track_share_of_the_engine(self):
        """Of a round, beyond what the same two threads take in one process."""
        there = min(self._fit(self.dask)[1] for _ in range(3))
        here = min(self._fit(self.local)[1] for _ in range(3))
        return max(0.0, 1 - here / there)

    track_share_of_the_engine.unit = "of 1"
