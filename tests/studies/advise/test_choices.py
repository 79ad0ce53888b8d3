"""The map of the choice's regret: its cells, its choices, and its resumption from stored runs."""

import itertools
import json
import math
import statistics
from pathlib import Path

import pytest

from fastfedrec import Key
from fastfedrec.cli.main import main
from fastfedrec.datasets.generate import PRESET_NAMES, generate_implicit
from fastfedrec.studies.advise import choices, grid
from fastfedrec.studies.advise.choices import BEHIND, FULL, METRIC, METRICS, MOVIES, best_of, choose_again, summary_of
from fastfedrec.studies.sweep import runs
from fastfedrec.studies.sweep.sweeps import GeneratedData

DOCS = Path(__file__).resolve().parents[3] / "docs"
VIEWS = ("local", "shuffle", "central")
PRESET = "movielens-20m"


@pytest.fixture
def small(monkeypatch):
    """One data set, on which a fit takes a moment."""
    monkeypatch.setattr(choices, "QUICK", choices.Grid((6.0,), 1, {"small": choices._thinned(150, 320, 12.0)}))


def test_the_map_has_all_kinds_of_data_and_none_of_the_sweeps():
    assert FULL.n_seeds == 3
    presets = {data.preset for data in FULL.data().values()}
    assert presets == set(PRESET_NAMES) - {GeneratedData(100, 100).preset}
    movies = generate_implicit(300, 1_200, key=Key.from_seed(1))
    assert FULL.data(movies)["movies"].n_items == 1_000
    assert FULL.n_cells(movies) == FULL.n_cells() + 3 * len(FULL.epsilons)
    for data in FULL.data().values():
        if data.preset == "movielens-20m":
            assert data.row_length >= 60  # rows that are thinned to a few items carry too little information
            assert (data.n_users, data.n_items, data.row_length) not in itertools.product(
                grid.USERS, grid.ITEMS, grid.ROW_LENGTHS
            )


def test_rows_are_shortened_and_no_person_or_item_is_lost():
    whole, thinned = (GeneratedData(400, 320, n, PRESET, n / 120).draw(Key.from_seed(1), 1) for n in (120.0, 12.0))
    assert whole.shape == thinned.shape == (400, 320)
    assert 100 < whole.n_interactions / 400 < 140
    assert thinned.n_interactions / whole.n_interactions == pytest.approx(0.1, abs=5 * math.sqrt(0.09 / 48_000))
    assert not (thinned.to_scipy() > whole.to_scipy()).nnz


def test_people_who_take_no_part_are_tested():
    data = GeneratedData(50, 320, 12.0, PRESET, 0.1, n_held_out=30)
    key = Key.from_seed(1)
    whole, split = data.draw(key, 1), data.split(key, 1)
    assert "tested on 30 others" in str(data)
    assert not (split.train.to_scipy() != whole.to_scipy()[:50]).nnz
    assert split.train.user_ids.tolist() == whole.user_ids[:50].tolist()
    held_out_rows = whole.to_scipy()[50:]
    assert not (split.given.to_scipy() + split.test.to_scipy() != held_out_rows).nnz
    assert (split.test.interactions_per_user() == (held_out_rows.getnnz(axis=1) > 1)).all()
    known = GeneratedData(50, 320, 12.0, PRESET, 0.1).split(key, 1)
    assert known.given is None
    assert known.train.n_users == known.test.n_users == 50


@pytest.mark.slow
def test_the_map_is_made_by_the_command_and_goes_on_where_it_was(tmp_path, small, monkeypatch, capsys):
    argv = ["sweep", "--choices", "--quick", "--out", str(tmp_path), "--threads", "1"]
    assert main(argv) == 0
    said = capsys.readouterr().out
    made = json.loads((tmp_path / "choices.json").read_text())
    assert made["failures"] == []
    assert [cell["trust"] for cell in made["cells"]] == list(VIEWS)
    assert made["n_cells"] == 3
    for cell in made["cells"]:
        assert {"Random", "DPPopularity"} <= cell["systems"].keys()
        means = means_of(cell)
        assert best_of(cell) == max(means, key=means.get)
        check_behind(cell)
    assert "3 of 3 cells" in said
    # The choice is computed again from the stored figures.
    argv_again = ["sweep", "--choices", str(tmp_path / "choices.json"), "--out", str(tmp_path / "again")]
    assert main(argv_again) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == said.splitlines()[:-1]
    assert (tmp_path / "again" / "choices.json").read_text() == (tmp_path / "choices.json").read_text()

    def run_again(*_):
        raise AssertionError("it was measured before")

    monkeypatch.setattr(runs, "_measure", run_again)
    (tmp_path / "choices.json").unlink()
    assert main(argv) == 0
    assert json.loads((tmp_path / "choices.json").read_text()) == made


