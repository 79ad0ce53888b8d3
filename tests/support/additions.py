"""Additions to the package by the steps of CONTRIBUTING.md: a system, an event, a mechanism, a loader and a metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Addition:
    """New files by path, and lines of existing files: the path, the text that follows the line, and the line."""

    files: Mapping[str, str]
    lines: Sequence[tuple[str, str, str]]

    @property
    def paths(self):
        return {*self.files, *(path for path, *_ in self.lines)}


REFERENCE = "docs/reference/index.md"

# ---- a system --------------------------------------------------------------------------------------------------------

NAMES = "fastfedrec/core/names.py"
SYSTEM = Addition(
    {
        "fastfedrec/systems/toy/__init__.py": '"""Items by their least value."""\n\n__all__: list[str] = []\n',
        "fastfedrec/systems/toy/model.py": '''"""A toy: every user is recommended the items that came first."""

from dataclasses import dataclass

import numpy as np

from fastfedrec.accounting import Unprotected
from fastfedrec.core.memory import Array, Arrays, Sizes
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

    order_: np.ndarray

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self.ledger_.record(Unprotected("the number of items"))
        self.order_ = -np.arange(data.n_items, dtype=np.float64)

    def _memory(self, sizes: Sizes) -> list[Arrays]:
        return [{"order_": Array.of("float64", sizes.n_items)}]

    def _saved_rules(self):
        return rules_of(np.float64, order_=(self.interactions_.n_items,))
''',
        "tests/systems/toy/case.py": '''"""The case of the toy."""

from support.system_case import SystemCase

from fastfedrec import Toy

SHAPES = {"few items": (Toy(), (20, 1000, 20)), "many items": (Toy(), (20, 9_000_000, 20))}
CASES = (SystemCase(small={"": Toy()}, memory=SHAPES),)
''',
        "tests/systems/toy/test_model.py": '''"""The toy."""

from fastfedrec import Interactions, Toy


def test_the_first_item_is_the_best():
    data = Interactions.from_arrays([1, 1, 2], [10, 30, 20])
    assert Toy().fit(data).recommend([2], n=1)[0].tolist() == [[10]]
''',
        "docs/explanation/systems/toy/toy.md": "# A toy\n\n`Toy`: items in the order in which they are listed.\n",
    },
    [
        (NAMES, '    "random": ', '    "toy": "systems.toy.model.Toy",\n'),
        (REFERENCE, "   fastfedrec.systems.dplcf\n", "   fastfedrec.systems.toy.model\n"),
    ],
)
USE_SYSTEM = """
import fastfedrec
from fastfedrec.systems.registry import SYSTEMS, make_system
data = fastfedrec.Interactions.from_arrays([1, 1, 2], [10, 30, 20])
assert SYSTEMS["toy"] == "Toy" and "Toy" in fastfedrec.__all__
model = make_system("toy", {}).fit(data)
model.save("model.npz")
assert fastfedrec.load("model.npz").recommend([2], n=1)[0].tolist() == [[10]]
assert type(model) is fastfedrec.Toy
"""

# ---- an event --------------------------------------------------------------------------------------------------------

EVENTS = "fastfedrec/accounting/events/__init__.py"
EVENT = Addition(
    {
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
    },
    [
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
    ],
)
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

# ---- a mechanism -----------------------------------------------------------------------------------------------------

CHANNELS = "fastfedrec/mechanisms/channels"
INIT = "fastfedrec/mechanisms/__init__.py"
ROWS = "docs/how-to/audit.md"
ROW = "| `lazy-sign` | epsilon 1 | 0.96 | consistent | twice the epsilon | 1.92 | violated |\n"
IMPORT = "from fastfedrec.mechanisms.channels.lazy_sign import LazySign\n"
EXAMPLE = "    _example = {}, (0, 1)\n"
MECHANISM = Addition(
    {
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
        "docs/explanation/mechanisms/channels/lazy-sign.md": "# Lazy sign\n\n`LazySign` reports half of all signs.\n",
    },
    [
        (INIT, "from fastfedrec.mechanisms.channels.piecewise ", IMPORT),
        (INIT, '    "MixtureLaplaceRR",\n', '    "LazySign",\n'),
        (REFERENCE, "   fastfedrec.mechanisms.ratings.optimal_kary\n", "   fastfedrec.mechanisms.channels.lazy_sign\n"),
        (ROWS, "\n`fastfedrec audit all", ROW),
    ],
)

# ---- a loader --------------------------------------------------------------------------------------------------------

DATASETS = "fastfedrec/datasets/__init__.py"
LOADING = "docs/how-to/load-data.md"
LOADER = Addition(
    {
        "fastfedrec/datasets/lastfm.py": '''"""Loader of Last.fm 360K: plays of artists by users."""

import os

import numpy as np

from fastfedrec.core.arrays import Column
from fastfedrec.core.files import check_path
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets._fields import Field, Kind
from fastfedrec.datasets.columns import ColumnReader

__all__ = ["load_lastfm"]

_FIELDS = (
    Field("user", Kind.TEXT, "a word"),
    Field("artist id", Kind.SKIP, "any text"),
    Field("artist", Kind.TEXT, "a word"),
    Field("plays", Kind.WHOLE, "a whole number", low=0),
)


def load_lastfm(
    path: str | os.PathLike[str], *, item_ids: Column | None = None, unlisted: str = "error"
) -> Interactions:
    """Load the plays of Last.fm 360K.

    Parameters
    ----------
    path : str or path-like
        Path of ``usersha1-artmbid-artname-plays.tsv`` (tab separated, 4 columns, no header).
    item_ids : array_like or None
        Complete catalogue, see `Interactions.from_arrays`; None lists the artists of the file.
    unlisted : {"error", "drop"}
        Treatment of a row with an artist that is not in the catalogue.

    Returns
    -------
    Interactions
        Interactions with plays as values; an item is the name of an artist.

    Raises
    ------
    FileNotFoundError
        A missing file.
    ValueError
        A malformed file.  The message names the file, the line and the reason.

    Examples
    --------
    >>> from fastfedrec.datasets import load_lastfm
    >>> load_lastfm("usersha1-artmbid-artname-plays.tsv")  # doctest: +SKIP
    """
    path = check_path("path", path)
    reader = ColumnReader(_FIELDS, "\\t")
    with open(path, "rb") as stream:
        reader.read(stream, str(path))
    users, artists, plays = reader.columns()
    texts = [np.array(column.ids, dtype=np.str_)[column.numbers] for column in (users, artists)]
    return Interactions.from_arrays(*texts, plays, item_ids=item_ids, unlisted=unlisted, duplicates="sum")
''',
        "tests/naive/datasets/lastfm.py": '''"""Twin of the Last.fm reader: one line at a time."""

from collections import Counter


def read_plays(text):
    """Return the plays of each pair of a user and an artist."""
    plays = Counter()
    for line in text.splitlines():
        user, _, artist, n = line.split("\\t")
        plays[user, artist] += int(n)
    return plays
''',
        "tests/datasets/test_lastfm.py": '''"""The Last.fm reader, against a twin that reads line by line."""

import numpy as np
import pytest
from naive.datasets import lastfm as naive

from fastfedrec.datasets import load_lastfm

LINES = "ann\\tid\\tabba\\t3\\nbob\\t\\tbeck\\t1\\nann\\t\\tbeck\\t2\\nann\\t\\tbeck\\t4\\n"


def test_equals_the_twin(tmp_path):
    (tmp_path / "plays.tsv").write_text(LINES)
    data = load_lastfm(tmp_path / "plays.tsv")
    plays = data.to_scipy().toarray()
    pairs = {(data.user_ids[u], data.item_ids[i]): plays[u, i] for u, i in np.argwhere(plays > 0)}
    assert pairs == naive.read_plays(LINES)


def test_a_malformed_line(tmp_path):
    (tmp_path / "plays.tsv").write_text(LINES + "bob\\t\\tabba\\tmany\\n")
    with pytest.raises(ValueError, match=r"plays\\.tsv, line 5: plays must be a whole number, got 'many'"):
        load_lastfm(tmp_path / "plays.tsv")
''',
    },
    [
        (DATASETS, "from fastfedrec.datasets.movielens ", "from fastfedrec.datasets.lastfm import load_lastfm\n"),
        (DATASETS, '    "load_movielens",\n', '    "load_lastfm",\n'),
        (REFERENCE, "   fastfedrec.datasets.tables\n", "   fastfedrec.datasets.lastfm\n"),
        (LOADING, "## Any CSV", "## Last.fm\n\n`load_lastfm` reads the plays of Last.fm 360K.\n\n"),
    ],
)

# ---- a metric --------------------------------------------------------------------------------------------------------

KINDS = "fastfedrec/evaluation/metrics/names.py"
FORMULAS = "fastfedrec/evaluation/metrics/set_metrics.py"
TWINS = "tests/naive/evaluation/metrics/set_metrics.py"
METRICS = "docs/explanation/evaluation/metrics.md"
FORMULA = """def _rprecision(groups: _Groups, cutoff: int) -> np.ndarray:
    # Each user's cut-off is the number of the user's test items.
    within = np.clip(groups.n_relevant[groups.users] - groups.above, 0, groups.same)
    return groups.add_up(groups.relevant * within / groups.same) / groups.n_relevant


