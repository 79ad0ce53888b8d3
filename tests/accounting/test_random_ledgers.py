"""Random ledgers of all kinds of events: figures between the estimates of a public accountant, if it applies.

Otherwise figures are at most the minimum over our accountants; more events and smaller deltas never cost less.  Each
push tests ten ledgers, and each night two hundred.
"""

import math
import random
from collections import Counter

import pytest

from fastfedrec.accounting import (
    ZCDP,
    AdvancedAccountant,
    CentralRelease,
    DiscreteGaussianRelease,
    Gaussian,
    Laplace,
    LocalReports,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ShuffledReports,
    UnsupportedEventError,
    ZCDPAccountant,
    seen_event,
)
from fastfedrec.accounting.views import cost_of

ACCOUNTANTS = (PureAccountant, AdvancedAccountant, ZCDPAccountant, RDPAccountant, PLDAccountant)
# Relative tolerance of a figure and of the peer's losses.
GRID = 1e-4
# Relative error of the peer's pessimistic estimate.
ABOVE = 1.02
# Above this epsilon the peer's grids are too large.
MAX_EPSILON = 300.0


def any_event(draw):
    """Return an event of any kind with usual parameters."""

    def between(low, high):
        return 10 ** draw.uniform(low, high)

    relation = draw.choice(["replace", "add_remove", "zero_out"])
    count, distance = draw.choice([1, 1, draw.randint(1, 20)]), draw.choice([0.0, 0.0, between(-30, -12)])
    common = {"count": count, "distance": distance, "trust": draw.choice(["central", "entity"])}
    plain = {"neighboring": relation, "sampling": "none"} | common
    n_users = draw.randint(50, 5000)
    poisson = {"sampling": "poisson", "sampling_probability": between(-3, -0.5)} | common
    fixed = {"sampling": "without_replacement", "n_users": n_users, "cohort_size": n_users // 50} | common
    sampled = draw.choice([plain, plain, fixed | {"neighboring": "replace"}, poisson | {"neighboring": "add_remove"}])
    bounded = poisson | {"neighboring": "replace", "contribution": draw.choice([0.5, draw.uniform(0.5, 1)])}
    kinds = [
        lambda: LocalReports("local", between(-2, 0.5), draw.randint(1, 20), n_users),
        lambda: LocalReports("separable", between(-1, 0.5), draw.randint(1, 20), n_users, separable=True),
        lambda: ShuffledReports(
            "shuffled", between(-1, 0.5), draw.randint(1, 9), n_users, draw.choice([1.0, 0.7]),
            draw.choice(["replace", "zero_out"]), n_candidates=draw.choice([1, 1, 8]),
        ),
        lambda: CentralRelease("pure", between(-3, 0), **sampled),
        lambda: CentralRelease("approximate", between(-2, 0), delta=between(-14, -11), **plain),
        lambda: CentralRelease("exponential", between(-2, 0.5), n_choices=draw.choice([1, 1, 9]), **sampled),
        lambda: Laplace(between(0, 2.5), **sampled),
        lambda: Gaussian(between(0.2, 2), **sampled),
        lambda: Gaussian(between(0, 1), **poisson, neighboring=draw.choice(["replace", "zero_out"])),
        lambda: draw.choice([Gaussian, Laplace])(between(0, 1), **bounded),
        lambda: ZCDP("zcdp", between(-5, -1), **plain),
        lambda: DiscreteGaussianRelease(between(0.5, 3), draw.randint(1, 3), **plain),
        lambda: DiscreteGaussianRelease(between(4.6, 6), 100, **plain),
    ]  # fmt: skip
    return draw.choice(kinds)()


def any_ledger(seed):
    draw = random.Random(seed)
    events = Counter({any_event(draw): draw.choice([1, 2, draw.randint(1, 50)]) for _ in range(draw.randint(1, 5))})
    return events, 10 ** draw.uniform(-8, -2), any_event(draw)


def randomized_response(peer, epsilon, delta, grid):
    """Return the worst of all releases with an epsilon and a delta; its outputs 2 and 3 reveal the input."""
    truth, lie = -math.log1p(math.exp(-epsilon)), -math.log1p(math.exp(epsilon))
    log_pure, lost = math.log1p(-delta), math.log(delta) if delta else -math.inf
    lower, upper = {0: lie + log_pure, 1: truth + log_pure}, {0: truth + log_pure, 1: lie + log_pure}
    if delta:
        lower[2], upper[3] = lost, lost
    return peer.from_two_probability_mass_functions(lower, upper, **grid)


def peers_losses(event, pessimistic):
    """Return the public accountant's distribution of one use for replacing a user, and the uses, or None."""
    from dp_accounting.pld import privacy_loss_distribution as peer

    grid = {"pessimistic_estimate": pessimistic, "value_discretization_interval": GRID}
    unsampled = getattr(event, "sampling", "none") == "none"
    if isinstance(event, LocalReports):
        return randomized_response(peer, event.epsilon, 0.0, grid), event.n_reports
    if isinstance(event, CentralRelease) and unsampled and event.n_choices is None:
        return randomized_response(peer, event.epsilon, event.delta, grid), event.count
    if isinstance(event, Laplace) and unsampled:
        return peer.from_laplace_mechanism(event.noise_multiplier, **grid), event.count
    if isinstance(event, Gaussian) and unsampled:
        return peer.from_gaussian_mechanism(event.noise_multiplier, **grid), event.count
    if isinstance(event, DiscreteGaussianRelease) and event.stddev < 2000:
        return peer.from_discrete_gaussian_mechanism(event.stddev, event.sensitivity, **grid), event.count
    return None


def peers_bounds(seen, delta):
    """Return optimistic and pessimistic bounds; infinite above if some event has no distribution there."""
    low_and_high = []
    for pessimistic in (False, True):
        total, is_whole = None, True
        for event, times in seen:
            losses = peers_losses(event, pessimistic)
            if losses is None:
                is_whole = False
                continue
            composed = losses[0].self_compose(losses[1] * times) if losses[1] * times > 1 else losses[0]
            total = composed if total is None else total.compose(composed)
        epsilon = 0.0 if total is None else total.get_epsilon_for_delta(delta)
        low_and_high.append(epsilon if is_whole or not pessimistic else math.inf)
    return low_and_high


def is_between(result, low, high):
    return low * (1 - 1e-6) - GRID <= result <= ABOVE * high + GRID


def minimum_of_ours(seen, delta):
    figures = [math.inf]
    for kind in ACCOUNTANTS:
        accountant = kind()
        try:
            for event, times in seen:
                accountant.compose(event, times)
            figures.append(accountant.get_epsilon(delta))
        except UnsupportedEventError:
            continue
    return min(figures)


def check_ledger(seed):
    events, delta, further = any_ledger(seed)
    for view in ("server", "shuffled_server", "public"):
        seen = [(seen_event(event, view), times) for event, times in events.items()]
        result = cost_of(events, view, delta).epsilon
        if any(event is None for event, _ in seen):
            assert result == math.inf
            continue
        ours = minimum_of_ours(seen, delta)
        assert math.isfinite(result)
        assert result <= ours
        if result < MAX_EPSILON:
            assert is_between(result, *peers_bounds(seen, delta)), (seed, view)
        more = cost_of(events | {further: events[further] + 1}, view, delta).epsilon
        assert more >= result * (1 - GRID), (seed, view)
        assert cost_of(events, view, delta / 3).epsilon >= result * (1 - GRID)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 6, 7, 8, 9, 12, 14])  # most ledgers are quick
