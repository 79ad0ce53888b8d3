"""Tests of the first call of each system: no compilation, and Numba compiles once per environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Run by a new interpreter.  Site-packages cannot be written to, as in an image or under another user: Numba then keeps
# its cache in the user's folder. It prints the compiled functions of each system.
CODE = """if True:
    import json
    import os
    from numba.core import event
    from numba.core.caching import _CacheLocator
    from fastfedrec import Key
    from support.gru_case import Case
    from support.data import rated
    from support.models import MODELS

    make_folder = _CacheLocator.ensure_cache_path

    def make_folder_at_home(self):
        if not self.get_cache_path().startswith(os.environ["HOME"]):
            raise PermissionError("read-only")
        make_folder(self)

    class Compiled(event.Listener):
        def on_start(self, event):
            names.append(event.data["dispatcher"].py_func.__qualname__)

        def on_end(self, event):
            pass

    _CacheLocator.ensure_cache_path = make_folder_at_home
    event.register("numba:compile", Compiled())
    compiled = {}
    for name, model in MODELS.items():
        names = compiled.setdefault(name, [])
        data = rated(80, 50, 1)
        model.fit(data, key=Key.from_seed(2)).recommend(data.user_ids[:1], n=3)
    names = compiled.setdefault("GRUEncoder", [])
    case = Case(n_clients=1)
    case.train()
    case.encoder.encode_sequences(case.parameters, [0], [0, 1])
    print(json.dumps(compiled))
    """


def compiled_by_each_system(home):
    unset = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = unset | {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-P", "-c", CODE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def contents(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.nightly
def test_no_function_compiles_in_a_second_process_and_no_system_in_any(tmp_path):
    first = compiled_by_each_system(tmp_path)
    cached = contents(tmp_path)
    assert [name for name, names in first.items() if names] == ["GRUEncoder"]
    assert cached
    second = compiled_by_each_system(tmp_path)
    assert second == {name: [] for name in first}
    assert contents(tmp_path) == cached
