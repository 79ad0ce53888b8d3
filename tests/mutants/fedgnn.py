"""Mutants of FedGNN: the server's noise and the clients' clipping and noise."""

from mutants.patch import on

WIDTH = "test_released_parameters_have_the_noise_of_the_ledgers_event"
BUDGET = "test_the_guaranteed_ledger_stays_within_its_budget"
STREAMS = "test_a_stream_serves_one_purpose_and_no_word_is_drawn_twice"

FEDGNN = [
    # ---- noise of the server -----------------------------------------------------------------------------------------
    on("FedGNNRounds.apply", WIDTH)(
        "fedgnn-no-noise", "the noise of FedGNN's server is missing",
        "self.noise.release(total, self.key, _NOISE, update.round, 0)", "total * self.noise.step",
    ),
    on("FedGNNRounds.apply", f"{STREAMS}[small: FedGNN]")(
        "fedgnn-same-noise-every-round", "the noise of FedGNN's server is the same in every round",
        "self.noise.release(total, self.key, _NOISE, update.round, 0)",
        "self.noise.release(total, self.key, _NOISE, 0, 0)",
    ),
    # ---- clipping ----------------------------------------------------------------------------------------------------
    on("FedGNNRounds._add_clipped", "test_a_guaranteed_client_moves_the_sum_within_its_bound")(
        "fedgnn-unclipped", "gradients in FedGNN are not clipped",
        "clip_factors(gradients, entries.indptr, self.noise.clip_norm)", "np.ones(len(rows))",
    ),
    on("clip_factors", "test_a_guaranteed_client_moves_the_sum_within_its_bound")(
        "fedgnn-clips-layer-alone", "the clipped norm in FedGNN omits the item rows",
        "np.where(np.diff(indptr) > 0, client_squares, 0.0)", "0 * client_squares",
    ),
    on("clip_factors", "test_a_gradient_that_is_not_finite_counts_as_zero")(
        "fedgnn-infinite", "non-finite gradients pass FedGNN's clipping", "np.where(np.isfinite(norms), factors, 0.0)",
        "factors",
    ),
    # ---- claims in the ledger ----------------------------------------------------------------------------------------
    on("FedGNN._noise", BUDGET)(
        "fedgnn-budget-exceeded", "the epsilon of FedGNN's noise exceeds the budget by a tenth",
        "self.epsilon * (1 - 1e-06)", "self.epsilon * 1.1",
    ),
    on("FedGNN._n_graph_neighbors", BUDGET)(
        "fedgnn-guaranteed-neighbors", "the gradients of guaranteed clients depend on their neighbours' data",
        "self.n_neighbors if self._is_published else 0", "self.n_neighbors",
    ),
    on("FedGNNRounds.event", "test_the_published_ledger_claims_no_guarantee_and_states_each_partys_view")(
        "fedgnn-published-called-private", "messages of published FedGNN are recorded with a guarantee",
        'Unprotected("each user\'s gradients, with noise on every number, and which items they are of, among others")',
        "Gaussian(1.0, neighboring='replace', sampling='none')",
    ),
    on("PublishedNoise.draw", "test_every_number_has_the_noise_of_the_ledger")(
        "fedgnn-local-noise-less", "the noise of published clients is a tenth below its recorded scale",
        "laplace_table(self.mechanism.scale)", "laplace_table(self.mechanism.scale * Fraction(9, 10))",
    ),
    on("PublishedNoise.draw", "test_users_and_rounds_draw_independent_noise")(
        "fedgnn-local-noise-alike", "all published clients add the same noise",
        "key.ragged_words(_LOCAL_NOISE, users, 2 * sizes, round=round_number, n_threads=n_threads)",
        "key.ragged_words(_LOCAL_NOISE, 0 * users, 2 * sizes, round=round_number, n_threads=n_threads)",
    ),
    on("FedGNN.fit", "test_the_published_ledger_claims_no_guarantee_and_states_each_partys_view")(
        "fedgnn-third-party-not-noted", "the third party is missing from the ledger",
        "n_neighbors=self._n_graph_neighbors if len(phases) > 1 else 0", "n_neighbors=0",
    ),
]  # fmt: skip
