"""Smoke test of an installed wheel, outside the checkout and with the package's requirements alone.

An argument names an extra, which is also installed.  The test then uses this extra.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def check_import():
    """Import the package and check that its kernels are compiled and that heavy packages are not imported."""
    import fastfedrec
    from fastfedrec import FMFLDP, als, mechanisms  # noqa: F401

    for heavy in ("numba", "matplotlib", "tqdm"):
        assert heavy not in sys.modules, heavy
    folder = Path(importlib.util.find_spec("fastfedrec").origin).parent
    assert not (folder.parent / "setup.py").exists(), f"{folder} is a checkout; run outside it"
    assert len(list((folder / "_kernels").rglob("*.so"))) >= 20
    return fastfedrec.__version__


def check_fit():
    """Fit a model in one round, and check its ledger and that a saved model recommends the same items."""
    from fastfedrec import FMFLDP, Key, datasets, load

    data = datasets.generate_implicit(2000, 200, key=Key.from_seed(1))
    model = FMFLDP(epsilon=2.5, n_reports=20, n_rounds=1).fit(data)
    assert abs(model.ledger_.epsilon() - 50.0) < 1e-6
    assert 0.1 < model.ledger_.epsilon("public") < 5.0
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.npz"))
        loaded = load(Path(folder, "model.npz"))
    ids, _ = model.recommend(data.user_ids[:5], n=3)
    assert (loaded.recommend(data.user_ids[:5], n=3)[0] == ids).all()


def check_tables():
    """Read the package's tables of channels and of advice."""
    from fastfedrec.mechanisms import BayesKary, OptimalKary
    from fastfedrec.systems.private_recommender.choice import advise

    assert OptimalKary(2.0, [1, 2, 3, 4, 5]).epsilon <= 2.0 + 1e-9
    assert BayesKary(2.0, [1, 2, 3, 4, 5]).epsilon <= 2.0 + 1e-9
    assert advise(20_000, 500, epsilon=2.0, trust="central").best.epsilon <= 2.0


def check_numba():
    """Train with a loss that Numba compiles."""
    from fastfedrec import Key, sgd

    users, items, ratings = [0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [5.0, 1.0, 4.0, 2.0, 5.0]
    sizes = {"n_users": 3, "n_items": 2, "n_epochs": 200, "key": Key.from_seed(1)}
    for loss in "squared", lambda prediction, rating: ((prediction - rating) ** 2 / 2, prediction - rating):
        model = sgd.fit_factors(users, items, ratings, loss=loss, **sizes)
        assert model.predict([2], [0]) > model.predict([2], [1]) + 1
        assert ("numba" in sys.modules) == callable(loss)
    assert "numba" in sys.modules


def check_compiled_callers():
    """The header for C, the declarations for Cython, and a function that Numba compiles with the C API."""
    import numba

    import fastfedrec
    from fastfedrec import Key
    from fastfedrec import numba as private

    assert Path(fastfedrec.get_include(), "fastfedrec.h").is_file()
    assert Path(fastfedrec.get_include(), "../_kernels/capi.pxd").is_file()

    @numba.njit
    def first_word(subkey):
        stream = private.make_stream()
        private.open_stream(stream, subkey, 0, 0)
        return private.next_word(stream)

    key = Key.from_seed(1)
    assert first_word(private.subkey(key, "p")) == key.words("p", size=1)[0]


def check_command():
    """Return the instruction set from the report of ``fastfedrec doctor``, and check that the pages are installed."""
    program = str(Path(sys.executable).with_name("fastfedrec"))
    pages = subprocess.run([program, "docs", "first-run", "--path"], capture_output=True, text=True, check=True).stdout
    assert Path(pages.strip()).is_file(), pages
    report = subprocess.run([program, "doctor", "--json"], capture_output=True, text=True, check=True).stdout
    return json.loads(report)["instruction_sets"]["in_use"]


def small_data():
    """Return generated ratings of 200 users."""
    from fastfedrec import Key, datasets

    return datasets.generate_implicit(200, 50, key=Key.from_seed(1), ratings=True)


def check_plot():
    """Draw a plot by the command line."""
    program = str(Path(sys.executable).with_name("fastfedrec"))
    with tempfile.TemporaryDirectory() as folder:
        plot = Path(folder, "cost.png")
        arguments = ["account", "reports", "--epsilon", "1", "--reports", "10", "--users", "1000", "--plot", str(plot)]
        subprocess.run([program, *arguments], check=True, capture_output=True)
        assert plot.stat().st_size > 1000


def check_data():
    """Read a table with the package of the extra."""
    from fastfedrec import datasets

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "table.csv").write_text("user,item\nann,7\nann,8\nbob,7\n")
        data = datasets.load_table(Path(folder, "table.csv"), user="user", item="item")
    assert (data.n_users, data.n_items, data.n_interactions) == (2, 2, 3)


