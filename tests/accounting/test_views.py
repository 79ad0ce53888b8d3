import math
from dataclasses import replace

import numpy as np
import pytest

from fastfedrec.accounting import (
    VIEWS,
    ZCDP,
    CentralRelease,
    Composed,
    DiscreteGaussianRelease,
    Gaussian,
    GaussianShares,
    Laplace,
    Ledger,
    LocalReports,
    ShuffledReports,
    Unprotected,
    composed_epsilon,
    seen_event,
)
from fastfedrec.accounting.views import check_view, show_costs
from fastfedrec.mechanisms import DiscreteLaplace

REPORTS = LocalReports("m", 1.0, 5, 1000, separable=True)


def test_every_view_is_of_a_replacement():
    for view in VIEWS:
        for event in (REPORTS, CentralRelease("c", 1.0), Laplace(2.0, neighboring="add_remove", sampling="none")):
            seen = seen_event(event, view)
            assert seen is None or seen.neighboring == "replace"


def test_what_each_adversary_sees():
    assert seen_event(REPORTS, "server") == LocalReports("m", 1.0, 5, 1000)
    assert seen_event(REPORTS, "shuffled_server") == seen_event(REPORTS, "public") == ShuffledReports("m", 1.0, 5, 1000)
    assert seen_event(LocalReports("m", 1.0, 5, 1000), "public") == LocalReports("m", 1.0, 5, 1000)
    lonely = LocalReports("m", 1.0, 5, 1, separable=True)
    assert isinstance(seen_event(lonely, "shuffled_server"), LocalReports)
    dishonest = ShuffledReports("m", 1.0, 5, 1000, 0.001)
    assert isinstance(seen_event(dishonest, "shuffled_server"), LocalReports)
    of_none = ShuffledReports("m", 1.0, 5, 1000, 0.5, neighboring="zero_out")
    assert seen_event(of_none, "public") == ShuffledReports("m", 1.0, 5, 1000, 0.5)
    assert seen_event(of_none, "server") == LocalReports("m", 1.0, 5, 1000)
    assert seen_event(REPORTS, "key_holder") is None
    assert seen_event(Unprotected("u"), "public") is None


def test_composed_events_are_seen_part_by_part():
    both = Composed((REPORTS, LocalReports("n", 2.0, 1, 1000)), count=3)
    assert composed_epsilon({both: 2}, "server", 0) == pytest.approx(6 * (5 + 2))
    parts = {REPORTS: 6, LocalReports("n", 2.0, 1, 1000): 6}
    assert composed_epsilon({both: 2}, "server", 1e-6) == composed_epsilon(parts, "server", 1e-6) < 42
    assert composed_epsilon({Composed((REPORTS, Unprotected("u"))): 1}, "public", 1e-6) == math.inf
    assert composed_epsilon({both: 1}, "shuffled_server", 1e-6) < composed_epsilon({both: 1}, "server", 1e-6)


def test_an_unnamed_view_never_gives_the_weaker_claim():
    """Without a view, the figure is that of the server, or an error that names the view with a figure."""
    local, central = Ledger(), Ledger()
    local.record(REPORTS)
    central.record(CentralRelease("c", 0.5))
    assert local.epsilon() == local.epsilon("server") > local.epsilon("shuffle")
    for delta in (None, 0):
        with pytest.raises(ValueError, match=r"no guarantee against the server, and epsilon 1.0000 against the public"):
            central.epsilon(delta=delta)
    with pytest.raises(ValueError, match=r'pass "central" for that figure, or "server" for infinity'):
        central.epsilon()
    assert (central.epsilon("server"), central.epsilon("central")) == (math.inf, 1.0)
    # Without any guarantee there is no figure to confuse it with.
    none = Ledger()
    none.record(Unprotected("u"))
    assert none.epsilon() == math.inf


