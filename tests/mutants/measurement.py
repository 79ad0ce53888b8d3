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
    # ---- noise and sensitivity ---------------------------------------------------------------------------------------
    on("HitSum", STREAMS_APART, f"{WIDTH}[DPGram]")(
        "hits-no-noise", "DPGram's measurements are released without noise", FIELDS,
        f"""
        {FIELDS}

        def apply(self, state, update):
            return type(state)(**(vars(state) | {{"noisy": update.arrays["hits"]}}))
        """,
    ),
    on("HitSum._purpose", STREAMS_APART)(
        "hits-same-noise", "DPGram's two measurements share one random stream", "f'{self._stream}.{self.number}'",
        "self._stream",
    ),
    on("HitSum._sums", UNIT)(
        "hits-not-clipped", "a user's answer is not clipped", "_clipped(np.stack(differences, axis=1)).sum(axis=0)",
        "(np.stack(differences, axis=1) * UNIT).astype(np.int64).sum(axis=0)",
    ),
    on("HitSum._sums", UNIT)(
        "hits-of-two-units", "a user's answer is counted twice", "_clipped(np.stack(differences, axis=1)).sum(axis=0)",
        "2 * _clipped(np.stack(differences, axis=1)).sum(axis=0)",
    ),
    on("_clipped", UNIT)(
        "hits-rounded-beyond-the-unit", "a user's rounded answer may exceed the norm bound",
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
    # ---- user-level sensitivity --------------------------------------------------------------------------------------
    on("_hashes", ALONE)(
        "hits-hash-of-earlier-users", "a user's held-out item depends on other users' rows",
        "np.diff(ends[rows.indptr])", "ends[rows.indptr[1:]]",
    ),
    on("HitSum._sums", STRIDE)(
        "hits-stride-by-position", "the participation of a user depends on the number of earlier rows",
        "hashes // 2**16 % self.stride == 0", "np.arange(shard.n_users) % self.stride == 0",
    ),
    on("HitSum._sums", STRIDE)(
        "hits-stride-by-all-rows", "the participation of a user depends on other users' rows",
        "hashes // 2**16 % self.stride == 0", "(hashes + hashes.sum()) // 2**16 % self.stride == 0",
    ),
    on("HitSum", OPPOSITE)(
        "hits-replaced-for-less", "the replace sensitivity of answers is understated as sqrt(2)", FIELDS,
        f"""
        {FIELDS}
        replace_sensitivity = math.sqrt(2)
        """,
    ),
    # ---- budget and decision -----------------------------------------------------------------------------------------
    on("planned_rounds", f"{COST}[DPGram]", "test_the_budget_is_met_by_two_accountants")(
        "hits-are-free", "the cost of DPGram's measurements is not subtracted from the budget",
        "remaining_share - pair_share - 2 * measured", "remaining_share - pair_share",
    ),
    on("MeasuredRelease._release_pairs", FOLLOWS)(
        "hits-decide-exactly", "the decision uses the exact sums of a measurement",
        "system.decide(sums, self.n_users, mean.spared(precision_of(todo)))",
        "system.decide(system._sums(state, data, fit.key, 1)['hits'], self.n_users, "
        "mean.spared(precision_of(todo)))",
    ),
    on("HitSum.decide", BEATS)(
        "hits-error-of-half-the-noise", "the standard error of a measured gain is halved",
        "self.width / n_measured * math.sqrt(1 + spared**2 + (best != self.candidates[0]))",
        "self.width / 2 / n_measured * math.sqrt(1 + spared**2 + (best != self.candidates[0]))",
    ),
    on("HitSum.decide", BEATS)(
        "hits-not-compared-with-popularity", "the gain of a candidate is not compared with popularity's score",
        "gain = scores[best] - scores[popularity]", "gain = scores[best]",
    ),
]  # fmt: skip
