"""Advice: the events that a fit will record, settings within a budget, and figures of sweeps made by hand."""

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.cli.main import main
from fastfedrec.studies.advise import grid as grid_module
from fastfedrec.systems.private_recommender._measured import stored_sweeps
from fastfedrec.systems.private_recommender._rule import SELF_DECIDING, reason_of
from fastfedrec.systems.private_recommender.choice import advise
from fastfedrec.systems.private_recommender.recipes import POPULARITY, RECIPES, calibrated, plan_run
from fastfedrec.systems.registry import make_system

MEASURED, HONEST = ("local", "shuffle", "central"), {"aggregator": ["--honest-fraction", "0.7"]}


def row(n_users, n_items, target, system, hr, *, trust="central", row_length=30.0, n_tested=10_000):
    return {
        "n_users": n_users, "n_items": n_items, "row_length": row_length, "system": system, "trust": trust,
        "target": target, "epsilon": target, "parameters": {}, "metrics": {"hr@10": [hr]}, "n_tested": n_tested,
        "bytes_per_client": None, "seconds": 1.0, "is_popularity": system == POPULARITY,
    }  # fmt: skip


@pytest.fixture
def write(tmp_path):
    """Write a file of sweeps with these rows."""

    def write(*rows):
        path = tmp_path / "advice.json"
        header = {"source": "made up", "code": "0", "machine": "none", "n_threads": 1, "delta": 1e-6}
        path.write_text(json.dumps({**header, "rows": rows}))
        return path

    return write


def corner(n_users, target, gram, popularity, n_items=300):
    return [row(n_users, n_items, target, "DPGram", gram), row(n_users, n_items, target, POPULARITY, popularity)]


# ---- oracle: answers by hand -----------------------------------------------------------------------------------------


def test_the_figures_of_an_offer_are_from_one_cell(write):
    rows = [
        *corner(1_000, 1.0, 0.60, 0.50), *corner(10_000, 1.0, 0.70, 0.51), *corner(100_000, 1.0, 0.80, 0.52),
        *corner(10_000, 2.0, 0.90, 0.53), *corner(10_000, 1.0, 0.65, 0.40, n_items=1_000),
        *corner(100_000, 1.0, 0.95, 0.45, n_items=1_000), *corner(10_000, 1.0, 0.1, 0.1, n_items=3_000),
    ]  # fmt: skip
    advice = advise(20_000, 500, 1.5, "central", measured=write(*rows))
    gram, *other_offers = advice.offers
    assert {offer.system: offer.expected for offer in other_offers} == dict.fromkeys(("DPSubspace", "DPFMF", "DPALS"))
    # Of 300 and 1,000 items, 300 have the smaller difference; the cell is for at most the requested users and epsilon.
    assert gram.measured_at == "10,000 users x 300 items, rows of 30, epsilon 1"
    assert (gram.expected, gram.popularity, gram.n_measured) == (0.70, 0.51, 10_000)
    assert gram.gain == pytest.approx(0.70 - 0.51)
    assert gram.margin == pytest.approx(2 * (0.7 * 0.3 / 10_000 + 0.51 * 0.49 / 10_000) ** 0.5)
    assert advice.best is gram
    assert not advice.popularity_is_as_good
    assert advice.popularities[0].expected == 0.40
    text = advice.summary()
    assert f"Use DPGram, with the setting {gram.setting}" in text
    assert "for replacing all data of one user" in text
    assert "trust: central (the server is trusted with the data" in text
    assert json.loads(json.dumps(advice.to_dict()))["best"]["system"] == "DPGram"


