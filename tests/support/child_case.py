"""A separate Python process, for code that must not run in the process of the tests."""

import os
import subprocess
import sys

from support.patience import HANG


def run_python(code, **environment):
    """Return the output of `code`, run with the tests' helpers, which must neither warn nor hang."""
    environment = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(__file__))} | environment
    command = [sys.executable, "-P", "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return done.stdout
