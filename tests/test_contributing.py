"""Tests of the steps for a new system or event (CONTRIBUTING), and a new mechanism: few files suffice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastfedrec
from fastfedrec import _kernels

ROOT = Path(__file__).resolve().parents[1]
NAMES = "fastfedrec/core/names.py"
REFERENCE = "docs/reference/index.md"
LINE = '    "toy": "systems.toy.model.Toy",\n'
EVERY_MODEL = (
    "tests/systems/test_recommender.py::test_every_model_is_here_and_has_a_name_for_the_command_line_and_for_load"
)
NEW = {
    "fastfedrec/systems/toy/__init__.py": '"""Items by their least value."""\n\n__all__: list[str] = []\n',
    "fastfedrec/systems/toy/model.py": '''"""A toy: every user is recommended the items that came first."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastfedrec.accounting import Unprotected
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import Served
from fastfedrec.systems.baselines.popularity import Baseline

__all__ = ["Toy"]


@dataclass(frozen=True, eq=False, repr=False)
class _ToyScores(Served):
    """The order of the items."""

    order_: np.ndarray

    def score_block(self, users: np.ndarray) -> np.ndarray:
        return np.tile(self.order_, (len(users), 1))


class Toy(Baseline):
    """Items in the order in which they are listed.

    **Guarantee.** None: the ledger says so.
    """

    _serves = _ToyScores
    _saved: ClassVar[tuple[str, ...]] = ("order_",)

    order_: np.ndarray

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self.ledger_.record(Unprotected("the number of items"))
        self.order_ = -np.arange(data.n_items, dtype=np.float64)

    def _saved_rules(self):
        return rules_of(np.float64, order_=(self.interactions_.n_items,))
''',
    "tests/systems/toy/case.py": '''"""The case of the toy."""

from support.system_case import SystemCase

from fastfedrec import Toy

CASES = (SystemCase(small={"": Toy()}),)
''',
    "tests/systems/toy/test_model.py": '''"""The toy."""

from fastfedrec import Interactions, Toy


def test_the_first_item_is_the_best():
    data = Interactions.from_arrays([1, 1, 2], [10, 30, 20])
    assert Toy().fit(data).recommend([2], n=1)[0].tolist() == [[10]]
''',
    "docs/explanation/systems/toy/toy.md": "# A toy\n\n`Toy`: items in the order in which they are listed.\n",
}
CHOSEN = "mirror or has_a_page or on_a_page or layer or short or numpydoc_toy or first or every_model or lists_what"
CHANNELS = "fastfedrec/mechanisms/channels"
INIT = "fastfedrec/mechanisms/__init__.py"
ROWS = "docs/how-to/audit.md"
ROW = "| `lazy-sign` | epsilon 1 | 0.96 | consistent | twice the epsilon | 1.92 | violated |\n"
IMPORT = "from fastfedrec.mechanisms.channels.lazy_sign import LazySign\n"
#: Lines of a new mechanism in existing files, each with the line that it precedes.
MECHANISM_LINES = [
    (INIT, "from fastfedrec.mechanisms.channels.piecewise ", IMPORT),
    (INIT, '    "MixtureLaplaceRR",\n', '    "LazySign",\n'),
    (REFERENCE, "   fastfedrec.mechanisms.ratings.optimal_kary\n", "   fastfedrec.mechanisms.channels.lazy_sign\n"),
    (ROWS, "\n`fastfedrec audit all", ROW),
]
EXAMPLE = "    _example = {}, (0, 1)\n"
MECHANISM = {
    f"{CHANNELS}/lazy_sign.py": f'''"""The sign of a number, or 0."""

from fractions import Fraction

from fastfedrec.core.check import check_epsilon
from fastfedrec.mechanisms.channels.channel import TOTAL, Channel, exp_lower

__all__ = ["LazySign"]


