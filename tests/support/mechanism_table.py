"""Table of every public mechanism that randomizes, for tests of all of them.

A mechanism with a nominal epsilon states a small instance in its class (`_example`).  Entries are built on use, in the
test, so that a failing constructor fails its test only.
"""

import functools

import numpy as np

from fastfedrec import mechanisms as m

GRID = [1, 2, 3, 4, 5]

#: Classes that state an example, by name.
EXAMPLES = {name: kind for name in m.__all__ if hasattr(kind := getattr(m, name), "_example")}
#: Randomizers with a nominal epsilon.  A name is the class, and after a space the constructor.
RANDOMIZERS = {
    **{name: functools.partial(kind, **kind._example[0]) for name, kind in EXAMPLES.items()},
    "RoundedLaplace beyond the grid": lambda epsilon: m.RoundedLaplace(epsilon, GRID, margin=12),
    "MixtureLaplaceRR": lambda epsilon: m.MixtureLaplaceRR(epsilon / 2, epsilon / 2, GRID),
}
#: Other reports, with an epsilon that is not a report's cost.
OTHERS = {
    "Channel": lambda epsilon: m.GRR(epsilon, 5).channel(),
    "SerialLaplaceRR": lambda epsilon: m.SerialLaplaceRR(epsilon, 1.0, GRID),
    "PublishedLaplaceRR": lambda epsilon: m.PublishedLaplaceRR(epsilon, 1.0),
}
#: Noise on integers.
NOISES = {
    "DiscreteLaplace": lambda: m.DiscreteLaplace(10**6),
    "DiscreteLaplace by table": lambda: m.DiscreteLaplace(1000, sampler="table"),
    "DiscreteGaussian": lambda: m.DiscreteGaussian(10**6),
    "DiscreteGaussian by table": lambda: m.DiscreteGaussian(1000, sampler="table"),
    "RoundedGaussian": lambda: m.RoundedGaussian(1000),
    "LayeredGaussian": lambda: m.LayeredGaussian(2**36),
    "Skellam": lambda: m.Skellam(10**6),
}
#: Choices of one of several scores.
CHOICES = {
    "ExponentialMechanism": lambda: m.ExponentialMechanism(1.0),
    "ExponentialMechanism by Gumbel noise": lambda: m.ExponentialMechanism(1.0, sampler="gumbel"),
}
#: All of them, in small sizes.
MAKERS = {
    **{name: lambda make=make: make(1.0) for name, make in (RANDOMIZERS | OTHERS).items()},
    **NOISES,
    **CHOICES,
}

ORACLES = tuple(name for name, kind in EXAMPLES.items() if hasattr(kind, "support"))
REALS = tuple(name for name, kind in EXAMPLES.items() if isinstance(kind._example[1][0], float))


def values_of(name, n):
    """Return inputs of a mechanism: real numbers if it accepts them, and positions or integers otherwise."""
    if name in REALS:
        return np.linspace(-1, 1, n)
    return np.linspace(0, 1, n) if name == "PublishedLaplaceRR" else np.arange(n) % 5


#: Every call that draws from a key.
WAYS = {
    **{name: lambda key, n=name: MAKERS[n]().privatize(values_of(n, 3), key=key) for name in MAKERS},
    "OUE.privatize_support": lambda key: m.OUE(1.0, 5).privatize_support([0, 1], key=key),
    "LargestResponse": lambda key: m.LargestResponse(1.0).privatize(
        np.eye(4)[:3], key=key
    ),  # reports about vectors only here
}
#: Calls after which the key remains usable, by purpose of its claim.
PARTS = {
    **{f"{n}.add_noise": lambda key, n=n: NOISES[n]().add_noise(np.ones(3, int), key=key, purpose="x") for n in NOISES},
    **{f"{n}.sample": lambda key, n=n: NOISES[n]().sample(3, key=key, purpose="x") for n in NOISES},
}


def class_of(name):
    """Return the name of the class of a line of the table."""
    return name.split()[0].split(".")[0]