def test_the_figures_of_a_line_agree_with_each_other(write):
    """The difference is that of the two figures in its line, and the line names their cell."""
    rows = [*corner(1_000, 1.0, 0.60, 0.50), *corner(10_000, 2.0, 0.70, 0.51, n_items=1_000)]
    text = advise(20_000, 500, 2.0, "central", measured=write(*rows)).summary()
    [line] = [line for line in text.splitlines() if line.startswith("DPGram ")]
    figures = re.search(r"(0\.\d{3}) +(0\.\d{3}) +\+(0\.\d{3}) \+- (0\.\d{3})  (.*?)  ", line)
    here, popularity, difference, _, cell = figures.groups()
    assert float(here) - float(popularity) == pytest.approx(float(difference), abs=1e-9)
    assert cell in (
        "1,000 users x 300 items, rows of 30, epsilon 1",
        "10,000 users x 1,000 items, rows of 30, epsilon 2",
    )


@pytest.mark.parametrize(("gram", "is_clear"), [(0.505, False), (0.53, True), (0.40, False)])
def test_without_a_clear_gain_the_rule_chooses(write, gram, is_clear):
    """A self-deciding system releases popularity itself, so that no figure has to choose it."""
    advice = advise(10_000, 300, 1.0, "central", measured=write(*corner(10_000, 1.0, gram, 0.50)))
    assert (advice.ruled is None) is is_clear
    assert advice.best.system == "DPGram"
    assert ("no private system is clearly better than popularity" in advice.reason) is not is_clear
    assert not advice.popularity_is_as_good


def test_pairs_are_not_judged_by_figures_of_popularity(write):
    # With 1,000 users popularity was released; with 4,000 users pairs are, which have no figures.
    only = row(1_000, 300, 4.0, "DPSubspace", 0.60) | {"is_popularity": True}
    measured = write(only, row(1_000, 300, 4.0, POPULARITY, 0.50), row(1_000, 300, 1.0, POPULARITY, 0.40))
    advice = advise(4_000, 300, 4.0, "central", measured=measured)
    why = "DPSubspace: nothing was measured at 300 items with so few users and so small an epsilon"
    assert why in advice.remarks
    assert next(offer for offer in advice.offers if offer.system == "DPSubspace").expected is None


def test_the_rule_answers_where_its_system_has_no_figures(write):
    """Figures of generated data do not choose against a self-deciding system, however good they are."""
    other_rows = [row(10_000, 300, 1.0, system, hr) for system, hr in (("DPFMF", 0.9), (POPULARITY, 0.5))]
    here = {"row_length": 30}
    ruled = advise(10_000, 300, 1.0, "central", measured=write(*other_rows), **here)
    assert (ruled.best.system, ruled.reason) == ("DPGram", reason_of(ruled.best, "central"))
    assert "DPGram: not measured for this version" in ruled.remarks
    assert [offer.system for offer in ruled.offers][:2] == ["DPGram", "DPFMF"]
    known = advise(
        10_000, 300, 1.0, "central", measured=write(*other_rows, row(10_000, 300, 1.0, "DPGram", 0.6)), **here
    )
    assert (known.best.system, known.ruled) == ("DPFMF", None)


def test_sweeps_that_come_with_the_package_never_choose_and_have_no_stale_rows():
    assert not {row["system"] for row in stored_sweeps()["rows"]} & set(SELF_DECIDING)
    for trust in MEASURED:
        advice = advise(10_000, 1_000, 1.0, trust, row_length=30)
        assert advice.is_measured  # other systems have figures
        assert advice.reason == reason_of(advice.best, trust)
        assert advice.best.system == {"central": "DPGram", "shuffle": "ShuffledGram"}.get(trust, POPULARITY)


@given(st.integers(1, 200_000), st.integers(1, 5_000), st.sampled_from([0.5, 1.0, 2.0, 4.0]))
@settings(deadline=None, max_examples=15)
def test_local_popularity_is_never_chosen_where_shuffled_messages_fit(n_users, n_items, epsilon):
    advice = advise(n_users, n_items, epsilon, "shuffle")
    gram = next(recipe for recipe in RECIPES if recipe.system == "ShuffledGram")
    fits = calibrated(gram, epsilon, 1e-6, n_users, n_items) is not None
    assert (advice.best.system == "ShuffledGram") is fits


