"""Mutants of DPGram's measurements of candidates on devices and of the decisions."""

from mutants.central import COST, WIDTH
from mutants.patch import on

UNIT = "test_no_contribution_exceeds_the_unit_for_any_state"
ALONE = "test_an_answer_depends_on_no_other_user"
STRIDE = "test_one_of_stride_users_takes_part"
STREAMS_APART = "test_no_two_measurements_draw_from_one_stream"
OPPOSITE = "test_it_is_a_sum_with_the_cost_of_two_opposite_answers"
BEATS = "test_a_candidate_has_to_beat_popularity_with_the_rest_of_the_budget"
FOLLOWS = "test_the_decision_follows_from_the_releases_and_not_from_the_data"
FIELDS = "_unit, _field = UNIT, 'hits'"

MEASUREMENT = [
    on("HitSum", STREAMS_APART, f"{WIDTH}[DPGram]")(
        "hits-no-noise", "DPGram's measurement has no noise", FIELDS,
        f"""
        {FIELDS}

        def apply(self, state, update):
            return type(state)(**(vars(state) | {{"noisy": update.arrays["hits"]}}))
        """,
    ),
    on("HitSum._purpose", STREAMS_APART)(
        "hits-same-noise", "both of DPGram's measurements draw from one stream", "f'{self._stream}.{self.number}'",
        "self._stream",
    ),
    on("HitSum._sums", UNIT)(
        "hits-not-clipped", "a user's answer is as long as its differences are",
        "_clipped(np.stack(differences, axis=1)).sum(axis=0)",
        "(np.stack(differences, axis=1) * UNIT).astype(np.int64).sum(axis=0)",
    ),
    on("HitSum._sums", UNIT)(
        "hits-of-two-units", "a user's answer counts twice", "_clipped(np.stack(differences, axis=1)).sum(axis=0)",
        "2 * _clipped(np.stack(differences, axis=1)).sum(axis=0)",
    ),
    on("_clipped", UNIT)(
        "hits-rounded-beyond-the-unit", "a user's answer is rounded away from 0 and not looked at again",
        """
        whole = np.trunc(finite / norms * UNIT).astype(np.int64)
        whole[np.square(whole).sum(axis=1) > UNIT**2] //= 2
        """,
        "whole = (np.sign(finite) * np.ceil(np.abs(finite) / norms * UNIT)).astype(np.int64)",
    ),
    on("HitSum", BEATS)(
        "hits-unit-too-small", "the sensitivity of DPGram's measurement is halved", FIELDS,
        "_unit, _field = UNIT // 2, 'hits'",
    ),
    on("_hashes", ALONE)(
        "hits-hash-of-earlier-users", "which item a user holds out depends on the rows before",
        "np.diff(ends[rows.indptr])", "ends[rows.indptr[1:]]",
    ),
    on("HitSum._sums", STRIDE)(
        "hits-stride-by-position", "whether a user takes part depends on how many rows are before",
        "hashes // 2**16 % self.stride == 0", "np.arange(shard.n_users) % self.stride == 0",
    ),
    on("HitSum._sums", STRIDE)(
        "hits-stride-by-all-rows", "whether a user takes part depends on the rows of others",
        "hashes // 2**16 % self.stride == 0", "(hashes + hashes.sum()) // 2**16 % self.stride == 0",
    ),
    on("HitSum", OPPOSITE)(
        "hits-replaced-for-less", "answers of two users are said to be sqrt(2) apart at most", FIELDS,
        f"""
        {FIELDS}
        replace_sensitivity = math.sqrt(2)
        """,
    ),
    on("planned_rounds", f"{COST}[DPGram]", "test_the_budget_is_met_by_two_accountants")(
        "hits-are-free", "DPGram's measurements cost their share on top of the budget",
        "remaining_share - pair_share - 2 * measured", "remaining_share - pair_share",
    ),
    on("MeasuredModel._release_pairs", FOLLOWS)(
        "hits-decide-exactly", "the exact sums of a measurement decide",
        "system.decide(sums, self._public_users(data), mean.spared(precision_of(todo)))",
        "system.decide(system._sums(state, data, 1), self._public_users(data), mean.spared(precision_of(todo)))",
    ),
    on("HitSum.decide", BEATS)(
        "hits-error-of-half-the-noise", "a measurement states half the error of its gain",
        "self.width / n_measured * math.sqrt(1 + spared**2 + (best != self.candidates[0]))",
        "self.width / 2 / n_measured * math.sqrt(1 + spared**2 + (best != self.candidates[0]))",
    ),
    on("HitSum.decide", BEATS)(
        "hits-popularity-as-it-is", "a candidate need not beat popularity with the rest of the budget",
        "gain = scores[best] - scores[popularity]", "gain = scores[best]",
    ),
]  # fmt: skip
