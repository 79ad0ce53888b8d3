"""The gate of DPGram and DPSubspace that looks at their first release, and the mean that is then released again."""

from mutants.central import ALIKE
from mutants.patch import Mutant

COURSES = "test_either_course_costs_no_more_than_was_asked_for"
NO_DEARER = "test_the_mean_again_is_no_dearer_than_what_it_stands_for"

MEAN_GATE = [
    *(
        Mutant(
            f"mean-gate-same-noise-{name}", f"{system}'s mean is released again with the noise of the first time",
            "ShareSumAgain._purpose",
            f"_purpose = '{name}.item_shares_again'",
            f"_purpose = '{name}.item_shares'",
            (f"{ALIKE}[{system}, closed]",),
        )
        for name, system in (("dp_gram", "DPGram"), ("dp_subspace", "DPSubspace"))
    ),
    Mutant(
        "mean-gate-dearer", "the mean again costs a thousandth more than what it stands for", "in_place_of",
        "kind._unit / mu",
        "kind._unit / mu / 1.001",
        (NO_DEARER,),
    ),
    Mutant(
        "mean-gate-whole-budget", "the mean again is as wide as if nothing had been released before", "again",
        "in_place_of(phases[1:], kind, phases[0].state)",
        "in_place_of(phases, kind, phases[0].state)",
        (COURSES, NO_DEARER),
    ),
    Mutant(
        "mean-gate-draws-for-nothing", "the mean again pays for fewer draws than it makes", "in_place_of",
        "max(noise.total_distance(math.prod(system._shape(state))), paid)",
        "noise.total_distance(1)",
        (NO_DEARER,),
    ),
    Mutant(
        "mean-gate-counts-its-users", "the gate counts the users in the data, not the public number",
        "MeanGated._release_mean",
        "self._public_users(data) * gaussian_mu(self.epsilon, self.delta)",
        "data.n_users * gaussian_mu(self.epsilon, self.delta)",
        ("test_the_gate_counts_the_public_number_of_users",),
    ),
    Mutant(
        "mean-gate-looks-at-data", "the gate looks at the exact mean", "MeanGated._release_mean",
        "reach_of(strength, self.item_means_, noise)",
        "reach_of(strength, np.bincount(data.indices, minlength=data.n_items) / data.n_users, 0.0)",
        ("test_the_gate_looks_at_nothing_but_what_was_released",),
    ),
    Mutant(
        "dpgram-refined-by-data", "whether DPGram releases a third time is decided by the exact rows",
        "DPGram._course",
        "reach >= LEAST_REFINED",
        "self.interactions_.n_interactions >= 10 * self.interactions_.n_users",
        ("test_the_gate_looks_at_nothing_but_what_was_released[DPGram auto-False]",),
    ),
    Mutant(
        "dpgram-pairs-alone-dearer", "pairs alone have the noise that they have beside a mean of no cost",
        "DPGram._courses",
        "in_place_of(phases[1:], PairSum, pairs.state, len(courses) - 1)",
        "in_place_of(phases, PairSum, pairs.state, len(courses) - 1)",
        ("test_the_released_mean_decides_on_a_third_release", "test_pairs_alone_are_no_dearer_than_two_releases"),
    ),
    Mutant(
        "dpgram-pairs-again-same-noise", "pairs are released again with the noise of the first time",
        "PairSumAgain._purpose",
        "_purpose = 'dp_gram.item_pairs_again'",
        "_purpose = 'dp_gram.item_pairs'",
        ("test_no_two_releases_of_pairs_have_noise_in_common",),
    ),
    Mutant(
        "dpgram-third-dearer", "what comes third by features costs what two releases may", "DPGram._courses",
        "in_place_of(phases[2:], kind, state, len(courses) - 1)",
        "in_place_of(phases[1:], kind, state, len(courses) - 1)",
        ("test_features_that_tell_have_the_pairs_released_twice_at_the_same_cost",),
    ),
    Mutant(
        "dpgram-features-by-data", "what comes third is decided by the exact pairs", "DPGram._release",
        "tell(features, pairs, mean)",
        "tell(features, symmetric(of_pairs._sums(GramState(grid), data, 1) / UNIT), mean)",
        ("test_what_decides_is_what_was_released",),
    ),
]  # fmt: skip