def test_the_summary_names_cells_that_are_too_far_behind():
    def cell(chosen, behind):
        choice = {"system": chosen, "behind": behind and dict.fromkeys(METRICS, behind)}
        return {
            "data": "made up", "n_users": 1_000, "n_items": 300, "epsilon": 1.0, "trust": "central",
            "systems": {"DPGram": {METRIC: [0.3, 0.2]}, "DPFMF": {METRIC: [0.2, 0.2]}},
            "choice": choice,
        }  # fmt: skip

    document = {
        "source": "made up",
        "n_cells": 9,
        "cells": [cell("DPFMF", 0.031), cell("DPGram", 0.001), cell("X", None)],
    }
    said = summary_of(document)
    assert "3 of 9 cells" in said
    assert said.count("at most 0.031 behind the best, more than 0.02 in 1 of 2 cells") == 1
    assert said.count("in 1 the chosen system was not measured") == 1
    assert said.count("DPFMF") == 1
    assert "more than" not in summary_of({**document, "cells": []}).splitlines()[0]


# ---- the map that is stored ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    return json.loads((DOCS / "reproductions" / "private-recommender-map.json").read_text())


def means_of(cell, metric=METRIC):
    return {system: statistics.fmean(values[metric]) for system, values in cell["systems"].items()}


def check_behind(cell):
    for metric in METRICS:
        means = means_of(cell, metric)
        expected = max(means.values()) - means[cell["choice"]["system"]]
        assert cell["choice"]["behind"][metric] == pytest.approx(expected, abs=1e-4)


def test_the_stored_map_has_all_cells(stored):
    expected = {*itertools.product(VIEWS, FULL.epsilons, [*FULL.generated, MOVIES])}
    assert {(cell["trust"], cell["epsilon"], cell["data"]) for cell in stored["cells"]} == expected
    assert len(stored["cells"]) == stored["n_cells"] == len(expected)
    for cell in stored["cells"]:
        assert all(len(values[metric]) == FULL.n_seeds for values in cell["systems"].values() for metric in METRICS)
        check_behind(cell)


def far_behind(cells):
    """Return the cells in which the choice is far behind the best system, or clearly worse than popularity."""
    far = []
    for cell in cells:
        means, chosen = means_of(cell), cell["choice"]["system"]
        is_worse = cell["trust"] == "central" and means[chosen] < means["DPPopularity"] - 0.01
        if is_worse or cell["choice"]["behind"][METRIC] > BEHIND:
            far.append((cell["trust"], cell["data"], cell["epsilon"]))
    return far


def test_no_stored_choice_is_far_behind(stored):
    assert far_behind(stored["cells"]) == []
    # The control: popularity of check-ins with a trusted server.
    cell = next(one for one in stored["cells"] if (one["trust"], one["data"]) == ("central", "check-ins"))
    behind = max(means_of(cell).values()) - means_of(cell)["DPPopularity"]
    popular = cell | {"choice": {"system": "DPPopularity", "behind": {METRIC: behind}}}
    assert far_behind([popular]) == [("central", "check-ins", cell["epsilon"])]


def test_the_page_shows_the_stored_map(stored):
    page = (DOCS / "explanation" / "systems" / "private_recommender" / "private-recommender.md").read_text()
    for trust in VIEWS:
        cells = [cell for cell in stored["cells"] if cell["trust"] == trust]
        behind = [f"{max(cell['choice']['behind'][metric] for cell in cells):.3f}" for metric in METRICS]
        over = [means_of(cell)[cell["choice"]["system"]] - means_of(cell)["DPPopularity"] for cell in cells]
        figures = f"{' | '.join(behind)} | {min(over):+.3f} to {max(over):+.3f} |"
        assert f'| `"{trust}"` | {len(cells)} | {figures.replace("0.", ".")}' in page


def test_stored_choices_are_those_of_today_with_a_trusted_server(stored):
    cells = [cell for cell in stored["cells"] if cell["trust"] == "central"]
    assert all(choices._choice(cell) == cell["choice"] for cell in cells)


@pytest.mark.nightly
def test_stored_choices_are_those_of_today(stored):
    path = DOCS / "reproductions" / "private-recommender-map.json"
    assert choose_again(path) == stored


@pytest.mark.parametrize(
    "argv",
    [
        ["--choices", "--system", "dp-gram"],
        ["--users", "9", "--items", "40", "--quick"],
        ["--users", "9", "--items", "40", "--movies", "ml-1m.zip"],
    ],
)
def test_what_does_not_go_together_is_refused(argv, capsys):
    assert main(["sweep", *argv]) == 2
    assert "--choices" in capsys.readouterr().err
