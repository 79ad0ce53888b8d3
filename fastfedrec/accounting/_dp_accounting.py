"""Translation of ledgers to events of the package dp_accounting and back."""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Self

from fastfedrec.accounting.events import (
    ZCDP,
    CentralRelease,
    Event,
    Gaussian,
    Neighboring,
    Unprotected,
    UnsupportedEventError,
)
from fastfedrec.accounting.rounding import up
from fastfedrec.accounting.views import check_view, seen_event
from fastfedrec.core.check import check_instance, check_integer, check_real
from fastfedrec.core.numbers import float_up

# Maximum number of pure releases, each of which is an event.
_MAX_EVENTS = 100_000
_RELATIONS: dict[str, Neighboring] = {
    "ADD_OR_REMOVE_ONE": "add_remove",
    "REPLACE_SPECIAL": "zero_out",
    "REPLACE_ONE": "replace",
}


class DPAccountingEvents:
    """Translation of a ledger's events to those of the package dp_accounting, and back."""

    events: Counter[Event]

    def to_dp_accounting(self, against: str = "server") -> tuple[Any, Any]:
        """Return the events as one event of the package dp_accounting, and the neighbouring relation of its cost.

        Parameters
        ----------
        against : {"server", "shuffled_server", "public", "key_holder"} or {"local", "shuffle", "central", "aggregator"}
            View of the adversary, as in `epsilon`.

        Returns
        -------
        event : dp_accounting.DpEvent
            Event with the cost of the ledger against that adversary: a `NonPrivateDpEvent` without a guarantee, and a
            `NoOpDpEvent` for an empty ledger.
        relation : dp_accounting.NeighboringRelation
            Relation that an accountant must be made with.  It is REPLACE_ONE, as for all figures of a ledger.

        Raises
        ------
        ImportError
            The package dp_accounting is not installed.
        UnsupportedEventError
            The ledger has an event without a counterpart.  These are shuffled reports, Laplace noise, discrete
            Gaussian noise, Skellam noise, sampling without replacement, releases with a delta, a distance or bounded
            ranges, and Poisson sampling without a stated contribution.

        Notes
        -----
        The noise multiplier of a `GaussianDpEvent` is over the largest norm of one record.  Replacing a record changes
        a sum by up to twice that norm.  Hence the noise multiplier of the ledger, which is over the sensitivity for
        replacing a user, is doubled.  Use `PLDAccountant` for Gaussian events.  Under REPLACE_ONE the `RdpAccountant`
        of version 0.6 takes unsampled noise over the sensitivity for replacing, and would state about half the epsilon.
        Therefore each Gaussian event is within Poisson sampling, possibly of probability 1, which that accountant
        refuses under this relation.

        A pure release is randomized response of one bit, which has the dominating pair of all pure releases.  Each is
        an event of its own, because `PLDAccountant` counts a repeated one once.  A `ZCDP` is a `ZCDpEvent`, which only
        `RdpAccountant` takes.

        Examples
        --------
        >>> from fastfedrec.accounting import Gaussian, Ledger
        >>> ledger = Ledger(delta=1e-5)
        >>> ledger.record(Gaussian(2.0, neighboring="add_remove", sampling="poisson", sampling_probability=0.25))
        >>> event, relation = ledger.to_dp_accounting("public")
        >>> event.sampling_probability, event.event.noise_multiplier, relation.name
        (0.25, 2.0, 'REPLACE_ONE')
        """
        check_view("against", against)
        package = _import_dp_accounting()
        dp = package.dp_event
        relation = package.NeighboringRelation.REPLACE_ONE
        parts = []
        for event, times in self.events.items():
            seen = seen_event(event, against)
            if seen is None:
                return dp.NonPrivateDpEvent(), relation
            if seen.distance:
                raise UnsupportedEventError(
                    f"dp_accounting has no event with a total-variation distance, got {seen!r}; use Ledger.epsilon, "
                    "which adds (1 + e^epsilon) times the distance to delta"
                )
            part, uses = seen._dp_event(dp)
            parts += _repeated(dp, part, uses * times)
        if len(parts) < 2:
            return (parts[0] if parts else dp.NoOpDpEvent()), relation
        return dp.ComposedDpEvent(parts), relation

    @classmethod
    def from_dp_accounting(cls, event: Any, relation: Any) -> Self:
        """Make a ledger of an event of the package dp_accounting, as releases of a trusted server.

        Parameters
        ----------
        event : dp_accounting.DpEvent
            Event, with compositions of any depth.
        relation : dp_accounting.NeighboringRelation
            Neighbouring relation of its accountant.  One record is a user.

        Returns
        -------
        Ledger
            Ledger of the releases, with the default delta.  Its figures are for replacing a user, against the public.
            They double the sensitivity of events that were stated for another relation.

        Raises
        ------
        ImportError
            The package dp_accounting is not installed.
        TypeError
            The event or the relation is not of that package.
        UnsupportedEventError
            No theorem here states the cost of an event under that relation; the message names the event.

        Notes
        -----
        A noise multiplier is read as over the largest norm of one record, as `GaussianDpEvent` defines it.  Under
        REPLACE_ONE it is halved, also for sampling without replacement, where `RdpAccountant` reads it as over the
        sensitivity for replacing.  Laplace noise may be on vectors, so it counts with its pure epsilon.

        Examples
        --------
        >>> import dp_accounting
        >>> from fastfedrec.accounting import Ledger
        >>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
        >>> run = dp_accounting.SelfComposedDpEvent(step, 100)
        >>> relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        >>> ledger = Ledger.from_dp_accounting(run, relation)
        >>> round(ledger.epsilon("public", delta=1e-5), 2)
        0.9
        """
        package = _import_dp_accounting()
        dp = package.dp_event
        check_instance("event", event, dp.DpEvent, "pass an event of dp_accounting")
        check_instance("relation", relation, package.NeighboringRelation, "pass the relation of the accountant")
        ledger = cls()
        for one, times in _read(dp, event, _RELATIONS[relation.name]):
            if times:
                seen_event(one, "public")  # raises if no theorem states the cost
                ledger.events[one] += times
        return ledger


