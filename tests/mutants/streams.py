"""Mutants in which two draws share a random stream, or one key makes a message twice."""

from mutants.patch import on

ONE = "test_a_stream_serves_one_purpose_and_no_word_is_drawn_twice"
CHOICES = "test_rounds_and_keys_choose_apart"
CALL = "test_an_entropy_key_serves_one_call_of_any_way_to_randomize"
AGAIN = "test_an_entropy_key_makes_no_message_twice"

STREAMS = [
    # ---- what is public, drawn from the words that hide people's data ------------------------------------------------
    on("FMFRounds.initial_state", f"{ONE}[FMFLDP]")(
        "fmf-ldp-start-shares-words", "FMF-LDP's first item factors tell words of a user's reports",
        "key.normal(_START, size=n_items * self.n_factors)", "key.normal(_REPORTS, size=n_items * self.n_factors)",
    ),
    on("FMFRounds.initial_state", f"{ONE}[FMFLDP(rotate=True)]")(
        "fmf-ldp-rotation-shares-words", "the seed of FMF-LDP's rotations is a word of a user's reports",
        "key.words(_ROTATION, size=1)", "key.words(_REPORTS, size=1)",
    ),
    on("SketchRound.initial_state", f"{ONE}[ShuffledSketchGram]")(
        "sketch-signs-share-words", "the public signs of ShuffledSketchGram are words of a user's reports",
        "key.words(self._purpose('signs'), size=-(-math.prod(shape) // 64))",
        "key.words(self._purpose('reports'), size=-(-math.prod(shape) // 64))",
    ),
    on("RatingRounds.initial_state", f"{ONE}[LaplaceRRSVD]")(
        "laplace-rr-seed-shares-words", "LaplaceRRSVD's seed of training is a word of a user's reports",
        "key.words(_SEED, size=1)", "key.words(_REPORTS, size=1)",
    ),
    on("FedRecRounds.initial_state", f"{ONE}[FedRec]")(
        "fedrec-seed-shares-words", "the seed of FedRec's cohorts is a word of the noise", "key.words(_SEED, size=1)",
        "key.words(_NOISE, size=1)",
    ),
    on("FedRecRounds.initial_state", f"{ONE}[FedRec]")(
        "fedrec-items-share-words", "FedRec's first item factors are the words of a user's masks",
        "key.uniform(_ITEMS, size=n_items * self.n_factors)", "key.uniform(_MASKS, size=n_items * self.n_factors)",
    ),
    # ---- two secrets from the same words -----------------------------------------------------------------------------
    on("FedRecRounds._divisors", f"{ONE}[FedRec]")(
        "fedrec-counts-share-noise", "FedRec's counts of raters have the noise of its first sums",
        "self.count_noise.add_noise(counts, key=key, purpose=_COUNT_NOISE)",
        "self.count_noise.add_noise(counts, key=key, purpose=_NOISE)",
    ),
    on("fill_hybrid", f"{ONE}[FedRec]")(
        "fedrec-virtual-share-masks", "virtual items are drawn from the words that mask what is sent",
        "key.subkey(_VIRTUAL)", "key.subkey('fedrec.masks')",
    ),
    on("RatingRounds._choose", f"{ONE}[LaplaceRRSVD]")(
        "laplace-rr-choice-shares-words", "which ratings are sent is drawn from the words that hide them",
        "key.subkey(_CHOICE)", "key.subkey(_REPORTS)",
    ),
    on("DPPopularity._release_centrally", f"{ONE}[DPPopularity]")(
        "popularity-subset-shares-words", "which of a user's items count is drawn from the words of the noise",
        "key.subkey(_SUBSET)", "key.subkey(_NOISE)",
    ),
    on("_above_threshold", f"{ONE}[choose_items]")(
        "choice-noise-shares-words", "the noise of a choice is drawn from the words that chose users' items",
        "noise.sample(len(counted), key=key, purpose=_NOISE)", "noise.sample(len(counted), key=key, purpose=_SUBSET)",
    ),
    on("grid_candidates", f"{ONE}[grid_candidates]")(
        "grid-cubes-share-noise", "all cubes of the grid of candidates have the same noise",
        "stream = round_number << 16 | shift << 8", "stream = round_number << 16",
    ),
    on("PrototypeRounds._cluster", f"{ONE}[PrivatePrototypes of all parts]")(
        "entities-share-swaps", "all entities of prototypes draw the swaps of their clusters from the same words",
        "private_kmeans(points, candidates, n_prototypes, radius=radius, n_swaps=N_SWAPS, epsilon=swap_epsilon,"
        " key=key, round=entity, n_threads=n_threads)",
        "private_kmeans(points, candidates, n_prototypes, radius=radius, n_swaps=N_SWAPS, epsilon=swap_epsilon,"
        " key=key, round=0, n_threads=n_threads)",
    ),
    on("PrototypeRounds._cluster", f"{ONE}[PrivatePrototypes of all parts]")(
        "entities-share-cells", "all entities of prototypes have the same noise on cells of their grids",
        "grid_candidates(points, n_candidates, radius=radius, depth=GRID_DEPTH, n_shifts=1, epsilon=level_epsilon,"
        " key=key, round=entity)",
        "grid_candidates(points, n_candidates, radius=radius, depth=GRID_DEPTH, n_shifts=1, epsilon=level_epsilon,"
        " key=key, round=0)",
    ),
    on("ExponentialMechanism._peel", f"{CHOICES}[exact]")(
        "selection-same-round", "the exact sampler chooses by the same words in every round",
        "words(key, _PURPOSE, round_number)", "words(key, _PURPOSE, 0)",
    ),
    on("ExponentialMechanism._largest_noisy", f"{CHOICES}[gumbel]")(
        "selection-gumbel-same-round", "Gumbel noise is the same in every round", "round=round_number", "round=0",
    ),
    # ---- one message made twice, or in an order that is known --------------------------------------------------------
    on("SketchRound.report_stream", f"{AGAIN}[ShuffledSketchGram]")(
        "sketch-stream-key-again", "one key makes a stream of sketched reports twice",
        "key.claim_message(self._purpose('reports'), round, sender)", "pass",
    ),
    on("FMFRounds.report_stream", f"{AGAIN}[FMFLDP]")(
        "fmf-ldp-stream-key-again", "one key makes a stream of FMF-LDP's reports twice",
        "key.claim_message(_REPORTS, round, sender)", "pass",
    ),
    on("RatingRounds.local_round", f"{AGAIN}[LaplaceRRSVD]")(
        "laplace-rr-key-again", "one key makes a shard's ratings twice", "key.claim_message(_REPORTS, round, sender)",
        "pass",
    ),
    on("FedRecRounds.local_round", f"{AGAIN}[FedRec]", f"{AGAIN}[FedRecPlusPlus]")(
        "fedrec-key-again", "one key makes a shard's gradients and masks twice",
        "key.claim_message(_ROUND, round_number, sender)", "pass",
    ),
    on("SketchRound.report_stream", "test_a_stream_of_sketched_reports_is_shuffled")(
        "sketch-order-of-the-key", "who knows the key of the reports knows the order in which they left the shuffler",
        "resolve_key(shuffle_key)", "key",
    ),
    on("Channel.privatize", f"{CALL}[OptimalKary]")(
        "channel-key-again", "one key makes a channel's reports any number of times",
        "claim_call(f'{type(self).__name__}.privatize', key, round, n_threads)", "(key, round, 1)",
    ),
    on("BinaryResponse.privatize", f"{CALL}[BinaryResponse]")(
        "binary-key-again", "one key makes binary answers any number of times",
        "claim_call('BinaryResponse.privatize', key, round, n_threads)", "(key, round, 1)",
    ),
    on("Piecewise.privatize", f"{CALL}[Hybrid]")(
        "piecewise-key-again", "one key makes Piecewise reports any number of times",
        "claim_call(f'{type(self).__name__}.privatize', key, round, n_threads)", "(key, round, 1)",
    ),
    on("SubsetSelection.privatize", f"{CALL}[SubsetSelection]")(
        "subset-key-again", "one key makes subsets any number of times",
        "claim_call('SubsetSelection.privatize', key, round, n_threads)", "(key, round, 1)",
    ),
    on("OUE.privatize_support", f"{CALL}[OUE.privatize_support]")(
        "oue-support-key-again", "one key makes sums of OUE's reports any number of times",
        "claim_call('OUE.privatize_support', key, round, n_threads)", "(key, round, 1)",
    ),
    on("IntegerNoise.privatize", f"{CALL}[LayeredGaussian]")(
        "noise-key-again", "one key makes noise any number of times",
        "claim_call(f'{type(self).__name__}.privatize', key, round, n_threads)", "(key, round, 1)",
    ),
    on("ExponentialMechanism.privatize", f"{CALL}[ExponentialMechanism]")(
        "selection-key-again", "one key makes choices any number of times",
        "claim_call('ExponentialMechanism.privatize', key, round)", "(key, round, 1)",
    ),
    on("OUE.privatize_support", "test_support_adds_up_over_shards_and_needs_no_reports_for_oue")(
        "oue-support-same-round", "sums of OUE's reports are the same in every round",
        "_kernel.add_bits(values, sums, key.subkey(self._purpose), self.q_count, round_number, n_threads)",
        "_kernel.add_bits(values, sums, key.subkey(self._purpose), self.q_count, 0, n_threads)",
    ),
]  # fmt: skip