@pytest.mark.parametrize("epsilon", [60.0, 100.0, 1000.0])
def test_a_budget_that_no_setting_can_spend_takes_a_setting_that_costs_less(epsilon):
    large, small = (advise(943, 500, budget, "central").best for budget in (epsilon, 30.0))
    assert large.system == small.system == "DPGram"
    assert 0.5 * small.epsilon < large.epsilon <= epsilon


def test_a_random_list_is_no_gain(write):
    # Popularity may be worse than a random list; a system that equals a random list has no gain.
    measured = write(*corner(10_000, 1.0, 0.1, 0.04))
    advice = advise(10_000, 300, 1.0, "central", measured=measured)
    assert advice.offers[0].gain == 0.0
    assert advice.ruled is advice.best
    assert "In its reference cell it is no better than items at random" in advice.summary()


def test_a_smaller_delta_reads_a_smaller_epsilon(write):
    measured = write(*corner(10_000, 0.5, 0.55, 0.50), *corner(10_000, 1.0, 0.70, 0.50))
    here, there = (advise(10_000, 300, 1.0, "central", delta=delta, measured=measured) for delta in (1e-6, 1e-9))
    assert here.offers[0].expected == 0.70
    assert there.offers[0].expected == 0.55  # its noise would have cost less than 1 at 1e-6
    assert there.offers[0].epsilon <= 1.0


def test_the_guarantee_for_misplaced_trust_and_ties_are_stated(write):
    other_rows = [row(10_000, 300, 1.0, system, hr) for system, hr in (("DPFMF", 0.595), ("DPALS", 0.55))]
    rows = [*corner(10_000, 1.0, 0.60, 0.50), *other_rows]
    central = advise(10_000, 300, 1.0, "central", row_length=30, measured=write(*rows))
    assert [offer.system for offer in central.offers] == ["DPGram", "DPFMF", "DPALS", "DPSubspace"]  # without figures
    assert "If the server is not trustworthy, users have no protection." in central.summary()
    assert "By these figures it is not clearly better than DPFMF.\n" in central.summary()
    shuffle = advise(5_000, 5_000, 2.0, "shuffle")
    assert math.isinf(shuffle.best.epsilon_alone)
    assert (
        "If the shuffler links messages to their senders, or discloses them, users have no protection."
        in shuffle.summary()
    )
    reports = next(offer for offer in shuffle.offers if offer.system == "FMFLDP")
    assert reports.epsilon_alone > 2.0
    only_reports = replace(shuffle, ruled=reports)
    cost = f"{reports.epsilon_alone:.1f}"
    assert f"links messages to their senders, the cost is epsilon {cost}" in only_reports.summary()


def test_measurements_with_fewer_users_are_stated(write):
    dense = row(1_000, 300, 1.0, "DPFMF", 0.6)
    hard = row(10_000, 300, 2.0, "DPALS", 0.6)
    measured = write(*corner(1_000, 1.0, 0.6, 0.49), *corner(10_000, 1.0, 0.7, 0.5), dense, hard)
    assert advise(20_000, 300, 1.0, "central", row_length=30, measured=measured).remarks == (
        "n_users 20,000 lies beyond what was measured; the figures are those of 10,000",
        "DPSubspace: not measured for this version",
        "DPFMF: measured with no more than 1,000 users; with yours it may do better",
        "DPALS: nothing was measured at 300 items with so few users and so small an epsilon",
    )


def test_settings_are_for_the_requested_users(write):
    rows = [row(1_000, 300, 2.0, system, hr, trust="shuffle") for system, hr in ((POPULARITY, 0.3), ("FMFLDP", 0.5))]
    fewer, more = (
        next(offer for offer in advice.offers if offer.system == "FMFLDP")
        for n in (2_000, 50_000)
        for advice in [advise(n, 300, 2.0, "shuffle", row_length=30, measured=write(*rows))]
    )
    assert fewer.parameters["n_reports"] < more.parameters["n_reports"]
    assert max(fewer.epsilon, more.epsilon) <= 2.0
    assert fewer.upload < more.upload


