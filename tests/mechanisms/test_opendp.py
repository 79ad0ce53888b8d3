"""Mechanisms as measurements of OpenDP: they compose there, and their maps are our costs, rounded up."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from support.significance import ALPHA

from fastfedrec import mechanisms
from fastfedrec.audit import audit
from fastfedrec.mechanisms import (
    GRR,
    OUE,
    BayesKary,
    BinaryResponse,
    Channel,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Hybrid,
    LargestResponse,
    LayeredGaussian,
    MixtureLaplaceRR,
    OptimalKary,
    Piecewise,
    PublishedLaplaceRR,
    RatedOrNot,
    RoundedGaussian,
    RoundedLaplace,
    SerialLaplaceRR,
    Skellam,
    SubsetSelection,
    TruncatedGeometric,
)
from fastfedrec.mechanisms._randomizer import Randomizer

GRID = [1.0, 2.0, 3.0]
#: Randomizers of one value, with a value.
OF_ONE_VALUE = [
    (GRR(1.1, 5), 3),
    (OUE(1.1, 5), 3),
    (SubsetSelection(1.1, 5), 3),
    (BinaryResponse(1.1), 0.5),
    (Piecewise(1.1), 0.5),
    (Hybrid(1.1), 0.5),
    (LargestResponse(1.1, 4), [1.0, -2.0]),
    (TruncatedGeometric(1.1, 5), 2),
    (OptimalKary(1.1, GRID), 2),
    (BayesKary(1.1, GRID), 2),
    (RoundedLaplace(1.1, GRID), 2),
    (SerialLaplaceRR(1.1, 0.5, GRID), 2),
    (MixtureLaplaceRR(1.1, 0.5, GRID), 2),
    (RatedOrNot(1.1, GRID), 2),
    (Channel([[3 * 2**62, 2**62], [2**62, 3 * 2**62]], inputs=[1, -1], outputs=[2, -2]), 1),
]
SUMS = [
    (DiscreteLaplace(Fraction(7, 3)), "exact_epsilon"),
    (DiscreteGaussian(Fraction(7, 3)), "rho"),
    (ExponentialMechanism(1.1, sensitivity=3), None),
    (ExponentialMechanism(1.1, sensitivity=3, n_selected=2, monotone=True), None),
]
REFUSED = [
    (DiscreteLaplace(5, sampler="table"), "use sampler='exact'"),
    (DiscreteGaussian(5, sampler="table"), "use sampler='exact'"),
    (ExponentialMechanism(1.0, sampler="gumbel"), "got sampler='gumbel'; use 'exact'"),
    (RoundedGaussian(5), r"use DiscreteGaussian\(stddev\)"),
    (LayeredGaussian(2**20), r"use DiscreteGaussian\(stddev\)"),
    (Skellam(5), r"use DiscreteGaussian\(stddev\)"),
    (PublishedLaplaceRR(1.0, 1.0), "OpenDP has no measure for the guarantee of PublishedLaplaceRR"),
    (Channel([[2**64, 0], [0, 2**64]], inputs=[0, 1], outputs=[0, 1]), "must have a guarantee, got epsilon=inf"),
]


@pytest.fixture(scope="module")
def dp():
    prelude = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed (extra 'opendp')")
    prelude.enable_features("contrib", "honest-but-curious")
    return prelude


def name_of(value):
    return type(value).__name__ if isinstance(value, Randomizer) else None


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mechanism", "value"), OF_ONE_VALUE, ids=name_of)
def test_a_randomizer_costs_its_epsilon(dp, mechanism, value):
    measurement = mechanism.to_opendp()
    assert (measurement.map(0), measurement.map(1)) == (0.0, mechanism.epsilon)
    assert measurement.check(1, mechanism.epsilon)
    assert not measurement.check(1, math.nextafter(mechanism.epsilon, 0.0))
    report = measurement(value)
    assert np.shape(report) == mechanism.privatize([value]).shape[1:]


@pytest.mark.parametrize(("mechanism", "cost"), SUMS, ids=name_of)
@pytest.mark.parametrize("distance", [0, 1, 3, 10])
def test_a_cost_is_the_exact_one_rounded_up(dp, mechanism, cost, distance):
    exact = getattr(mechanism, cost)(distance) if cost else Fraction(mechanism.epsilon) / 3 * distance
    stated = mechanism.to_opendp().map(float(distance) if cost == "rho" else distance)
    assert Fraction(stated) >= exact
    assert Fraction(math.nextafter(stated, 0.0)) < exact or stated == 0


def test_maps_equal_those_of_opendp(dp):
    """Ours is the same up to its rounding for the same noise."""
    space = dp.vector_domain(dp.atom_domain(T="i64"))
    theirs = dp.m.make_laplace(space, dp.l1_distance(T="i64"), scale=4.0)
    assert DiscreteLaplace(4).to_opendp().map(3) == pytest.approx(theirs.map(3), rel=1e-12)
    theirs = dp.m.make_gaussian(space, dp.l2_distance(T="f64"), scale=4.0)
    assert DiscreteGaussian(4).to_opendp().map(3.0) == pytest.approx(theirs.map(3.0), rel=1e-12)
    assert DiscreteGaussian(5).to_opendp().map(3.0) != pytest.approx(theirs.map(3.0), rel=0.1)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_measurements_compose(dp):
    pure = dp.c.make_composition([DiscreteLaplace(4).to_opendp(), DiscreteLaplace(8).to_opendp()])
    assert pure.map(2) == pytest.approx(0.75, rel=1e-12)
    assert pure.map(2) >= 0.75
    assert [len(release) for release in pure([5, 6])] == [2, 2]
    rho = dp.c.make_composition([DiscreteGaussian(4).to_opendp()] * 2)
    assert rho.map(1.0) == pytest.approx(1 / 16, rel=1e-12)
    approximate = dp.c.make_zCDP_to_approxDP(rho)
    assert 0.9 < approximate.map(1.0).epsilon(1e-6) < 2.0
    responses = dp.c.make_composition([BinaryResponse(1.0).to_opendp(), BinaryResponse(0.5).to_opendp()])
    assert responses.map(1) == pytest.approx(1.5, rel=1e-9)
    with pytest.raises(Exception, match=r"(?i)metric|domain"):
        dp.c.make_composition([DiscreteLaplace(4).to_opendp(), BinaryResponse(1.0).to_opendp()])


def test_it_follows_a_transformation(dp):
    """Counts of categories, with a sensitivity that OpenDP knows, and our noise."""
    counts = dp.t.make_count_by_categories(
        dp.vector_domain(dp.atom_domain(T=int)),
        dp.symmetric_distance(),
        categories=[1, 2, 3],
        MO="L1Distance<i64>",
        TOA="i64",
    )
    released = counts >> DiscreteLaplace(2).to_opendp()
    assert released.map(1) == 0.5
    assert len(released([1, 2, 2, 9])) == 4


def test_each_call_draws_other_noise(dp):
    measurement = DiscreteLaplace(1000).to_opendp()
    assert len({tuple(measurement([0] * 4)) for _ in range(20)}) == 20


def test_every_randomizer_has_a_case():
    kinds = {getattr(mechanisms, name) for name in mechanisms.__all__ if isinstance(getattr(mechanisms, name), type)}
    listed = {type(mechanism) for mechanism, _ in (*OF_ONE_VALUE, *SUMS, *REFUSED)}
    assert {kind for kind in kinds if issubclass(kind, Randomizer)} == listed


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mechanism", "message"), REFUSED, ids=name_of)
def test_guarantees_that_opendp_cannot_express_are_refused_by_name(dp, mechanism, message):
    with pytest.raises(TypeError, match=message):
        mechanism.to_opendp()


def test_without_the_package_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"pip install 'fastfedrec\[opendp\]'"):
        DiscreteLaplace(4).to_opendp()


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_audit_finds_half_the_noise_behind_the_map(dp):
    """The claim is the map of the measurement; noise of half the scale violates it."""
    claim = DiscreteLaplace(2).to_opendp().map(2)
    verdicts = [audit(DiscreteLaplace(scale).to_opendp(), [0], [2], claim, 6000, ALPHA).verdict for scale in (2, 1)]
    assert verdicts == ["consistent", "violated"]