"""
TWIN = """    if kind == "rprecision":
        return sum(item in relevant for item in ranked[: len(relevant)]) / len(relevant)
"""
METRIC = Addition(
    {},
    [
        (KINDS, '    "auc": _Kind', '    "rprecision": _Kind("none"),\n'),
        (KINDS, "``mpr``, the mean", "``rprecision``; "),
        (FORMULAS, "def _auc(", FORMULA),
        (FORMULAS, '    "mrr": _mrr,\n', '    "rprecision": _rprecision,\n'),
        (TWINS, "    ranks = [rank for rank, item in enumerate(ranked, 1) if item in relevant]\n", TWIN),
        (METRICS, "| `auc` |", "| `rprecision` | $\\frac{1}{R}\\sum_{p \\le R}\\mathrm{rel}(p)$ | trec_eval |\n"),
    ],
)
USE_METRIC = """
from fastfedrec import Interactions, Popularity
from fastfedrec.evaluation import evaluate
train = Interactions.from_arrays([1, 2, 2, 3, 3, 3], [10, 10, 11, 10, 11, 12], item_ids=[10, 11, 12, 13])
test = Interactions.from_arrays([1, 1], [11, 13])
assert evaluate(Popularity().fit(train), train, test, metrics=["RPrecision"])["RPrecision"] == 0.5
"""