def test_without_the_length_of_rows_only_self_deciding_systems_have_figures(write):
    """Real short rows may have fewer unpopular items than generated ones."""
    rows = [*corner(10_000, 1.0, 0.55, 0.50), row(10_000, 300, 1.0, "DPFMF", 0.9)]
    given, not_given = (advise(10_000, 300, 1.0, "central", row_length=n, measured=write(*rows)) for n in (30.0, None))
    assert given.best.system == "DPFMF"
    assert not_given.best.system == "DPGram"
    assert "DPFMF: its figures depend on how long rows are; pass row_length" in not_given.remarks


@pytest.mark.parametrize(("n_items", "is_offered"), [(2_000, True), (2_001, False)])
def test_dpfmf_is_offered_up_to_200_million_cells(n_items, is_offered):
    advice = advise(100_000, n_items, 1.0, "central")
    assert ("DPFMF" in {offer.system for offer in advice.offers}) is is_offered
    assert ("DPFMF: a fit takes too long with so many users and items" in advice.remarks) is not is_offered


# ---- requests without figures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "remark"),
    [
        ({"n_users": 900}, "n_users 900 lies outside 1,000 to 10,000, where there are sweeps; run your own"),
        ({"n_items": 200}, "n_items 200 lies outside 300 to 300"),
        ({"n_items": 400}, "n_items 400 lies outside 300 to 300"),
        ({"epsilon": 0.5}, "epsilon 0.5 lies outside 1 to 2"),
    ],
)
def test_without_measurements_the_rule_chooses_and_states_no_figure(write, question, remark):
    measured = write(*corner(1_000, 1.0, 0.6, 0.5), *corner(10_000, 2.0, 0.7, 0.5))
    usual = {"n_users": 5_000, "n_items": 300, "epsilon": 1.5, "trust": "central", "measured": measured}
    other_systems = ("DPSubspace", "DPFMF", "DPALS")
    assert advise(**usual).remarks == tuple(f"{name}: not measured for this version" for name in other_systems)
    advice = advise(**(usual | question))
    assert advise(**usual).is_measured
    assert not advice.is_measured
    assert advice.reason == advice.remarks[0] == reason_of(advice.best, "central")
    assert advice.remarks[1].startswith(remark)
    offers = [offer for offer in (*advice.offers, *advice.popularities) if offer.system != "Random"]
    assert offers
    assert all(offer.expected is offer.gain is offer.margin is offer.seconds is None for offer in offers)
    assert "HR@10 there" not in advice.summary()
    assert "Measured on" not in advice.summary(details=True)
    assert "HR@10 there" in advise(**usual).summary()


def test_rows_of_another_length_have_the_figures_of_the_nearest(write):
    measured = write(*corner(10_000, 1.0, 0.6, 0.5))
    near, far, short = (advise(10_000, 300, 1.0, "central", row_length=n, measured=measured) for n in (30, 60, 6))
    assert near.best == far.best
    said = "row_length 60 lies beyond what was measured; the figures are those of 30, and no promise"
    assert set(far.remarks) - set(near.remarks) == {said}
    assert short.remarks == (
        reason_of(short.best, "central"),
        "row_length 6 lies below 30, and shorter rows may have less",
    )