def _import_dp_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError("this needs dp_accounting; install it: pip install 'fastfedrec[dp-accounting]'") from error
    return dp_accounting


def _repeated(dp: Any, event: Any, times: int) -> list[Any]:
    """Return the uses of an event as a list of events."""
    # PLDAccountant (0.6) counts a repeated randomized response once, so each of its uses is an event.
    if times < 2 or (isinstance(event, dp.RandomizedResponseDpEvent) and times <= _MAX_EVENTS):
        return [event] * times
    if isinstance(event, dp.RandomizedResponseDpEvent):
        raise UnsupportedEventError(
            f"dp_accounting has no event with the cost of {times:,} pure releases; it takes at most {_MAX_EVENTS:,}"
        )
    return [dp.SelfComposedDpEvent(event, times)]


def _read(dp: Any, event: Any, neighboring: Neighboring) -> Iterator[tuple[Event, int]]:
    """Yield the elementary events of an event of dp_accounting, and the number of times of each."""
    match event:
        case dp.NoOpDpEvent():
            pass
        case dp.NonPrivateDpEvent():
            yield Unprotected("release without privacy"), 1
        case dp.ComposedDpEvent(events=parts):
            for part in parts:
                yield from _read(dp, part, neighboring)
        case dp.SelfComposedDpEvent(event=part, count=count):
            count = check_integer("count", count, low=0)
            yield from ((one, times * count) for one, times in _read(dp, part, neighboring))
        case dp.PoissonSampledDpEvent(sampling_probability=probability, event=part):
            rate = check_real("sampling_probability", probability, low=0.0, high=1.0)
            if rate:
                yield from _release(dp, event, part, rate, neighboring)
        case dp.SampledWithoutReplacementDpEvent(event=dp.GaussianDpEvent() as part) if neighboring == "replace":
            sizes = {"n_users": event.source_dataset_size, "cohort_size": event.sample_size}
            yield from _gaussian(part.noise_multiplier, neighboring, sampling="without_replacement", **sizes)
        case _:
            yield from _release(dp, event, event, 1.0, neighboring)


def _release(dp: Any, whole: Any, event: Any, rate: float, neighboring: Neighboring) -> Iterator[tuple[Event, int]]:
    """Yield one release under Poisson sampling, unless it costs 0; messages show `whole`."""
    sampling: dict[str, Any] = {"sampling": "none"}
    if rate < 1:
        sampling = {"sampling": "poisson", "sampling_probability": rate}
    # Replacing a record is two steps, by way of the data without it.
    steps = 2 if neighboring == "replace" else 1
    match event:
        case dp.GaussianDpEvent(noise_multiplier=noise):
            if rate < 1 and neighboring == "replace":
                sampling["contribution"] = 0.5
            yield from _gaussian(noise, neighboring, **sampling)
        case dp.LaplaceDpEvent(noise_multiplier=noise) if rate == 1 or neighboring == "add_remove":
            scale = check_real("noise_multiplier", noise, low=0.0)
            yield from _pure("Laplace", steps / Fraction(scale) if scale else None, neighboring, **sampling)
        case dp.DiscreteLaplaceDpEvent(noise_parameter=parameter, sensitivity=sensitivity) if rate == 1:
            per_step = Fraction(check_real("noise_parameter", parameter, low=0.0))
            epsilon = steps * per_step * check_integer("sensitivity", sensitivity, low=1)
            yield from _pure("discrete Laplace", epsilon or None, neighboring, **sampling)
        case dp.RandomizedResponseDpEvent(noise_parameter=share, num_buckets=n) if rate == 1 and steps == 2:
            share = Fraction(check_real("noise_parameter", share, low=0.0, high=1.0))
            n = check_integer("num_buckets", n, low=1)
            # The true bucket has probability 1 - share + share / n, and each other bucket has share / n.
            if n > 1:
                ratio = n * (1 - share) / share if share else None
                bound = None if ratio is None else Fraction(up(math.log1p(float_up(ratio))) if ratio else 0)
                yield from _pure("randomized response", bound, neighboring, **sampling)
        case dp.ZCDpEvent(rho=rho, xi=xi) if rate == 1 and xi == 0:
            yield ZCDP("zero-concentrated release", rho, neighboring=neighboring, sampling="none"), 1
        case _:
            raise UnsupportedEventError(f"no event here has the cost of {whole!r} with neighboring={neighboring!r}")


def _gaussian(noise_multiplier: float, neighboring: Neighboring, **sampling: Any) -> Iterator[tuple[Event, int]]:
    noise = check_real("noise_multiplier", noise_multiplier, low=0.0)
    # Twice the norm bounds the change of a sum, and halving is exact.
    noise = noise / 2 if neighboring == "replace" else noise
    yield Gaussian(noise, neighboring=neighboring, **sampling) if noise else Unprotected("release without noise"), 1


def _pure(
    mechanism: str, epsilon: Fraction | None, neighboring: Neighboring, **sampling: Any
) -> Iterator[tuple[Event, int]]:
    """Yield a pure release, unless its epsilon is 0; None is infinite."""
    bound = math.inf if epsilon is None else float_up(epsilon)
    if math.isinf(bound):
        yield Unprotected(f"{mechanism} without noise"), 1
    elif bound:
        yield CentralRelease(mechanism, bound, neighboring=neighboring, **sampling), 1
