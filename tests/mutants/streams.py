"""Mutants in which two draws share a random stream, or one key makes a message twice."""

from mutants.patch import on

PURPOSE = "test_a_stream_serves_one_purpose_and_no_word_is_drawn_twice"
CHOICES = "test_rounds_and_keys_choose_apart"
CALL = "test_an_entropy_key_serves_one_call_of_any_way_to_randomize"
REUSE = "test_an_entropy_key_makes_no_message_twice"

STREAMS = [
    # ---- public values that share random words with private data -----------------------------------------------------
    on("FMFRounds.initial_state", f"{PURPOSE}[small: FMFLDP]")(
        "fmf-ldp-start-shares-words", "FMF-LDP's public first factors share random words with users' reports",
        "key.normal(_START, size=n_items * self.n_factors)", "key.normal(_REPORTS, size=n_items * self.n_factors)",
    ),
    on("FMFRounds.initial_state", f"{PURPOSE}[small: FMFLDP, rotated]")(
        "fmf-ldp-rotation-shares-words", "FMF-LDP's public rotation seed shares random words with users' reports",
        "key.words(_ROTATION, size=1)", "key.words(_REPORTS, size=1)",
    ),
    on("SketchRound.initial_state", f"{PURPOSE}[small: ShuffledSketchGram]")(
        "sketch-signs-share-words", "ShuffledSketchGram's public signs share random words with users' reports",
        "key.words(self._purpose('signs'), size=-(-math.prod(shape) // 64))",
        "key.words(self._purpose('reports'), size=-(-math.prod(shape) // 64))",
    ),
    on("RatingRounds.initial_state", f"{PURPOSE}[small: LaplaceRRSVD]")(
        "laplace-rr-seed-shares-words", "LaplaceRRSVD's training seed shares random words with users' reports",
        "key.words(_SEED, size=1)", "key.words(_REPORTS, size=1)",
    ),
    on("draw_examples", f"{PURPOSE}[private_for_users: PrivRec]")(
        "examples-of-all-rounds-share-words", "a client's negatives of all rounds are the same",
        "key.ragged_words(purpose, global_user_ids, n_negatives, round=round, n_threads=n_threads)",
        "key.ragged_words(purpose, global_user_ids, n_negatives, round=0, n_threads=n_threads)",
    ),
    on("FedRecRounds.initial_state", f"{PURPOSE}[central: FedRec]")(
        "fedrec-seed-shares-words", "FedRec's cohort seed shares random words with the noise",
        "key.words(_SEED, size=1)", "key.words('fedrec.noise', size=1)",
    ),
    on("FedRecRounds.initial_state", f"{PURPOSE}[central: FedRec]")(
        "fedrec-items-share-words", "FedRec's first item factors share random words with users' masks",
        "key.uniform(_ITEMS, size=self.n_items * training.n_factors)",
        "key.uniform(_MASKS, size=self.n_items * training.n_factors)",
    ),
    # ---- two secrets with the same random words ----------------------------------------------------------------------
    on("CentralPrivacy.divisors", f"{PURPOSE}[central: FedRec]")(
        "fedrec-counts-share-noise", "FedRec's counts of raters share noise with the first sums",
        "self.count_noise.add_noise(counts, key=key, purpose=_COUNT_NOISE)",
        "self.count_noise.add_noise(counts, key=key, purpose=_NOISE)",
    ),
    on("fill_hybrid", f"{PURPOSE}[small: FedRec]")(
        "fedrec-virtual-share-masks", "the virtual items share random words with the users' masks",
        "key.subkey(_VIRTUAL)", "key.subkey('fedrec.masks')",
    ),
    on("RatingRounds._choose", f"{PURPOSE}[small: LaplaceRRSVD]")(
        "laplace-rr-choice-shares-words", "the selection of ratings shares random words with their reports",
        "key.subkey(_CHOICE)", "key.subkey(_REPORTS)",
    ),
    on("DPPopularity._release_centrally", f"{PURPOSE}[small: DPPopularity]")(
        "popularity-subset-shares-words", "the selection of a user's counted items shares random words with the noise",
        "key.subkey(_SUBSET)", "key.subkey(_NOISE)",
    ),
    on("_above_threshold", f"{PURPOSE}[choose_items]")(
        "choice-noise-shares-words", "the noise of a selection shares random words with the sample of users' items",
        "noise.sample(len(counted), key=key, purpose=_NOISE)", "noise.sample(len(counted), key=key, purpose=_SUBSET)",
    ),
    on("grid_candidates", f"{PURPOSE}[grid_candidates]")(
        "grid-cubes-share-noise", "all cubes of the candidate grid share the same noise",
        "stream = round_number << 16 | shift << 8", "stream = round_number << 16",
    ),
    on("grid_candidates", f"{PURPOSE}[grid_candidates]")(
        "grid-levels-share-noise", "all levels of a cube of the candidate grid share the same noise",
        "round=stream | level", "round=stream",
    ),
    on("PrototypeRounds._cluster", f"{PURPOSE}[central: PrivatePrototypes, clusters]")(
        "entities-share-swaps", "all entities share the random words of cluster swaps",
        "private_kmeans(points, candidates, n_prototypes, radius=radius, n_swaps=N_SWAPS, epsilon=swap_epsilon,"
        " key=key, round=entity, n_threads=n_threads)",
        "private_kmeans(points, candidates, n_prototypes, radius=radius, n_swaps=N_SWAPS, epsilon=swap_epsilon,"
        " key=key, round=0, n_threads=n_threads)",
    ),
    on("PrototypeRounds._cluster", f"{PURPOSE}[central: PrivatePrototypes, clusters]")(
        "entities-share-cells", "all entities share the noise on grid cells",
        "grid_candidates(points, n_candidates, radius=radius, depth=GRID_DEPTH, n_shifts=1, epsilon=level_epsilon,"
        " key=key, round=entity)",
        "grid_candidates(points, n_candidates, radius=radius, depth=GRID_DEPTH, n_shifts=1, epsilon=level_epsilon,"
        " key=key, round=0)",
    ),
    on("ExponentialMechanism._peel", f"{CHOICES}[exact]")(
        "selection-same-round", "the exact sampler's random words are the same in every round",
        "words(key, self._purpose, round_number)", "words(key, self._purpose, 0)",
    ),
    on("ExponentialMechanism._largest_noisy", f"{CHOICES}[gumbel]")(
        "selection-gumbel-same-round", "Gumbel noise is the same in every round", "round=round_number", "round=0",
    ),
    # ---- repeated messages and predictable orders --------------------------------------------------------------------
    on("SketchRound.report_stream", f"{REUSE}[ShuffledSketchGram]")(
        "sketch-stream-key-reused", "an entropy key may be reused for a stream of sketched reports",
        "key.claim_message(self._purpose('reports'), round, sender)", "pass",
    ),
    on("FMFRounds.report_stream", f"{REUSE}[FMFLDP]")(
        "fmf-ldp-stream-key-reused", "an entropy key may be reused for a stream of FMF-LDP reports",
        "key.claim_message(_REPORTS, round, sender)", "pass",
    ),
    on("RatingRounds.local_round", f"{REUSE}[LaplaceRRSVD]")(
        "laplace-rr-key-reused", "an entropy key may be reused for a shard's ratings",
        "key.claim_message(_REPORTS, round, sender)", "pass",
    ),
    on("FedRecRounds.local_round", f"{REUSE}[FedRec]", f"{REUSE}[FedRecPlusPlus]")(
        "fedrec-key-reused", "an entropy key may be reused for a shard's gradients and masks",
        "key.claim_message(_ROUND, round_number, sender)", "pass",
    ),
    on("SketchRound.report_stream", "test_a_stream_of_sketched_reports_is_shuffled")(
        "sketch-order-of-the-key", "the shuffler's permutation is derived from the reports' key",
        "resolve_key(shuffle_key)", "key",
    ),
    on(
        "Randomizer._release",
        *(
            f"{CALL}[{name}]"
            for name in (
                "OptimalKary", "BinaryResponse", "Hybrid", "SubsetSelection", "LayeredGaussian", "ExponentialMechanism"
            )
        ),
    )(
        "reports-key-reused", "an entropy key may be reused for reports, noise and selections",
        "claim_call(f'{type(self).__name__}.privatize', key, round, n_threads)", "(key, round, 1)",
    ),
    on("OUE.privatize_support", f"{CALL}[OUE.privatize_support]")(
        "oue-support-key-reused", "an entropy key may be reused for sums of OUE reports",
        "claim_call('OUE.privatize_support', key, round, n_threads)", "(key, round, 1)",
    ),
    on("OUE.privatize_support", "test_support_adds_up_over_shards_and_needs_no_reports_for_oue")(
        "oue-support-same-round", "sums of OUE's reports are the same in every round",
        "_kernel.add_bits(codes, sums, key.subkey(self._purpose), self.q_count, round_number, n_threads)",
        "_kernel.add_bits(codes, sums, key.subkey(self._purpose), self.q_count, 0, n_threads)",
    ),
]  # fmt: skip