@pytest.mark.parametrize(
    ("n_users", "n_items", "trust", "system", "is_popularity"),
    [
        (1, 1, "central", "DPGram", True),
        (1, 2, "central", "DPGram", False),  # it decides by its release
        (900, 10_000, "central", "DPGram", False),
        (60_000, 10_001, "central", "DPSubspace", False),
        (900, 10_001, "central", "DPSubspace", False),  # it decides by its releases, too
        (100, 10**6, "central", "DPSubspace", False),
        (40_000, 290, "shuffle", "ShuffledGram", False),
        (900, 4_096, "shuffle", "ShuffledGram", False),
        (900, 4_097, "shuffle", "ShuffledGram", True),
        (2_000, 10**6, "shuffle", "ShuffledGram", True),
        (900, 1_075, "local", POPULARITY, True),
        (1, 1, "local", POPULARITY, True),
    ],
)
@pytest.mark.parametrize("row_length", [None, 3.0, 300.0])
def test_the_rule_by_hand(n_users, n_items, row_length, trust, system, is_popularity):
    advice = advise(n_users, n_items, 2.0, trust, row_length=row_length)
    assert advice.reason == reason_of(advice.best, trust)
    assert (advice.best.system, advice.best.is_popularity) == (system, is_popularity)
    assert advice.popularity_is_as_good is (is_popularity or system == "Random")
    assert advice.best.epsilon <= 2.0


@pytest.mark.parametrize(
    ("n_users", "n_items", "system"),
    [
        (2**22, 20_000, "DPSubspace"),
        (2**22 + 1, 20_000, POPULARITY),
        (2**22 + 1, 5_000, "DPGram"),
        (2**22 + 1, 500, "DPGram"),
        (2**25 + 1, 500, POPULARITY),
    ],
)
def test_systems_have_a_largest_number_of_users(n_users, n_items, system):
    advice = advise(n_users, n_items, 1.0, "central")
    assert advice.best.system == system
    for name, max_users in (("DPSubspace", 2**22), ("DPGram", 2**25)):
        said = f"{name}: its sums have room for {max_users:,} users at most"
        assert (said in advice.remarks) == (n_users > max_users)


def test_a_tiny_epsilon_gives_items_at_random():
    advice = advise(1_000, 300, 1e-300, "local")
    assert advice.best.setting == "Random()"
    assert advice.best.epsilon == 0.0


def test_numbers_beyond_the_measured_ones_are_stated(write):
    measured = write(*corner(1_000, 1.0, 0.6, 0.5))
    advice = advise(10**6, 300, 9.0, "central", measured=measured)
    assert advice.offers[0].expected == 0.6
    assert "n_users 1,000,000 lies beyond what was measured; the figures are those of 1,000" in advice.remarks
    assert "epsilon 9 lies beyond what was measured; the figures are those of 1" in advice.remarks


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_users": 0}, ValueError, "n_users"),
        ({"epsilon": float("nan")}, ValueError, "epsilon"),
        ({"epsilon": 1e300}, ValueError, "epsilon must be at most 1000000.0"),
        ({"trust": "server"}, ValueError, "trust must be one of"),
        ({"trust": "aggregator"}, ValueError, "honest_fraction must be a number with trust='aggregator', got None"),
        ({"trust": "aggregator", "honest_fraction": 1.5}, ValueError, "honest_fraction must be at most 1"),
        ({"honest_fraction": 0.5}, ValueError, "honest_fraction must be None with trust='central', got 0.5"),
        ({"dropout_fraction": -0.1}, ValueError, "dropout_fraction must be at least 0"),
        ({"delta": 0.0}, ValueError, "delta"),
    ],
)
def test_bad_inputs(arguments, error, message):
    with pytest.raises(error, match=message):
        advise(**({"n_users": 5_000, "n_items": 500, "epsilon": 2.0, "trust": "central"} | arguments))


# ---- sweeps of the package -------------------------------------------------------------------------------------------


def test_the_stored_guarantees_hold():
    stored = stored_sweeps()
    private = [row for row in stored["rows"] if row["trust"]]
    assert {row["trust"] for row in private} == set(MEASURED)
    assert "GENERATED DATA" in stored["source"]
    assert all(row["epsilon"] <= row["target"] for row in private)
    assert len(private[::40]) >= 8
    for row in private[::40]:  # costs are computed a second time
        planned = plan_run(
            make_system(row["system"], row["parameters"]), row["n_users"], row["n_items"], stored["delta"]
        )
        epsilon = planned.ledger.epsilon(TRUST_VIEWS[row["trust"]])
        # The sweeps were made when a replaced user cost two steps in each release: theirs are upper bounds.
        assert 0.6 * row["epsilon"] <= epsilon <= row["epsilon"] * (1 + 1e-9)