def test_some_random_ledgers(seed):
    check_ledger(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_ledgers(seed):
    check_ledger(seed)


# ---- controls -------------------------------------------------------------------------------------------------------


def test_the_ledgers_are_of_all_kinds():
    events = [event for seed in range(100, 300) for event in any_ledger(seed)[0]]
    kinds = {type(event) for event in events}
    assert {LocalReports, ShuffledReports, CentralRelease, Laplace, Gaussian, ZCDP, DiscreteGaussianRelease} == kinds
    assert len({getattr(event, "sampling", "") for event in events}) == 4
    assert {event.neighboring for event in events} == {"replace", "add_remove", "zero_out"}
    for kind, name in ((Gaussian, "contribution"), (Laplace, "contribution"), (CentralRelease, "n_choices")):
        assert any(isinstance(event, kind) and getattr(event, name) is not None for event in events)


@pytest.mark.parametrize("wrong", [0.97, 1.05])
def test_the_peers_bounds_see_a_wrong_figure(wrong):
    seen = [(Gaussian(20.0, neighboring="replace", sampling="none"), 40), (LocalReports("l", 0.3, 3, 10), 5)]
    result = minimum_of_ours(seen, 1e-6)
    bounds = peers_bounds(seen, 1e-6)
    assert is_between(result, *bounds)
    assert not is_between(result * wrong, *bounds)