def check_testing():
    """Draw data with hypothesis."""
    from hypothesis import find

    from fastfedrec.testing import interactions

    assert find(interactions(), lambda data: data.n_interactions > 1).n_interactions == 2


def check_cli():
    """Show a progress bar, and draw a plot."""
    from fastfedrec import FMFLDP

    FMFLDP(n_rounds=1).fit(small_data(), show_progress=True)
    assert "tqdm" in sys.modules
    check_plot()


def check_dask():
    """Fit a model on a cluster in this process."""
    from distributed import Client

    from fastfedrec import FMFLDP, Key
    from fastfedrec.engines import DaskEngine

    data, key = small_data(), Key.from_seed(2)
    with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
        model = FMFLDP(n_rounds=1).fit(data, key=key, engine=DaskEngine(client))
    assert (model.item_factors_ == FMFLDP(n_rounds=1).fit(data, key=key).item_factors_).all()


def check_flower():
    """Make both apps of a deployment."""
    from fastfedrec import FMFLDP
    from fastfedrec.engines.flower import client_app, server_app

    data = small_data()
    assert callable(client_app(FMFLDP(), lambda context: data))
    assert callable(server_app(FMFLDP(), data.item_ids, print, n_nodes=2))


def check_attacks():
    """Run an attack that trains a random forest."""
    from fastfedrec import EASE, Key, attacks

    data = small_data().binarize()
    assert 0 <= attacks.membership_shadow(EASE(), data, key=Key.from_seed(1), n_bootstrap=100).auc.value <= 1


def check_dp_accounting():
    """A ledger as an event, and its cost in both packages."""
    from dp_accounting.pld import PLDAccountant

    from fastfedrec.accounting import Gaussian, Ledger

    ledger = Ledger()
    ledger.record(Gaussian(4.0, neighboring="replace", sampling="none"))
    event, relation = ledger.to_dp_accounting("public")
    there = PLDAccountant(relation).compose(event).get_epsilon(ledger.delta)
    assert abs(there - ledger.epsilon("public")) < 1e-3


def check_aggregation():
    """A secure sum of the vectors of five nodes."""
    import numpy as np

    from fastfedrec import Key
    from fastfedrec.engines.aggregation import AggregationPlan, simulate_secure_sum

    plan = AggregationPlan("smoke", 0, n_values=2, max_sum=100, degree=4, threshold=3, min_answers=5)
    total, n_answers = simulate_secure_sum(plan, np.arange(10).reshape(5, 2), key=Key.from_seed(1))
    assert (total.tolist(), n_answers) == ([20, 25], 5)


def check_sealing():
    """A report that is sealed to a server's key."""
    import tempfile
    from pathlib import Path

    import numpy as np
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from fastfedrec import Key
    from fastfedrec.engines.shuffling.sealing import PublicKeys, ServerKeys, report_ids

    key, pem = X25519PrivateKey.generate(), serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_bytes(secret)
        server = ServerKeys(path)
        path.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
        node = PublicKeys(path)
    round_options = {"n_coordinates": 9, "run": "0" * 32, "round": 0}
    report = np.array([7]), np.array([1]), report_ids(Key.from_seed(1), "node", 0, 1)
    opened = server.unseal(server.names[0], node.seal(node.names[0], *report, **round_options), **round_options)
    assert (opened.index.tolist(), opened.bit.tolist(), opened.refused) == ([7], [1], {})


def check_metrics():
    """A page of metrics."""
    import urllib.request

    from fastfedrec.engines.metrics import Metrics

    with Metrics(0) as metrics, urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=60) as page:
        assert b"process_resident_memory_bytes" in page.read()


def check_opendp():
    """Noise as a measurement, with its cost."""
    import opendp.prelude as dp

    from fastfedrec.mechanisms import DiscreteLaplace

    dp.enable_features("contrib", "honest-but-curious")
    measurement = DiscreteLaplace(4).to_opendp()
    assert measurement.map(1) == 0.25
    assert len(measurement([1, 2, 3])) == 3


EXTRAS = {
    "plot": check_plot,
    "data": check_data,
    "testing": check_testing,
    "cli": check_cli,
    "dask": check_dask,
    "flower": check_flower,
    "attacks": check_attacks,
    "dp-accounting": check_dp_accounting,
    "opendp": check_opendp,
    "aggregation": check_aggregation,
    "sealing": check_sealing,
    "metrics": check_metrics,
}


if __name__ == "__main__":
    version = check_import()
    if sys.argv[1:]:
        EXTRAS[sys.argv[1]]()
        print(f"fastfedrec[{sys.argv[1]}] {version} works on Python {sys.version.split()[0]}")
        sys.exit()
    check_fit()
    check_tables()
    check_numba()
    check_compiled_callers()
    print(f"fastfedrec {version} works on Python {sys.version.split()[0]}, instruction set {check_command()}")
