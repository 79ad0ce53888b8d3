"""Privacy claims as tests: the decorator `verify` searches neighbouring inputs for a pair that refutes the claim."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastfedrec.audit import WorstPair, search_pairs
from fastfedrec.audit.search import check_pairs
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.testing.assertions import ALPHA

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["PrivacyClaim", "verify"]

#: Name of the attribute of a test by which the pytest plugin finds its claim.
CLAIM_ATTRIBUTE = "privacy_claim"


@dataclass
class PrivacyClaim:
    """Claim of a test that `verify` made, with the result of its last run.

    Parameters
    ----------
    claim : float
        Claimed epsilon or mu.
    delta : float
        Claimed delta.
    alpha : float
        Maximum probability that the test finds a violation although the claim is true.
    is_alpha_given : bool
        Whether the test states `alpha`, so that a session does not change it.
    pair : WorstPair or None
        Worst pair of the last run, and its audit.

    Examples
    --------
    >>> from fastfedrec.mechanisms import GRR
    >>> from fastfedrec.testing import verify
    >>> test = verify(claim=1.0, pairs=[(0, 1)])(GRR(1.0, 3).channel())
    >>> test()
    >>> test.privacy_claim.pair.verdict
    'consistent'
    """

    claim: float
    delta: float
    alpha: float
    is_alpha_given: bool
    pair: WorstPair | None = None


def verify(
    claim: float,
    pairs: "SearchStrategy[tuple[Any, Any]] | Iterable[tuple[Any, Any]]",
    n: int | None = None,
    *,
    delta: float = 0.0,
    measure: str = "auto",
    max_examples: int = 20,
    alpha: float | None = None,
    control: float | None = 0.1,
    check_repeats: bool = True,
) -> Callable[[Any], Callable[[], None]]:
    """Turn a mechanism into a test of its privacy claim.

    Parameters
    ----------
    claim : float
        Claimed epsilon (or mu) of one output; at least 0.
    pairs : SearchStrategy or iterable of pairs
        Neighbouring inputs: a hypothesis strategy, such as `strategies.neighbours`, or the pairs themselves.
    n : int or None
        Number of draws from each input of the worst pair, as in `fastfedrec.audit.search_pairs`.
    delta : float
        Delta of the claim, in [0, 1).
    measure : str
        Unit of the claim, as in `fastfedrec.audit.audit`.
    max_examples : int
        Number of pairs that are drawn from a strategy.
    alpha : float or None
        Maximum probability that the test finds a violation although the claim is true.  None uses `ALPHA`, or the
        test's share of the session's alpha if pytest's option ``privacy_alpha`` is set.
    control : float or None
        Share in (0, 1): a claim lowered by it must be refuted on the worst pair, as in `assert_epsilon`.  None omits
        this negative control, for mechanisms that spend less than their claim on all pairs.
    check_repeats : bool
        True to refute a mechanism that returns the same outputs in two calls, as in `fastfedrec.audit.audit`.

    Returns
    -------
    callable
        Decorator.  The result is a function without arguments that raises an AssertionError with the violating pair.
        Its attribute ``privacy_claim`` is a `PrivacyClaim`.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Notes
    -----
    Half of `alpha` is split evenly over all pairs, which are audited with few draws.  The other half is for the audit
    of the worst pair with new draws.  By the union bound, a true claim is found violated with probability at most
    `alpha`, for all pairs together.  This probability does not include failures of the control.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import DiscreteLaplace
    >>> from fastfedrec.testing import strategies, verify
    >>> counts = strategies.neighbours("counts", "add_remove")
    >>> @verify(claim=1.0, pairs=counts, n=100_000)
    ... def test_noisy_count(x, n):
    ...     return DiscreteLaplace(1.0).privatize(np.full(n, x))
    >>> test_noisy_count()
    >>> @verify(claim=1.0, pairs=counts, n=100_000)
    ... def test_half_the_noise(x, n):
    ...     return DiscreteLaplace(0.5).privatize(np.full(n, x))
    >>> test_half_the_noise()
    Traceback (most recent call last):
    AssertionError: VIOLATED: epsilon is at least 1..., the claim is 1...
    """
    claim = check_real("claim", claim, low=0.0)
    n = None if n is None else check_integer("n", n, low=100)
    delta = check_real("delta", delta, low=0.0)
    max_examples = check_integer("max_examples", max_examples, low=1)
    is_given = alpha is not None
    alpha = ALPHA if alpha is None else check_real("alpha", alpha, low=0.0, high=0.25)
    if alpha == 0:
        raise ValueError("alpha must be greater than 0, got 0.0; a finite number of draws gives no certainty")
    if control is not None:
        control = check_real("control", control, low=0.0, high=1.0, exclusive=True)
    # An iterator can be read only once, and a test may run again.
    is_strategy = hasattr(pairs, "example")
    stated = [] if is_strategy else check_pairs(pairs)
    options: dict[str, Any] = {"delta": delta, "measure": measure, "check_repeats": check_repeats}

    def decorate(mechanism: Any) -> Callable[[], None]:
        state = PrivacyClaim(claim, delta, alpha, is_given)

        # pytest takes arguments of a function for fixtures, so the test has no arguments of the mechanism.
        def test() -> None:
            drawn = _draw_pairs(pairs, max_examples) if is_strategy else stated
            state.pair = search_pairs(mechanism, drawn, claim, n, state.alpha, **options)
            _assert_claim(state.pair, control)

        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(test, name, getattr(mechanism, name, getattr(test, name)))
        setattr(test, CLAIM_ATTRIBUTE, state)
        return test

    return decorate


def _assert_claim(pair: WorstPair, control: float | None) -> None:
    """Raise an AssertionError if a claim is violated, or if the control passes."""
    result = pair.result
    if pair.verdict == "violated":
        raise AssertionError(str(pair))
    shown = result.lower_bound if result.overall is None else result.overall
    if control is not None and not shown > (1 - control) * result.claim:
        raise AssertionError(
            f"control: a claim of {(1 - control) * result.claim:.5g} would pass too, because only {shown:.5g} is "
            "shown; draw more, state pairs further apart, or pass control=None if no inputs spend the claim\n"
            f"{pair}"
        )


def _draw_pairs(strategy: Any, n_pairs: int) -> list[Any]:
    """Return pairs that hypothesis draws, by its current profile."""
    from hypothesis import HealthCheck, Phase, given, settings

    drawn: list[Any] = []

    # Shrinking would repeat audits after a violation, so hypothesis draws all pairs before the first audit.
    @settings(
        max_examples=n_pairs,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(pair: Any) -> None:
        drawn.append(pair)

    collect()
    return drawn
