"""Start-up times: the import without NumPy's, the report of the machine, and the first call of each system."""

import os
import subprocess
import sys
import tempfile

from benches.core_suite import core
from benches.floors import few
from fastfedrec import doctor

# The measured statement and the one before it, in a new interpreter.
STARTS = {
    "numpy": ("import numpy", "pass"),
    "fastfedrec beyond numpy": ("import fastfedrec", "import numpy"),
    "fastfedrec.systems.fmf.fmf_ldp beyond numpy": ("import fastfedrec.systems.fmf.fmf_ldp", "import numpy"),
    "all of fastfedrec beyond numpy": (
        "import fastfedrec; [getattr(fastfedrec, name) for name in fastfedrec.__all__]",
        "import numpy",
    ),
    "scipy.sparse beyond numpy": ("import scipy.sparse", "import numpy"),
}


@core("timeraw_import", impl=["fastfedrec beyond numpy", "fastfedrec.systems.fmf.fmf_ldp beyond numpy"])
class Import:
    param_names = ("impl",)
    params = (list(STARTS),)

    def setup(self, impl):
        statement, before = STARTS[impl]
        # The module must be absent before the statement, since a repeated import takes no time.
        module = statement.split()[1].rstrip(";")
        code = f"{before}; import sys; print({module!r} in sys.modules); {statement}; print({module!r} in sys.modules)"
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
        assert printed.split() == ["False", "True"]

    def timeraw_import(self, impl):
        return STARTS[impl]


class Doctor:
    def time_report(self):
        doctor.report()


# Small models with default methods, for data of 80 users and 50 items with values 1 to 5.
SYSTEMS = {
    "BiasedMF": "BiasedMF()",
    "DPALS": "DPALS(8.0, n_factors=3)",
    "DPFMF": "DPFMF(8.0, n_factors=3, n_rounds=2)",
    "DPGram": "DPGram(8.0)",
    "DPLCF": "DPLCF(2.5)",
    "DMF": "DMF(n_factors=3, n_rounds=2)",
    "EASE": "EASE(20.0)",
    "FMFLDP": "FMFLDP(n_rounds=2, n_reports=10)",
    "FMFLDP, turned": "FMFLDP(n_rounds=2, n_reports=10, normalize='l2', rotate=True)",
    "FedGNN": "FedGNN(n_rounds=2, n_factors=3, cohort_size=20)",
    "FedGNN, published": "FedGNN('published', n_rounds=3, n_factors=3, n_pseudo_items=5, expansion_round=1)",
    "FedRec": "FedRec(rho=1, n_rounds=3, n_factors=3)",
    "FedRecPlusPlus": "FedRecPlusPlus(2, min_clients_per_denoiser=1, n_rounds=3, n_factors=3)",
    "ItemKNN": "ItemKNN(n_neighbors=5)",
    "LaplaceRRSVD": "LaplaceRRSVD(max_ratings=20, n_factors=20, n_epochs=2)",
    "NCF": "NCF(n_epochs=1)",
    "PrivRec": "PrivRec(n_rounds=2, cohort_size=1)",
    "PrivRec, second order": "PrivRec(n_rounds=2, cohort_size=1, meta='maml')",
    "PrivRec, private": "PrivRec(n_rounds=2, cohort_size=1, clip_norm=0.01, noise_multiplier=1.0)",
    "PrivatePrototypes": "PrivatePrototypes(n_factors=3, epsilon=5.0)",
    "SDCF": "SDCF(n_rounds=3, n_factors=3)",
    "ShuffledSketchGram": "ShuffledSketchGram(8.0)",
}

_FIRST_CALL = """if True:
    import sys
    import time
    import numpy as np
    from fastfedrec import *
    matrix = datasets.generate_implicit(80, 50, key=Key.from_seed(1)).to_scipy()
    matrix.data[:] = 1 + np.arange(matrix.nnz) % 5
    data = Interactions.from_scipy(matrix)
    start = time.process_time()
    model = eval(sys.argv[1])
    model.fit(data, key=Key.from_seed(2))
    ids, scores = model.recommend([0], n=3)
    seconds = time.process_time() - start
    assert ids.shape == (1, 3) and np.isfinite(scores).all()
    print(seconds)
    """


def _seconds_of_first_call(system, cache):
    command = [sys.executable, "-P", "-c", _FIRST_CALL, SYSTEMS[system]]
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    return float(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout)


class FirstCall:
    """CPU seconds of a process's first fit and recommendation, with their imports and compilations."""

    param_names = ("system",)
    params = (list(SYSTEMS),)
    unit = "s"

    def setup(self, system):
        self.cache = tempfile.TemporaryDirectory()

    def teardown(self, system):
        self.cache.cleanup()

    def track_first_of_an_environment(self, system):
        return _seconds_of_first_call(system, self.cache.name)

    def track_first_of_a_process(self, system):
        _seconds_of_first_call(system, self.cache.name)
        return min(_seconds_of_first_call(system, self.cache.name) for _ in range(few(3)))
