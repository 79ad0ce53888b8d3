"""Starting up: what importing the package costs beyond NumPy, and what looking around costs."""

import subprocess
import sys

from fastfedrec import doctor

# (timed, before it); each is run in a new interpreter.
STARTS = {
    "numpy": ("import numpy", "pass"),
    "fastfedrec beyond numpy": ("import fastfedrec", "import numpy"),
    "fastfedrec.systems.fmf_ldp beyond numpy": ("import fastfedrec.systems.fmf_ldp", "import numpy"),
    "all of fastfedrec beyond numpy": (
        "import fastfedrec; [getattr(fastfedrec, name) for name in fastfedrec.__all__]",
        "import numpy",
    ),
    "scipy.sparse beyond numpy": ("import scipy.sparse", "import numpy"),
}


class Import:
    param_names = ("impl",)
    params = (list(STARTS),)

    def setup(self, impl):
        statement, before = STARTS[impl]
        module = statement.split()[1].rstrip(";")
        code = f"{before}; import sys; print({module!r} in sys.modules); {statement}; print({module!r} in sys.modules)"
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
        assert printed.split() == ["False", "True"]

    def timeraw_import(self, impl):
        return STARTS[impl]


class Doctor:
    def time_report(self):
        doctor.report()
