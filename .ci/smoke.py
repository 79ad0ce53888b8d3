"""What an installed wheel must do before it is given away; run outside the checkout, with its requirements alone."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def check_import():
    """The installed package, with all kernels compiled; Numba and Matplotlib stay out until they are used."""
    import fastfedrec
    from fastfedrec import FMFLDP, als, mechanisms  # noqa: F401

    for heavy in ("numba", "matplotlib", "tqdm"):
        assert heavy not in sys.modules, heavy
    folder = Path(importlib.util.find_spec("fastfedrec").origin).parent
    assert not (folder.parent / "setup.py").exists(), f"{folder} is a checkout; run outside it"
    assert len(list((folder / "_kernels").glob("*.so"))) >= 20
    return fastfedrec.__version__


def check_fit():
    """One round; its ledger; what is found survives a file."""
    from fastfedrec import FMFLDP, Key, datasets, load

    data = datasets.generate_implicit(2000, 200, key=Key.from_seed(1))
    model = FMFLDP(epsilon=2.5, n_reports=20, n_rounds=1).fit(data)
    assert abs(model.ledger_.epsilon() - 50.0) < 1e-6
    assert 0.1 < model.ledger_.epsilon("public") < 5.0
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.npz"))
        again = load(Path(folder, "model.npz"))
    ids, _ = model.recommend(data.user_ids[:5], n=3)
    assert (again.recommend(data.user_ids[:5], n=3)[0] == ids).all()


def check_tables():
    """The tables of data that the package carries: of channels, and of advice."""
    from fastfedrec.advise import advise
    from fastfedrec.mechanisms import BayesKary, OptimalKary

    assert OptimalKary(2.0, [1, 2, 3, 4, 5]).epsilon <= 2.0 + 1e-9
    assert BayesKary(2.0, [1, 2, 3, 4, 5]).epsilon <= 2.0 + 1e-9
    assert advise(20_000, 500, epsilon=2.0, trust="central").best.epsilon <= 2.0


def check_numba():
    """A kernel that is compiled on this machine."""
    from fastfedrec import Key, sgd

    users, items, ratings = [0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [5.0, 1.0, 4.0, 2.0, 5.0]
    model = sgd.fit_factors(users, items, ratings, n_users=3, n_items=2, n_epochs=200, key=Key.from_seed(1))
    assert model.predict([2], [0]) > model.predict([2], [1]) + 1
    assert "numba" in sys.modules


def check_command():
    """Its own program: the version, and the doctor's report."""
    program = str(Path(sys.executable).with_name("fastfedrec"))
    said = subprocess.run([program, "doctor", "--json"], capture_output=True, text=True, check=True).stdout
    return json.loads(said)["instruction_sets"]["in_use"]


if __name__ == "__main__":
    version = check_import()
    check_fit()
    check_tables()
    check_numba()
    print(f"fastfedrec {version} works on Python {sys.version.split()[0]}, instruction set {check_command()}")