class LazySign(Channel):
    """Report a sign half of the time, and 0 otherwise.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: the two signs are neighbours
    ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.
    """

    _purpose = "lazy_sign.privatize"
{EXAMPLE}
    def __init__(self, nominal_epsilon: float):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        silent = TOTAL // 2
        bound = exp_lower(self.nominal_epsilon)
        likely = int((TOTAL - silent) * bound / (1 + bound))  # down: toward privacy
        rare = TOTAL - silent - likely
        if likely <= rare:
            raise ValueError(f"nominal_epsilon is too small for 64 bits, got {{nominal_epsilon}}; use a larger one")
        answer = Fraction(TOTAL, likely - rare)  # a report's mean is its input
        table = [[likely, silent, rare], [rare, silent, likely]]
        super().__init__(table, inputs=[1, -1], outputs=[answer, 0, -answer])
''',
    "tests/mechanisms/channels/test_lazy_sign.py": '''"""The lazy sign."""

from fastfedrec.mechanisms import LazySign


def test_a_report_is_unbiased():
    assert [LazySign(1.0).mean(x) for x in (0, 1)] == [1, -1]
''',
    "tests/mutants/mechanisms/lazy_sign.py": '''"""Mutants of the lazy sign."""

from mutants.patch import on

MUTANTS = [
    on("LazySign.__init__", "test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one")(
        "lazy-sign-too-sure", "the epsilon of LazySign is doubled", "exp_lower(self.nominal_epsilon)",
        "exp_lower(2 * self.nominal_epsilon)",
    ),
]  # fmt: skip
''',
    "docs/explanation/mechanisms/channels/lazy-sign.md": "# Lazy sign\n\n`LazySign` reports a sign half of the time.\n",
}
USE = """
import fastfedrec
from fastfedrec.systems.registry import SYSTEMS, make_system
data = fastfedrec.Interactions.from_arrays([1, 1, 2], [10, 30, 20])
assert SYSTEMS["toy"] == "Toy" and "Toy" in fastfedrec.__all__
model = make_system("toy", {}).fit(data)
model.save("model.npz")
assert fastfedrec.load("model.npz").recommend([2], n=1)[0].tolist() == [[10]]
assert type(model) is fastfedrec.Toy
"""

EVENTS = "fastfedrec/accounting/events/__init__.py"
EVENT = {
    "fastfedrec/accounting/events/_staircase.py": '''"""Staircase noise on one number."""

from dataclasses import dataclass, replace

from fastfedrec.accounting.events._central import CentralEvent, described
from fastfedrec.accounting.events._event import Event, store
from fastfedrec.core.check import check_epsilon


@described
@dataclass(frozen=True)
class Staircase(CentralEvent):
    """One number with staircase noise, released by a trusted server.

    Parameters
    ----------
    epsilon : float
        Epsilon of one release, in nats, before any sampling.
    mechanism : str
        Name, for the ledger.
    """

    epsilon: float
    mechanism: str = "staircase noise"

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, epsilon=check_epsilon("epsilon", self.epsilon))

    def _pure_cost(self) -> tuple[float, int] | None:
        return self._amplified(self.epsilon), self.count

    def _for_replacement(self) -> Event | None:
        # Two steps, by way of the data without the user.
        both = 2 * self._amplified(self.epsilon)
        return replace(self, neighboring="replace", sampling="none", sampling_probability=None, epsilon=both)
