"""The replace cost that a ledger states for alternative plans with equal costs for zero_out: the largest of them."""

import math
from collections.abc import Sequence
from fractions import Fraction

from fastfedrec.core.numbers import float_up
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._noisy_sum import NoisySum, StatedCost

_DIGITS = 256  # binary digits after the point of a root
_ROUNDING = Fraction(1, 2**30)  # largest relative difference between the costs of plans from the rounding of noise


def state_largest_replacement(plans: Sequence[Sequence[Phase]]) -> None:
    """Make the events of every plan state the replace cost of the most expensive plan.

    The plans share the systems of common rounds and cost the same for zero_out.  Raise `ValueError` if a plan costs
    less than another even with replace sensitivity 2 in all of its rounds.
    """
    # The cost of a round for a replaced user is mu^2 times the square of its replace sensitivity, and a plan's cost is
    # the sum over its rounds.  A release may choose the next round if a bound of that sum is fixed beforehand (Smith,
    # Thakurta 2022, for Gaussian differential privacy).  The ledger states this bound for every plan.  Each
    # `stated_cost` is at least the cost of its round, so the ledger's sum is valid for the run as well.
    phases = {id(phase.system): phase for plan in plans for phase in plan}
    costs = {key: _cost(phase.system.round_cost, phase) for key, phase in phases.items()}
    totals = [sum((costs[id(phase.system)] for phase in plan), Fraction(0)) for plan in plans]
    largest = max(totals)
    # Dictionaries keep the order of insertion: a shared round is raised before the rounds that plans differ in.
    for key, phase in phases.items():
        plan_numbers = [number for number, plan in enumerate(plans) if any(id(other.system) == key for other in plan)]
        noise_multiplier, sensitivity = phase.system.round_cost
        # No plan with this round may exceed the largest cost, and no replace sensitivity exceeds 2.
        headroom = _cost(StatedCost(noise_multiplier, 2.0), phase) - costs[key]
        added = min(headroom, *(largest - totals[number] for number in plan_numbers))
        if added:
            # The cost is proportional to the square of the sensitivity.
            sensitivity = min(2.0, _root_up(Fraction(sensitivity) ** 2 * (1 + added / costs[key])))
        phase.system.stated_cost = StatedCost(noise_multiplier, sensitivity)
        for number in plan_numbers:
            totals[number] += added
    for plan, total in zip(plans, totals, strict=True):
        if total < largest:
            _add_rounding(plan[-1], largest - total, largest)


def _add_rounding(phase: Phase, missing: Fraction, largest: Fraction) -> None:
    """State slightly less noise for a plan's last round if the rounding of noise made the plan cheaper than another."""
    if missing > largest * _ROUNDING:
        raise ValueError(
            f"plans must cost the same for zero_out, got one that costs {float(missing / largest):.3g} of the largest "
            "less even if each user's contribution is replaced by its opposite; give its rounds less noise"
        )
    system: NoisySum = phase.system
    # With replace sensitivity 2, one round costs 4 / noise_multiplier^2.
    square = 1 / (1 / Fraction(system.round_cost.noise_multiplier) ** 2 + missing / (4 * phase.n_rounds))
    system.stated_cost = StatedCost(-float_up(-_root_down(square)), 2.0)


def _cost(cost: StatedCost, phase: Phase) -> Fraction:
    """Return mu^2 of a phase for a replaced user, exactly."""
    return phase.n_rounds * (Fraction(cost.replace_sensitivity) / Fraction(cost.noise_multiplier)) ** 2


def _root_down(square: Fraction) -> Fraction:
    """Return the square root, rounded down to a multiple of 2^-256."""
    return Fraction(math.isqrt(math.floor(square * 4**_DIGITS)), 2**_DIGITS)


def _root_up(square: Fraction) -> float:
    """Return the square root as a float, rounded up."""
    return float_up(Fraction(math.isqrt(math.ceil(square * 4**_DIGITS)) + 1, 2**_DIGITS))
