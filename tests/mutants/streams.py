"""Streams of random words that two draws would share, and messages that one key would make twice."""

from mutants.patch import Mutant

ONE = "test_a_stream_serves_one_purpose_and_no_word_is_drawn_twice"
CHOICES = "test_rounds_and_keys_choose_apart"
CALL = "test_an_entropy_key_serves_one_call_of_any_way_to_randomize"
AGAIN = "test_an_entropy_key_makes_no_message_twice"

STREAMS = [
    # ---- what is public, drawn from the words that hide people's data ------------------------------------------------
    Mutant(
        "fmf-ldp-start-shares-words", "FMF-LDP's first item factors tell words of a user's reports",
        "FMFRounds.initial_state",
        "key.normal(_START, size=n_items * self.n_factors)",
        "key.normal(_REPORTS, size=n_items * self.n_factors)",
        (f"{ONE}[FMFLDP]",),
    ),
    Mutant(
        "fmf-ldp-rotation-shares-words", "the seed of FMF-LDP's rotations is a word of a user's reports",
        "FMFRounds.initial_state",
        "key.words(_ROTATION, size=1)",
        "key.words(_REPORTS, size=1)",
        (f"{ONE}[FMFLDP(rotate=True)]",),
    ),
    Mutant(
        "sketch-signs-share-words", "the public signs of ShuffledSketchGram are words of a user's reports",
        "SketchRound.initial_state",
        "key.words(self._purpose('signs'), size=-(-math.prod(shape) // 64))",
        "key.words(self._purpose('reports'), size=-(-math.prod(shape) // 64))",
        (f"{ONE}[ShuffledSketchGram]",),
    ),
    Mutant(
        "laplace-rr-seed-shares-words", "LaplaceRRSVD's seed of training is a word of a user's reports",
        "RatingRounds.initial_state",
        "key.words(_SEED, size=1)",
        "key.words(_REPORTS, size=1)",
        (f"{ONE}[LaplaceRRSVD]",),
    ),
    Mutant(
        "fedrec-seed-shares-words", "the seed of FedRec's cohorts is a word of the noise", "FedRecRounds.initial_state",
        "key.words(_SEED, size=1)",
        "key.words(_NOISE, size=1)",
        (f"{ONE}[FedRec]",),
    ),
    Mutant(
        "fedrec-items-share-words", "FedRec's first item factors are the words of a user's masks",
        "FedRecRounds.initial_state",
        "key.uniform(_ITEMS, size=n_items * self.n_factors)",
        "key.uniform(_MASKS, size=n_items * self.n_factors)",
        (f"{ONE}[FedRec]",),
    ),
    # ---- two secrets from the same words -----------------------------------------------------------------------------
    Mutant(
        "fedrec-counts-share-noise", "FedRec's counts of raters have the noise of its first sums",
        "FedRecRounds._divisors",
        "self.count_noise.add_noise(counts, key=key, purpose=_COUNT_NOISE)",
        "self.count_noise.add_noise(counts, key=key, purpose=_NOISE)",
        (f"{ONE}[FedRec]",),
    ),
    Mutant(
        "fedrec-virtual-share-masks", "virtual items are drawn from the words that mask what is sent", "fill_hybrid",
        "key.subkey(_VIRTUAL)",
        "key.subkey('fedrec.masks')",
        (f"{ONE}[FedRec]",),
    ),
    Mutant(
        "laplace-rr-choice-shares-words", "which ratings are sent is drawn from the words that hide them",
        "RatingRounds._choose",
        "key.subkey(_CHOICE)",
        "key.subkey(_REPORTS)",
        (f"{ONE}[LaplaceRRSVD]",),
    ),
    Mutant(
        "popularity-subset-shares-words", "which of a user's items count is drawn from the words of the noise",
        "DPPopularity._release_centrally",
        "key.subkey(_SUBSET)",
        "key.subkey(_NOISE)",
        (f"{ONE}[DPPopularity]",),
    ),
    Mutant(
        "choice-noise-shares-words", "the noise of a choice is drawn from the words that chose users' items",
        "_above_threshold",
        "noise.sample(len(counted), key=key, purpose=_NOISE)",
        "noise.sample(len(counted), key=key, purpose=_SUBSET)",
        (f"{ONE}[choose_items]",),
    ),
    Mutant(
        "grid-cubes-share-noise", "all cubes of the grid of candidates have the same noise", "grid_candidates",
        "stream = round_number << 16 | shift << 8",
        "stream = round_number << 16",
        (f"{ONE}[grid_candidates]",),
    ),
    Mutant(
        "entities-share-swaps", "all entities of prototypes draw the swaps of their clusters from the same words",
        "PrototypeRounds._cluster",
        "private_kmeans(points, candidates, n_prototypes, radius=radius, n_swaps=N_SWAPS, epsilon=swap_epsilon, key=key,"
        " round=entity, n_threads=n_threads)",
        "private_kmeans(points, candidates, n_prototypes, radius=radius, n_swaps=N_SWAPS, epsilon=swap_epsilon, key=key,"
        " round=0, n_threads=n_threads)",
        (f"{ONE}[PrivatePrototypes of all parts]",),
    ),
    Mutant(
        "entities-share-cells", "all entities of prototypes have the same noise on cells of their grids",
        "PrototypeRounds._cluster",
        "grid_candidates(points, n_candidates, radius=radius, depth=GRID_DEPTH, n_shifts=1, epsilon=level_epsilon,"
        " key=key, round=entity)",
        "grid_candidates(points, n_candidates, radius=radius, depth=GRID_DEPTH, n_shifts=1, epsilon=level_epsilon,"
        " key=key, round=0)",
        (f"{ONE}[PrivatePrototypes of all parts]",),
    ),
    Mutant(
        "selection-same-round", "the exact sampler chooses by the same words in every round",
        "ExponentialMechanism._peel",
        "words(key, _PURPOSE, round_number)",
        "words(key, _PURPOSE, 0)",
        (f"{CHOICES}[exact]",),
    ),
    Mutant(
        "selection-gumbel-same-round", "Gumbel noise is the same in every round", "ExponentialMechanism._largest_noisy",
        "round=round_number",
        "round=0",
        (f"{CHOICES}[gumbel]",),
    ),
    # ---- one message made twice, or in an order that is known --------------------------------------------------------
    Mutant(
        "sketch-stream-key-again", "one key makes a stream of sketched reports twice", "SketchRound.report_stream",
        "key.claim_message(self._purpose('reports'), round, sender)",
        "pass",
        (f"{AGAIN}[ShuffledSketchGram]",),
    ),
    Mutant(
        "fmf-ldp-stream-key-again", "one key makes a stream of FMF-LDP's reports twice", "FMFRounds.report_stream",
        "key.claim_message(_REPORTS, round, sender)",
        "pass",
        (f"{AGAIN}[FMFLDP]",),
    ),
    Mutant(
        "laplace-rr-key-again", "one key makes a shard's ratings twice", "RatingRounds.local_round",
        "key.claim_message(_REPORTS, round, sender)",
        "pass",
        (f"{AGAIN}[LaplaceRRSVD]",),
    ),
    Mutant(
        "fedrec-key-again", "one key makes a shard's gradients and masks twice", "FedRecRounds.local_round",
        "key.claim_message(_ROUND, round_number, sender)",
        "pass",
        (f"{AGAIN}[FedRec]", f"{AGAIN}[FedRecPlusPlus]"),
    ),
    Mutant(
        "sketch-order-of-the-key", "who knows the key of the reports knows the order in which they left the shuffler",
        "SketchRound.report_stream",
        "resolve_key(shuffle_key)",
        "key",
        ("test_a_stream_of_sketched_reports_is_shuffled",),
    ),
    Mutant(
        "channel-key-again", "one key makes a channel's reports any number of times", "Channel.privatize",
        "claim_call(f'{type(self).__name__}.privatize', key, round, n_threads)",
        "(key, round, 1)",
        (f"{CALL}[OptimalKary]",),
    ),
    Mutant(
        "binary-key-again", "one key makes binary answers any number of times", "BinaryResponse.privatize",
        "claim_call('BinaryResponse.privatize', key, round, n_threads)",
        "(key, round, 1)",
        (f"{CALL}[BinaryResponse]",),
    ),
    Mutant(
        "piecewise-key-again", "one key makes Piecewise reports any number of times", "Piecewise.privatize",
        "claim_call(f'{type(self).__name__}.privatize', key, round, n_threads)",
        "(key, round, 1)",
        (f"{CALL}[Hybrid]",),
    ),
    Mutant(
        "subset-key-again", "one key makes subsets any number of times", "SubsetSelection.privatize",
        "claim_call('SubsetSelection.privatize', key, round, n_threads)",
        "(key, round, 1)",
        (f"{CALL}[SubsetSelection]",),
    ),
    Mutant(
        "oue-support-key-again", "one key makes sums of OUE's reports any number of times", "OUE.privatize_support",
        "claim_call('OUE.privatize_support', key, round, n_threads)",
        "(key, round, 1)",
        (f"{CALL}[OUE.privatize_support]",),
    ),
    Mutant(
        "noise-key-again", "one key makes noise any number of times", "IntegerNoise.privatize",
        "claim_call(f'{type(self).__name__}.privatize', key, round, n_threads)",
        "(key, round, 1)",
        (f"{CALL}[LayeredGaussian]",),
    ),
    Mutant(
        "selection-key-again", "one key makes choices any number of times", "ExponentialMechanism.privatize",
        "claim_call('ExponentialMechanism.privatize', key, round)",
        "(key, round, 1)",
        (f"{CALL}[ExponentialMechanism]",),
    ),
    Mutant(
        "oue-support-same-round", "sums of OUE's reports are the same in every round", "OUE.privatize_support",
        "_kernel.add_bits(values, sums, key.subkey(self._purpose), self.q_count, round_number, n_threads)",
        "_kernel.add_bits(values, sums, key.subkey(self._purpose), self.q_count, 0, n_threads)",
        ("test_support_adds_up_over_shards_and_needs_no_reports_for_oue",),
    ),
]  # fmt: skip