def test_the_stored_sweeps_are_made_by_the_command(tmp_path, monkeypatch, capsys):
    for name, value in {
        "USERS": (300,),
        "ITEMS": (60,),
        "ROW_LENGTHS": (28.0,),
        "EPSILONS": (4.0,),
        "SEEDS": {},
    }.items():
        monkeypatch.setattr(grid_module, name, value)
    assert main(["sweep", "--advice", "--out", str(tmp_path), "--threads", "1"]) == 0
    assert "settings written to" in capsys.readouterr().out
    made, stored = json.loads((tmp_path / "advice.json").read_text()), stored_sweeps()
    assert made.keys() == stored.keys()
    assert {row["trust"] for row in made["rows"]} == {None, "local", "shuffle", "central"}
    assert all(row.keys() == stored["rows"][0].keys() for row in made["rows"])
    # The command replaces the rows of one system, and keeps all others.
    argv = ["sweep", "--advice", "--system", "dp-subspace", "--out", str(tmp_path / "one"), "--threads", "1"]
    assert main(argv) == 0
    capsys.readouterr()
    one = json.loads((tmp_path / "one" / "advice.json").read_text())
    assert sum(row["system"] == "DPSubspace" for row in one["rows"]) == 1
    other_rows = [[row for row in rows if row["system"] != "DPSubspace"] for rows in (one["rows"], stored["rows"])]
    assert sorted(map(str, other_rows[0])) == sorted(map(str, other_rows[1]))
    assert one["code"].startswith(f"{stored['code']}; DPSubspace: ")
    argv = ["advise", "--users", "300", "--items", "60", "--epsilon", "4", "--measured", str(tmp_path / "advice.json")]
    for trust in TRUST_VIEWS:
        assert main([*argv, "--trust", trust, *HONEST.get(trust, [])]) == 0
        assert f"trust: {trust}" in capsys.readouterr().out


def test_the_command(capsys):
    argv = ["advise", "--users", "20000", "--items", "1000", "--epsilon", "2", "--trust", "central"]
    assert main(argv) == 0
    assert "\nUse " in capsys.readouterr().out
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["best"]["epsilon"] <= 2.0
    assert (document["privacy_unit"], document["neighboring"], document["trust"]) == ("user", "replace", "central")
    assert main([*argv[:4], "100000", *argv[5:]]) == 0
    assert "A fixed rule on public sizes chose DPSubspace." in capsys.readouterr().out


@pytest.mark.parametrize("trust", list(TRUST_VIEWS))
def test_parameters_are_shown_with_details_only(trust, capsys):
    argv = ["advise", "--users", "20000", "--items", "500", "--epsilon", "2", "--trust", trust, *HONEST.get(trust, [])]
    assert main(argv) == 0
    short = capsys.readouterr().out
    assert not re.search(r"\w+\(.*epsilon=", short)
    assert f"fastfedrec fit private-recommender --data FILE --set epsilon=2.0 delta=1e-06 trust={trust}" in short
    table, _, below = short.rstrip().rpartition("\n\n")
    assert table
    assert len(below.splitlines()) <= 3
    assert main([*argv, "--details"]) == 0
    detailed = capsys.readouterr().out
    assert re.search(r"DP(Popularity|Subspace)\(epsilon=", detailed)
    assert "own epsilon differs" in detailed
    advice = advise(20_000, 500, 2.0, trust, honest_fraction=0.7 if trust in HONEST else None)
    nodes = ", honest_fraction=0.7, dropout_fraction=0.05" if trust in HONEST else ""
    assert f"PrivateRecommender(epsilon=2.0, delta=1e-06, trust='{trust}'{nodes})" in advice.summary()
