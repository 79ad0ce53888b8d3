"""Fitted models: files, against NumPy's; recommendations, against scores and a sort; and serving one user at a time."""

import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy.sparse

from benches.ratios import nan_without_peers, peer, times_faster
from fastfedrec import FMFLDP, DPGram, ImplicitALS, Key, datasets, load
from fastfedrec.core.threads import one_blas_thread

N_USERS, N_ITEMS, N_REQUESTS = 3_000, 1_500, 200
ROOT = Path(__file__).parents[2]


def made():
    """Return generated data, and the items of the first users."""
    data = datasets.generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1))
    return data, [items.tolist() for items in np.split(data.indices, data.indptr[1 : N_REQUESTS + 1])[:N_REQUESTS]]


class OneUser:
    """Ten items for each of 200 users, one call each: users of the model, or new users with the same items."""

    param_names = ("model",)
    params = (("DPGram", "ImplicitALS"),)

    def setup(self, name):
        data, self.baskets = made()
        model = DPGram(4.0) if name == "DPGram" else ImplicitALS(n_factors=64, n_epochs=2)
        self.model = model.fit(data, key=Key.from_seed(1))
        self.users = [[user] for user in data.user_ids[:N_REQUESTS].tolist()]
        for user, basket in zip(self.users[:20], self.baskets, strict=False):
            known, new = self.model.recommend(user)[1], self.model.recommend_for(basket)[1]
            np.testing.assert_allclose(new, known, rtol=1e-3, atol=1e-6)

    def time_recommend(self, name):
        for user in self.users:
            self.model.recommend(user)

    def time_recommend_for(self, name):
        for basket in self.baskets:
            self.model.recommend_for(basket)

    def track_times_the_known_users(self, name):
        """Return the time of known users over the time of new users, which is at most 1."""
        return times_faster(lambda: self.time_recommend(name), lambda: self.time_recommend_for(name))

    track_times_the_known_users.unit = "times faster"


@nan_without_peers
class NewUser:
    """Ten items for each of 200 new users by 64 factors that are computed from their items, against implicit."""

    def setup(self):
        data, self.baskets = made()
        self.model = ImplicitALS(n_factors=64, n_epochs=2).fit(data, key=Key.from_seed(1), n_threads=1)

    def time_recommend_for(self):
        for basket in self.baskets:
            self.model.recommend_for(basket)

    def track_times_implicit(self):
        with peer("implicit"):
            from implicit.als import AlternatingLeastSquares

        theirs = AlternatingLeastSquares(
            factors=64, regularization=self.model.regularization, alpha=1 + self.model.confidence_weight, num_threads=1
        )
        theirs.item_factors = self.model.item_factors_.astype(np.float32)
        theirs.user_factors = np.zeros((1, 64), dtype=np.float32)

        def recommend(basket):
            row = scipy.sparse.csr_matrix(
                (np.ones(len(basket), np.float32), np.array(basket, np.int32), np.array([0, len(basket)], np.int32)),
                shape=(1, N_ITEMS),
            )
            return theirs.recommend(0, row, N=10, recalculate_user=True)

        for basket in self.baskets[:20]:
            np.testing.assert_allclose(recommend(basket)[1], self.model.recommend_for(basket)[1][0], rtol=2e-2)
        return times_faster(lambda: [recommend(basket) for basket in self.baskets], self.time_recommend_for)

    track_times_implicit.unit = "times faster"


class Threads:
    """The same requests by a pool of Python threads, as a web server runs them."""

    param_names = ("n_threads",)
    params = ((1, 2, 8),)

    def setup(self, n_threads):
        data, self.baskets = made()
        self.model = DPGram(4.0).fit(data, key=Key.from_seed(1))
        self.pool = ThreadPoolExecutor(n_threads)
        list(self.pool.map(self.model.recommend_for, self.baskets[:20]))

    def teardown(self, n_threads):
        self.pool.shutdown()

    def time_recommend_for(self, n_threads):
        with one_blas_thread():  # as in examples/serving/app.py
            list(self.pool.map(self.model.recommend_for, self.baskets))