'''
}
EVENT_LINES = [
    (
        EVENTS,
        "from fastfedrec.accounting.events._unprotected",
        "from fastfedrec.accounting.events._staircase import Staircase\n",
    ),
    (EVENTS, '    "Unprotected",\n', '    "Staircase",\n'),
    ("fastfedrec/accounting/__init__.py", "    Unprotected,\n", "    Staircase,\n"),
    ("fastfedrec/accounting/__init__.py", '    "Unprotected",\n', '    "Staircase",\n'),
    ("tests/support/events.py", "    Unprotected,\n", "    Staircase,\n"),
    ("tests/support/events.py", '    Unprotected("m"),\n', '    Staircase(0.5, "m", **POISSON, **OF_ENTITY),\n'),
    ("tests/support/events.py", '    Unprotected("m"),\n', '    Staircase(0.5, "m", **FIXED),\n'),
]
USE_EVENT = """
from fastfedrec.accounting import Gaussian, Ledger, PLDAccountant, RDPAccountant, Staircase, ZCDPAccountant
ledger = Ledger()
ledger.record(Staircase(0.25, neighboring="zero_out", sampling="none", count=2))
assert ledger.epsilon("public", delta=0) == 1.0 and ledger.epsilon("server") == float("inf")
assert Ledger.from_json(ledger.to_json()).events == ledger.events
assert "the noise of a trusted server" in ledger.summary()
step = Staircase(0.1, neighboring="replace", sampling="none")
costs = [kind().compose(step, 100).get_epsilon(1e-6) for kind in (PLDAccountant, RDPAccountant, ZCDPAccountant)]
assert 1 < costs[0] <= min(costs) < 10
"""


@pytest.fixture
def tree(tmp_path):
    """A copy of the checkout's files that the tests of the tree read, and of the package as it is installed."""
    ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    for folder in ("tests", "fastfedrec", "_kernels", "benches", "docs/reference", "docs/explanation", "docs/how-to"):
        shutil.copytree(ROOT / folder, tmp_path / "tree" / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "tree")
    (tmp_path / "site").mkdir()
    shutil.copytree(Path(fastfedrec.__file__).parent, tmp_path / "site/fastfedrec", ignore=ignored)
    if not (tmp_path / "site/fastfedrec/_kernels").exists():  # an editable installation has kernels in another folder
        shutil.copytree(_kernels.__path__[0], tmp_path / "site/fastfedrec/_kernels", ignore=ignored)
    return tmp_path


def run(tree, *command):
    environment = os.environ | {"PYTHONPATH": str(tree / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-P", *command],
        cwd=tree / "tree",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def check(tree, *more, chosen=CHOSEN):
    """The tests of the tree."""
    tests = ["tests/test_api.py", "tests/test_layers.py", "tests/test_conventions.py", EVERY_MODEL, *more]
    return run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *tests)


def write(tree, files):
    for name, text in files.items():
        for top in ("tree", "site") if name.startswith("fastfedrec/") else ("tree",):
            path = tree / top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def add_line(tree, name, before, line):
    text = (tree / "tree" / name).read_text()
    assert text.count(before) == 1
    write(tree, {name: text.replace(before, line + before)})


def add_toy(tree, *, line=True, page=True, without=()):
    write(tree, {name: text for name, text in NEW.items() if name not in without})
    if line:
        add_line(tree, NAMES, '    "random": ', LINE)
    if page:
        add_line(tree, REFERENCE, "   fastfedrec.systems.dplcf\n", "   fastfedrec.systems.toy.model\n")


def contents(tree):
    return {path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def touched_files(tree, before):
    """Return the files of the tree, below its two copies, that differ from earlier contents."""
    return {str(Path(*path.parts[1:])) for path, text in contents(tree).items() if before.get(path) != text}


def test_a_system_is_its_package_one_line_its_tests_and_its_page(tree):
    before = contents(tree)
    add_toy(tree)
    assert touched_files(tree, before) == {*NEW, NAMES, REFERENCE}
    used = run(tree, "-c", USE)
    assert used.returncode == 0, used.stderr
    checked = check(tree, "tests/systems/toy")
    assert checked.returncode == 0, checked.stdout
    (tree / "tree/model.npz").unlink()
    for name in NEW:
        for top in ("tree", "site"):
            (tree / top / name).unlink(missing_ok=True)
    for name in (NAMES, REFERENCE):
        for top in ("tree", "site"):
            if (path := tree / top / name).exists():
                text = path.read_text()
                for line in (LINE, "   fastfedrec.systems.toy.model\n"):
                    text = text.replace(line, "")
                path.write_text(text)
    assert contents(tree) == before
    checked = check(tree)
    assert checked.returncode == 0, checked.stdout


def test_without_its_line_a_system_is_not_known(tree):
    add_toy(tree, line=False)
    used = run(tree, "-c", USE)
    assert used.returncode == 1
    assert "toy" in used.stderr


@pytest.mark.parametrize(
    ("omitted", "named"),
    [
        ("page", "systems.toy.model"),
        ("explanation", "name them on a page of docs/explanation/systems/"),
        ("tests", "tests/systems/toy/test_model.py"),
        ("case", EVERY_MODEL),
    ],
)
def test_the_tests_of_the_tree_fail_if_a_step_is_omitted(tree, omitted, named):
    files = {
        "tests": "tests/systems/toy/test_model.py",
        "case": "tests/systems/toy/case.py",
        "explanation": "docs/explanation/systems/toy/toy.md",
    }
    without = [files[omitted]] if omitted in files else ()
    add_toy(tree, page=omitted != "page", without=without)
    checked = check(tree)
    assert checked.returncode == 1
    assert named in checked.stdout


def test_an_event_is_its_file_its_exports_and_a_sample(tree):
    before = contents(tree)
    write(tree, EVENT)
    for name, following, line in EVENT_LINES:
        add_line(tree, name, following, line)
    touched = {str(Path(*path.parts[1:])) for path, text in contents(tree).items() if before.get(path) != text}
    assert touched == {*EVENT, *(name for name, *_ in EVENT_LINES)}
    used = run(tree, "-c", USE_EVENT)
    assert used.returncode == 0, used.stderr
    tests = "tests/accounting/test_ledger_document.py", "tests/core/test_numbers.py"
    checked = check(tree, *tests, chosen="Staircase or has_a_page or no_field or every_public_module or takes_a")
    assert checked.returncode == 0, checked.stdout


def add_mechanism(tree, *, without=()):
    write(tree, {name: text for name, text in MECHANISM.items() if name not in without})
    for name, before, line in MECHANISM_LINES:
        if name not in without:
            add_line(tree, name, before, line)


#: Tests that find a mechanism by its class, or that look for it in a list.
OF_MECHANISMS = [
    "test_api.py", "test_layers.py", "test_conventions.py", "test_mutants.py", "cli/test_audit.py",
    "mechanisms/test_mechanism_claims.py", "mechanisms/test_mechanism_numbers.py", "core/test_numbers.py",
    "core/test_immutable.py", "mechanisms/channels/test_lazy_sign.py",
]  # fmt: skip
LISTS = "mirror or a_page or test_layers or short or export or listed or audited or has_a_mutant or called"


def run_tests(tree, chosen, names):
    return run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *(f"tests/{name}" for name in names))


def test_a_mechanism_is_seven_files_and_only_three_of_them_exist(tree):
    before = contents(tree)
    add_mechanism(tree)
    touched = touched_files(tree, before)
    assert touched == {*MECHANISM, INIT, REFERENCE, ROWS}
    assert len(touched) == 7
    checked = run_tests(tree, f"{LISTS} or LazySign or lazy or walked", OF_MECHANISMS)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("omitted", "test", "named"),
    [
        (INIT, "test_conventions.py", "export it by mechanisms/__init__.py"),
        (ROWS, "cli/test_audit.py", "the rows of audit.md are those of CASES"),
        ("tests/mutants/mechanisms/lazy_sign.py", "test_mutants.py", "each has a mutant in tests/mutants/mechanisms/"),
        ("_example", "mechanisms/test_mechanism_claims.py", "each has an `_example`"),
    ],
)
def test_the_tests_of_the_tree_name_a_step_for_a_mechanism_that_is_omitted(tree, omitted, test, named):
    add_mechanism(tree, without=[omitted])
    if omitted == "_example":
        name = f"{CHANNELS}/lazy_sign.py"
        write(tree, {name: MECHANISM[name].replace(EXAMPLE, "")})
    checked = run_tests(tree, "export or is_listed or audited or has_a_mutant", [test])
    assert checked.returncode == 1
    assert named in checked.stdout