def test_a_cost_names_the_trust_that_each_figure_needs():
    def costs(*figures, parties=()):
        return show_costs(dict(zip(("server", "shuffled_server", "public"), figures, strict=True)), parties)

    assert costs(math.inf, math.inf, 3.56) == "3.560 (central)"
    assert costs(85.0, 1.0, 1.0) == "85.00 (local), 1.0000 (shuffle)"
    assert costs(5.0, 4.9999, 2.0) == "5.000 (local), 2.000 (central)"
    assert costs(0.0, 0.0, 0.0) == "0 (local)"
    assert costs(math.inf, math.inf, math.inf) == "none"
    # The same figures need other trust if they depend on nodes that add noise, or on an entity.
    assert costs(2.0, 2.0, 1.0) == "2.000 (local), 1.0000 (central)"
    assert costs(2.0, 2.0, 1.0, parties=["aggregator"]) == "2.000 (aggregator), 1.0000 (central)"
    assert costs(2.0, 2.0, 1.0, parties=["entity"]) == "1.0000 (central)"


def test_a_word_for_trust_excludes_figures_that_depend_on_other_parties():
    """Noise of honest nodes, or of an entity, gives no figure where only the own device or a shuffler is trusted."""
    shares, entity = Ledger(), Ledger()
    fields = {"neighboring": "replace", "sampling": "none"}
    shares.record(GaussianShares(0.2, n_nodes=1000, n_answers=950, honest_fraction=0.7, **fields))
    entity.record(Gaussian(5.0, trust="entity", **fields))
    for ledger, trusted in ((shares, {"aggregator", "central"}), (entity, {"central"})):
        figures = {trust: ledger.epsilon(trust) for trust in ("local", "shuffle", "aggregator", "central")}
        assert {trust for trust, figure in figures.items() if math.isfinite(figure)} == trusted
        (event,) = ledger.events
        assert {trust for trust in figures if seen_event(event, trust) is not None} == trusted
        assert {trust for trust in figures if composed_epsilon({event: 1}, trust, 1e-6) < math.inf} == trusted
        # The views have the figure, and the notes of a system state its assumptions.
        assert math.isfinite(ledger.epsilon("server"))


def test_events_that_did_not_happen_cost_nothing():
    assert composed_epsilon({}, "server", 1e-6) == 0
    assert composed_epsilon({Unprotected("u"): 0}, "server", 1e-6) == 0
    assert composed_epsilon({LocalReports("m", 1.0, 0, 10): 4}, "server", 1e-6) == 0


@pytest.mark.parametrize("times", [-3, 2.5, math.nan, True, "2", 2**63])
def test_only_whole_numbers_of_times_are_added_up(times):
    for event in (REPORTS, Gaussian(5.0, neighboring="replace", sampling="none")):
        with pytest.raises((TypeError, ValueError), match="times must be"):
            composed_epsilon({event: times}, "public", 1e-6)


def test_numpys_counts_do_not_wrap():
    assert composed_epsilon({REPORTS: np.int8(100)}, "server", 0) == 500


@pytest.mark.parametrize(
    ("trust", "view"), [("local", "server"), ("shuffle", "shuffled_server"), ("central", "public")]
)
def test_a_word_for_trust_is_the_view_of_the_strongest_adversary_that_is_left(trust, view):
    ledger = Ledger()
    ledger.record(REPORTS)
    assert check_view("against", trust) == check_view("against", view) == view
    assert ledger.epsilon(trust) == ledger.epsilon(view)
    assert composed_epsilon({REPORTS: 2}, trust, 0.0) == composed_epsilon({REPORTS: 2}, view, 0.0)
    assert seen_event(REPORTS, trust) == seen_event(REPORTS, view)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], "epsilon 0 against the server"),
        ([CentralRelease("counts", 0.5, neighboring="replace")], "epsilon 0.5000 against the public"),
        ([Unprotected("counts")], "no guarantee"),
        ([LocalReports("binary response", 0.5, 2, 50_000)], "epsilon 1.0000 against the server"),
        ([LocalReports("binary response", 1.0, 50, 50_000, separable=True)], "against the server, "),
    ],
)
def test_repr_names_the_strongest_view_with_a_figure_and_the_first_of_use(events, text):
    ledger = Ledger()
    for event in events:
        ledger.record(event)
    assert text in repr(ledger)
    assert text in ledger._repr_html_()
    assert ("behind a shuffler" in repr(ledger)) == text.endswith(", ")


