"""Mutants of DPSubspace, in which a trusted server adds noise to sums of projections."""

from mutants.central import COST, DATA, EQUAL, FOLLOWS, FRESH, TRACE
from mutants.patch import on

TWIN = "test_projected_sums_equal_naive_twin"
NORM = "test_no_projected_row_is_longer_than_the_bound"

SUBSPACE = [
    # ---- sensitivity -------------------------------------------------------------------------------------------------
    on("SubspaceSum._unit", "test_no_event_states_more_noise_than_is_added[DPSubspace]")(
        "subspace-unit-one-too-small", "the sensitivity of DPSubspace is one step too small", "_unit = UNIT",
        "_unit = UNIT - 1",
    ),
    on("ProjectionSum._sums", TWIN, NORM)(
        "subspace-norm-above-the-unit", "a projected row is scaled to a norm that is a step too large", "UNIT",
        "UNIT + UNIT // 100",
    ),
    on("ProjectionSum._sums", TWIN, NORM, "test_an_items_projection_excludes_the_item")(
        "subspace-own-item-stays", "an item's product with itself remains in the sums but not in the norm",
        "_kernel.center_rows(mean, encoder, totals, item_weights, sums, n_threads)",
        "_kernel.center_rows(mean, encoder, totals, np.zeros_like(item_weights), sums, n_threads)",
    ),
    on("ProjectionSum._sums", TWIN)(
        "subspace-norm-of-another-row", "the norm is computed before the row is centred",
        "no_user = _kernel.EmptyRow(mean, encoder, squares)",
        "no_user = _kernel.EmptyRow(np.zeros_like(mean), encoder, squares)",
    ),
    on("ProjectionSum._sums", TWIN, NORM)(
        "subspace-norm-by-another-encoder", "the norm is computed for an encoder other than the integer encoder",
        "no_user = _kernel.EmptyRow(mean, encoder, squares)",
        """
        no_user = _kernel.EmptyRow(mean, encoder, squares)
        squares //= 2
        """,
    ),
    # ---- noise and budget --------------------------------------------------------------------------------------------
    on("DPSubspace._plan", f"{DATA}[DPSubspace]")(
        "subspace-noise-by-users", "the noise of DPSubspace depends on the private number of interactions",
        "self._phases_at(mu, n_items, n_measured, key, source)",
        "self._phases_at(mu * (1 + data.n_interactions / 10**5), n_items, n_measured, key, source)",
    ),
    on("planned_rounds", f"{COST}[DPSubspace]")(
        "subspace-rounds-whole", "the whole budget is spent in each DPSubspace round",
        "phases.append(planned_phase(kind, state, mu * math.sqrt(share), key, source, **options))",
        "phases.append(planned_phase(kind, state, mu, key, source, **options))",
    ),
    on("planned_rounds", f"{COST}[DPSubspace]")(
        "subspace-measurements-are-free", "the cost of DPSubspace's measurements is not subtracted from the budget",
        "(remaining_share - n_measured * measured) * part / sum(parts)", "remaining_share * part / sum(parts)",
    ),
    on("RepeatedShareSum._purpose", "test_no_two_rounds_draw_from_one_stream[DPSubspace]")(
        "subspace-repeated-mean-same-noise", "the mean that replaces projections shares the first mean's noise",
        "_purpose = 'dp_subspace.item_shares_again'", "_purpose = 'dp_subspace.item_shares'",
    ),
    on("ProjectionSum._purpose", f"{FRESH}[DPSubspace]", "test_rounds_draw_independent_noise")(
        "subspace-same-noise", "all projections of DPSubspace share one random stream",
        "return f'dp_subspace.item_projections.{self.number}'", "return 'dp_subspace.item_projections'",
    ),
    on("DPSubspace._begin", f"{TRACE}[DPSubspace]")(
        "subspace-fits-by-its-users", "the fitted matrix depends on the private number of users",
        "Projections(self._public_users(data), centre, priors)", "Projections(data.n_users, centre, priors)",
    ),
    # ---- checks of the server state ----------------------------------------------------------------------------------
    on("SubspaceSum._objection", "test_devices_answer_no_state_that_the_norm_is_not_bounded_for")(
        "subspace-answers-any-mean", "DPSubspace's users accept a mean without a bounded norm",
        "len(mean) and (mean.min() < 0 or mean.max() > SCALE or int(mean @ mean) > SCALE ** 2)", "False",
    ),
    on(
        "SubspaceSum._objection", "test_devices_answer_no_state_that_the_norm_is_not_bounded_for",
        "test_an_encoder_or_mean_that_no_norm_is_bounded_for_is_refused",
    )(
        "subspace-answers-any-encoder", "DPSubspace's users accept an encoder without a bounded norm",
        "encoder.size and (encoder.min() < -FINEST or encoder.max() > FINEST)", "False",
    ),
    on("DPSubspace._begin", f"{FOLLOWS}[DPSubspace, features]", f"{EQUAL}[DPSubspace, features]")(
        "subspace-features-weighed-by-exact-counts", "the weights of features depend on exact item counts",
        "prior_factors(features, centre)",
        "prior_factors(features, centre + np.bincount(data.indices, minlength=data.n_items))",
    ),
]  # fmt: skip
