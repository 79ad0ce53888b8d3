"""DPGram's measurements of candidates by devices, and the decision that each makes."""

from mutants.central import COST, WIDTH
from mutants.patch import Mutant

UNIT = "test_no_contribution_exceeds_the_unit_for_any_state"
ALONE = "test_an_answer_depends_on_no_other_user"
STRIDE = "test_one_of_stride_users_takes_part"
STREAMS_APART = "test_no_two_measurements_draw_from_one_stream"
OPPOSITE = "test_it_is_a_sum_with_the_cost_of_two_opposite_answers"
BEATS = "test_a_candidate_has_to_beat_popularity_with_the_rest_of_the_budget"
FOLLOWS = "test_the_decision_follows_from_the_releases_and_not_from_the_data"
FIELDS = "_unit, _field = UNIT, 'hits'"

MEASUREMENT = [
    Mutant(
        "hits-no-noise", "DPGram's measurement has no noise", "HitSum",
        FIELDS,
        f"""
        {FIELDS}

        def apply(self, state, update):
            return type(state)(**(vars(state) | {{"noisy": update.arrays["hits"]}}))
        """,
        (STREAMS_APART, f"{WIDTH}[DPGram]"),
    ),
    Mutant(
        "hits-same-noise", "both of DPGram's measurements draw from one stream", "HitSum._purpose",
        "f'{self._stream}.{self.number}'",
        "self._stream",
        (STREAMS_APART,),
    ),
    Mutant(
        "hits-not-clipped", "a user's answer is as long as its differences are", "HitSum._sums",
        "_clipped(np.stack(differences, axis=1)).sum(axis=0)",
        "(np.stack(differences, axis=1) * UNIT).astype(np.int64).sum(axis=0)",
        (UNIT,),
    ),
    Mutant(
        "hits-of-two-units", "a user's answer counts twice", "HitSum._sums",
        "_clipped(np.stack(differences, axis=1)).sum(axis=0)",
        "2 * _clipped(np.stack(differences, axis=1)).sum(axis=0)",
        (UNIT,),
    ),
    Mutant(
        "hits-rounded-beyond-the-unit", "a user's answer is rounded away from 0 and not looked at again", "_clipped",
        """
        whole = np.trunc(finite / norms * UNIT).astype(np.int64)
        whole[np.square(whole).sum(axis=1) > UNIT**2] //= 2
        """,
        "whole = (np.sign(finite) * np.ceil(np.abs(finite) / norms * UNIT)).astype(np.int64)",
        (UNIT,),
    ),
    Mutant(
        "hits-unit-too-small", "the sensitivity of DPGram's measurement is halved", "HitSum",
        FIELDS,
        "_unit, _field = UNIT // 2, 'hits'",
        (BEATS,),
    ),
    Mutant(
        "hits-hash-of-earlier-users", "which item a user holds out depends on the rows before", "_hashes",
        "np.diff(ends[rows.indptr])",
        "ends[rows.indptr[1:]]",
        (ALONE,),
    ),
    Mutant(
        "hits-stride-by-position", "whether a user takes part depends on how many rows are before", "HitSum._sums",
        "hashes // 2**16 % self.stride == 0",
        "np.arange(shard.n_users) % self.stride == 0",
        (STRIDE,),
    ),
    Mutant(
        "hits-stride-by-all-rows", "whether a user takes part depends on the rows of others", "HitSum._sums",
        "hashes // 2**16 % self.stride == 0",
        "(hashes + hashes.sum()) // 2**16 % self.stride == 0",
        (STRIDE,),
    ),
    Mutant(
        "hits-replaced-for-less", "answers of two users are said to be sqrt(2) apart at most", "HitSum",
        FIELDS,
        f"""
        {FIELDS}
        replace_sensitivity = math.sqrt(2)
        """,
        (OPPOSITE,),
    ),
    Mutant(
        "hits-are-free", "DPGram's measurements cost their share on top of the budget", "planned_rounds",
        "remaining_share - pair_share - 2 * measured",
        "remaining_share - pair_share",
        (f"{COST}[DPGram]", "test_the_budget_is_met_by_two_accountants"),
    ),
    Mutant(
        "hits-decide-exactly", "the exact sums of a measurement decide", "MeasuredModel._release_pairs",
        "system.decide(sums, self._public_users(data), mean.spared(precision_of(todo)))",
        "system.decide(system._sums(state, data, 1), self._public_users(data), mean.spared(precision_of(todo)))",
        (FOLLOWS,),
    ),
    Mutant(
        "hits-error-of-half-the-noise", "a measurement states half the error of its gain", "HitSum.decide",
        "self.width / n_measured * math.sqrt(1 + spared**2 + (best != self.candidates[0]))",
        "self.width / 2 / n_measured * math.sqrt(1 + spared**2 + (best != self.candidates[0]))",
        (BEATS,),
    ),
    Mutant(
        "hits-popularity-as-it-is", "a candidate need not beat popularity with the rest of the budget", "HitSum.decide",
        "gain = scores[best] - scores[popularity]",
        "gain = scores[best]",
        (BEATS,),
    ),
]  # fmt: skip