def test_unknown_views_are_refused():
    for view in ("publik", None, ["public"]):
        with pytest.raises(ValueError, match="view must be one of 'server'"):
            composed_epsilon({REPORTS: 1}, view, 1e-6)
        with pytest.raises(ValueError, match="view must be one of 'server'"):
            seen_event(REPORTS, view)
    with pytest.raises(TypeError, match="events must be Mapping"):
        composed_epsilon([REPORTS], "server", 1e-6)


def test_sampled_central_releases_pay_for_both_steps_after_amplification():
    sampled = CentralRelease("c", 1.0, sampling="poisson", sampling_probability=0.1)
    removed, added = math.log1p(0.1 * math.expm1(1.0)), -math.log1p(0.1 * math.expm1(-1.0))
    assert composed_epsilon({sampled: 1}, "public", 0) == pytest.approx(removed + added)


def test_a_releases_own_delta_costs_more_for_a_replacement():
    release = CentralRelease("m", 0.5, delta=1e-20)
    assert seen_event(release, "public").delta == pytest.approx((1 + math.exp(0.5)) * 1e-20, rel=1e-9, abs=0)
    assert composed_epsilon({release: 3}, "public", 1e-9) == pytest.approx(3.0, rel=1e-3)
    large = CentralRelease("m", 0.5, delta=1e-6)
    assert composed_epsilon({large: 1}, "public", 1e-6) == math.inf
    assert composed_epsilon({large: 1}, "public", 1e-5) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("sampling", [{}, {"sampling": "poisson", "sampling_probability": 0.1}])
def test_a_releases_distance_is_the_same_for_a_replacement(sampling):
    noise = DiscreteLaplace(10, sampler="table")
    distance = noise.total_variation_of(1000)
    assert 0 < distance < 1e-20
    assert noise.delta(0.5, 1000) == pytest.approx((1 + math.exp(0.5)) * distance, rel=1e-9, abs=0)
    table = {
        CentralRelease("m", 0.5, distance=distance, **sampling),
        Laplace(2.0, neighboring="add_remove", distance=distance, **{"sampling": "none"} | sampling),
    }
    for release in table:
        assert seen_event(release, "public").distance == distance
        assert composed_epsilon({release: 3}, "public", 1e-9) < math.inf
        assert (
            composed_epsilon({release: 3}, "public", 6 * distance) == math.inf
        )  # the share that the distance takes at an epsilon of 0
    for release in (Gaussian(2.0, neighboring="add_remove", sampling="none", distance=distance),
                    ZCDP("m", 0.1, neighboring="add_remove", sampling="none", distance=distance)):  # fmt: skip
        assert seen_event(release, "public").distance == distance


# ---- entities that are trusted where the server is not ------------------------------------------------------------


def test_what_an_entity_releases_holds_against_the_server_too():
    release = CentralRelease("noise", 0.5, neighboring="replace", trust="entity")
    for view in ("server", "shuffled_server", "public"):
        assert composed_epsilon({release: 2}, view, 0) == 1.0
        assert 0.99 < composed_epsilon({release: 2}, view, 1e-6) < 1.0
    assert composed_epsilon({release: 2}, "key_holder", 1e-6) == math.inf
    trusted = CentralRelease("noise", 0.5, neighboring="replace")
    assert composed_epsilon({trusted: 2}, "server", 1e-6) == math.inf