class Rest:
    """The service of examples/serving over loopback: seconds of a request, and requests per second of 8 clients."""

    timeout = 300

    def setup(self):
        with peer("fastapi, uvicorn and httpx"):
            import httpx
            import uvicorn

            sys.path.insert(0, str(ROOT / "examples" / "serving"))
            from app import create_app
        data, self.baskets = made()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.npz")
            DPGram(4.0).fit(data, key=Key.from_seed(1)).save(path, include_users=False)
            model, app = load(path), create_app(str(path))
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)
        for basket in self.baskets[:20]:
            assert self.request(basket)["items"] == model.recommend_for(basket)[0][0].tolist()

    def teardown(self):
        if hasattr(self, "server"):
            self.client.close()
            self.server.should_exit = True
            self.thread.join()

    def request(self, basket):
        return self.client.post("/recommend", json={"items": basket}).json()

    def time_request(self):
        self.request(self.baskets[0])

    def track_requests_of_8_clients(self):
        with ThreadPoolExecutor(8) as pool:
            start = time.perf_counter()
            list(pool.map(self.request, self.baskets))
            return N_REQUESTS / (time.perf_counter() - start)

    track_requests_of_8_clients.unit = "requests per second"


class Files:
    """Saving and loading a model of 20,000 users and 2,000 items, with user factors."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        data = datasets.generate_implicit(20_000, 2_000, key=Key.from_seed(1))
        self.model = FMFLDP(n_rounds=1, n_reports=10).fit(data, key=Key.from_seed(1))
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "model.npz")
        self.model.save(self.path)
        with np.load(self.path) as file:
            self.arrays = dict(file)
        np.testing.assert_array_equal(load(self.path).item_factors_, self.arrays["model.item_factors_"])

    def teardown(self, impl):
        self.folder.cleanup()

    def time_load(self, impl):
        if impl == "fastfedrec":
            load(self.path)
            return
        with np.load(self.path) as file:
            dict(file)

    def time_save(self, impl):
        if impl == "fastfedrec":
            self.model.save(self.path)
        else:
            np.savez_compressed(self.path, **self.arrays)


class Recommend:
    """Ten items for each of 20,000 users, from all 2,000 items or half of them, and ten similar items."""

    param_names = ("impl", "items")
    params = (("fastfedrec", "numpy"), (2_000, 1_000))

    def setup(self, impl, items):
        data = datasets.generate_implicit(20_000, 2_000, key=Key.from_seed(1))
        self.model = FMFLDP(n_factors=32, n_rounds=1, n_reports=10).fit(data, key=Key.from_seed(1))
        self.candidates = None if items == data.n_items else data.item_ids[::2]
        _, scores = self.model.recommend(items=self.candidates)
        theirs = self.sorted()
        np.testing.assert_allclose(
            np.take_along_axis(theirs[1], theirs[0], axis=1), scores[: len(theirs[0])], rtol=1e-4
        )
        _, cosines = self.model.similar_items(data.item_ids[:100])
        np.testing.assert_allclose(cosines, self.sorted_cosines(100)[1], rtol=1e-4)

    def sorted(self, n_users=1_000):
        """Return the best items of the first users, and their array of scores."""
        data, columns = self.model.interactions_, slice(None) if self.candidates is None else self.candidates
        scores = self.model.user_factors_[:n_users] @ self.model.item_factors_.T
        rows = np.repeat(np.arange(n_users), data.interactions_per_user()[:n_users])
        scores[rows, data.indices[: len(rows)]] = -np.inf
        scores = scores[:, columns]
        best = np.argpartition(-scores, 10, axis=1)[:, :10]
        return np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1), axis=1), scores

    def sorted_cosines(self, n_items):
        """Return the most similar items of the first items, and their cosines."""
        factors = self.model.item_factors_
        units = factors / np.linalg.norm(factors, axis=1, keepdims=True)
        cosines = units[:n_items] @ units.T
        cosines[np.arange(n_items), np.arange(n_items)] = -np.inf
        best = np.argsort(-cosines, axis=1)[:, :10]
        return best, np.take_along_axis(cosines, best, axis=1)

    def time_recommend(self, impl, items):
        if impl == "fastfedrec":
            self.model.recommend(items=self.candidates)
        else:
            for _ in range(20):  # 20 blocks of 1,000 users
                self.sorted()

    def time_similar_items(self, impl, items):
        if impl == "fastfedrec":
            self.model.similar_items(self.model.interactions_.item_ids)
        else:
            self.sorted_cosines(len(self.model.item_factors_))
