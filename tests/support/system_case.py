"""The case of a system or a baseline: its settings and properties in the tests of all systems."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastfedrec.systems.recommender import Recommender

#: Unfitted models by a label; the main one has the label "".
Models = Mapping[str, Recommender]


@dataclass(frozen=True, kw_only=True)
class SystemCase:
    """One class. `tests/systems/**/case.py` list the cases, and `support.models` collects them."""

    #: Fits of milliseconds on 80 users and 50 items, for the tests of every model; golden fits are stored by label.
    small: Models
    #: Settings with secure aggregation, which no engine but the local one carries; golden fits are stored by label.
    secure: Models = field(default_factory=dict)
    #: More settings that change the work of a user, and so its division among threads and shards.
    other_work: Models = field(default_factory=dict)

    # Guarantees (`test_claims`).
    #: Settings with a guarantee that holds without users.
    private: Models = field(default_factory=dict)
    #: Settings with a guarantee for a public number of users, which is at least 1.
    private_for_users: Models = field(default_factory=dict)
    #: Settings that hide the value of a rating, but not its user and item.
    private_values: Models = field(default_factory=dict)
    #: Settings with a guarantee and extreme numbers.
    extreme: Models = field(default_factory=dict)
    #: Kinds of trust, in the order of `describe_system`.
    trust: Collection[str] = ("none",)

    # Releases of systems with a trusted server, or of users who randomize their messages.
    #: Settings, and the neighbouring relation that the page proves for all of their releases (`test_relations`).
    relations: Mapping[str, tuple[Recommender, str]] = field(default_factory=dict)
    #: Settings in which a server or an entity adds the noise, and in which users do (`test_released`).
    central: Models = field(default_factory=dict)
    local: Models = field(default_factory=dict)
    #: Settings that sample users for each round (`test_cohorts`).
    sampled: Models = field(default_factory=dict)
    #: Models by a huge rate, or its inverse (`test_huge_rates`).
    of_rate: Mapping[str, Callable[[float], Recommender]] = field(default_factory=dict)

    # Values of users.
    #: Labels of small models without a guarantee that warn if they ignore values.
    ignores_values: Collection[str] = ()
    #: More settings in which the type of one user's values could matter (`test_numbers_of_one_user`).
    one_user: Models = field(default_factory=dict)
    #: The reason why `test_numbers_of_one_user` repeats no round of the class.
    without_rounds: str = ""
    #: Labels of small models that refuse ratings that are all 1.
    refuses_ones: Collection[str] = ()

    # Answers (`test_answers`).
    has_popularity: bool = True
    serves_new_users: bool = True
    scores_are_sums: bool = False  # over the user's items, so that they can be explained
    compares_items: bool = True

    # Parameters.
    #: Parameters that are wrong together, or by a check of the class, with a part of the message. Those of `bad_types`
    #: raise TypeError, the others ValueError.
    bad_values: Collection[tuple[dict[str, Any], str]] = ()
    bad_types: Collection[tuple[dict[str, Any], str]] = ()
    #: Numbers for parameters with the default None, "auto", or a number that half precision rounds (`test_numbers`).
    numbers: Mapping[str, Any] = field(default_factory=dict)
    #: More such numbers, which exclude some of the others.
    more_numbers: Mapping[str, Any] = field(default_factory=dict)
    #: Parameters of NumPy's and other types, for a fit.
    numpy_numbers: Mapping[str, Any] = field(default_factory=dict)
    #: Pairs of a parameter and a number that the constructor or `fit` must refuse.
    impossible: Collection[tuple[str, float]] = ()
    #: Changes to small models by label, which must not affect the models after a fit (`test_fitted_parameters`).
    changes: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def kind(self) -> type[Recommender]:
        return type(self.small[""])