OF_ONE_STEP = [
    CentralRelease("c", 0.7, delta=1e-9),
    Laplace(1.4, neighboring="add_remove", sampling="none"),
    ZCDP("z", 0.1, neighboring="add_remove", sampling="none"),
    Gaussian(1.4, neighboring="add_remove", sampling="none"),
    DiscreteGaussianRelease(14.0, 10, neighboring="add_remove", sampling="none"),
]


@pytest.mark.parametrize("event", OF_ONE_STEP)
@pytest.mark.parametrize("trust", ["central", "entity"])
def test_who_is_trusted_stays_the_same_for_a_replacement(event, trust):
    assert seen_event(replace(event, trust=trust), "public").trust == trust


@pytest.mark.parametrize("event", OF_ONE_STEP)
def test_by_way_of_no_data_replacing_costs_what_it_costs_by_way_of_no_user(event):
    assert seen_event(replace(event, neighboring="zero_out"), "public") == seen_event(event, "public") != event


RELATIONS = ("add_remove", "zero_out", "replace")


@pytest.mark.parametrize(
    "event",
    [
        *(CentralRelease("c", 0.7, delta=1e-9, distance=1e-12, neighboring=relation) for relation in RELATIONS),
        *(Laplace(1.4, neighboring=relation, sampling="none") for relation in RELATIONS),
        *(ZCDP("z", 0.1, neighboring=relation, sampling="none") for relation in RELATIONS),
        *(Gaussian(1.4, neighboring=relation, sampling="none") for relation in RELATIONS),
        Gaussian(1.4, neighboring="add_remove", sampling="poisson", sampling_probability=0.1),
        CentralRelease("c", 0.7, neighboring="add_remove", sampling="poisson", sampling_probability=0.1),
        CentralRelease("c", 0.7, neighboring="replace", sampling="without_replacement", n_users=10, cohort_size=2),
        *(DiscreteGaussianRelease(14.0, 10, neighboring=relation, sampling="none") for relation in RELATIONS),
    ],
)
def test_an_events_own_count_costs_what_so_many_events_do(event):
    for view in VIEWS:
        single, five = (composed_epsilon({event: times}, view, 1e-6) for times in (1, 5))
        assert composed_epsilon({replace(event, count=5): 1}, view, 1e-6) == pytest.approx(five, rel=1e-9)
        assert five > 1.2 * single or math.isinf(single)


def test_replacing_costs_four_times_the_rho():
    # The same noise in two forms: a Gaussian of twice the sensitivity has a quarter of the variance over it.
    zcdp = ZCDP("z", 1 / 8, neighboring="add_remove", sampling="none")
    gaussian = seen_event(Gaussian(2.0, neighboring="add_remove", sampling="none"), "public")
    assert seen_event(zcdp, "public") == ZCDP("z", 0.5, neighboring="replace", sampling="none")
    assert 1 / (2 * gaussian.noise_multiplier**2) == 0.5
    stated_zcdp = ZCDP("z", 1 / 8, neighboring="replace", sampling="none")
    assert seen_event(stated_zcdp, "public") == stated_zcdp


def test_replacing_doubles_the_change_of_a_discrete_gaussian():
    noise = DiscreteGaussianRelease(30.0, 5, neighboring="add_remove", sampling="none")
    seen = seen_event(noise, "public")
    assert (seen.neighboring, seen.sensitivity, seen.stddev) == ("replace", 10, 30.0)
    rho = ZCDP("m", 100 / 1800, neighboring="replace", sampling="none")
    assert 0 < composed_epsilon({noise: 1}, "public", 1e-6) < composed_epsilon({rho: 1}, "public", 1e-6)


@pytest.mark.parametrize(("word", "meant"), [("global", "central"), ("Curator", "central"), ("model", "public")])
def test_a_word_of_the_literature_suggests_the_view_with_this_meaning(word, meant):
    """By its letters, "global" is similar to "local", which would be a stronger claim."""
    with pytest.raises(ValueError, match=f"got '{word}'; pass '{meant}'$"):
        check_view("against", word)
