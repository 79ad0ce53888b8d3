"""Mutants of the effects of central systems: relations of events, secret cohorts and released centres."""

from mutants.patch import on

RELATION = "test_events_have_the_proved_relation"
EFFECT = "test_no_users_data_change_sums_by_more_than_the_events_state"
SECRET = "test_a_cohort_that_amplifies_is_drawn_from_the_servers_secret"
INDEPENDENT = "test_cohorts_of_rounds_stages_and_keys_are_independent"
NEAREST = "test_users_are_in_the_group_of_the_nearest_released_centre"
ALONE = "test_a_users_group_does_not_depend_on_other_users_rows"
PRIVREC = ("PrivRec", "PrivRec, Meta-SGD", "PrivRec, two stages", "PrivRec, joint")


def both(*names):
    """Relation and size of the events of these systems."""
    return tuple(f"{test}[{name}]" for name in names for test in (RELATION, EFFECT))


EFFECTS = [
    # ---- neighbouring relations of events ----------------------------------------------------------------------------
    on(
        "NoisySum.round_event",
        *both("DPGram", "DPGram, popularity alone", "DPSubspace", "PrivateRecommender"),
        *both("DPALS", "DPALS, uniform", "DPALS, adaptive", "DPFMF"),
    )(
        "sums-entered-as-replace", "noisy sums are recorded under the wrong neighbouring relation (replacement)",
        "{'neighboring': 'zero_out', 'sampling': 'none', 'distance': self.distance, "
        "'replace_sensitivity': replacement if replacement < 2 else None}",
        "{'neighboring': 'replace', 'sampling': 'none', 'distance': self.distance}",
    ),
    on("DPPopularity._event", *both("DPPopularity"))(
        "popularity-entered-as-replace", "counts of DPPopularity are recorded under the wrong relation (replacement)",
        "CentralRelease('discrete Laplace on item counts', epsilon)",
        "CentralRelease('discrete Laplace on item counts', epsilon, neighboring='replace')",
    ),
    on("Recovery.events", *both("PrivatePrototypes", "PrivatePrototypes, masked"))(
        "prototypes-entered-as-replace", "sums of prototypes are recorded under the wrong relation (replacement)",
        "CentralRelease(name, float_up(n_rows * Fraction(self.epsilon)), trust='entity', distance=distance)",
        "CentralRelease(name, float_up(n_rows * Fraction(self.epsilon)), trust='entity', distance=distance,"
        " neighboring='replace')",
    ),
    on("Recovery.events", *both("PrivatePrototypes, delta"))(
        "prototypes-rho-entered-as-replace",
        "sums of prototypes with Gaussian noise are recorded under the wrong relation (replacement)",
        "ZCDP(name, cost, neighboring='add_remove', sampling='none', trust='entity', distance=distance)",
        "ZCDP(name, cost, neighboring='replace', sampling='none', trust='entity', distance=distance)",
    ),
    on("popularity_event", f"{EFFECT}[PrivRec, popularity]")(
        "privrec-counts-for-one-user", "the replace sensitivity of PrivRec's counts is that of a removed user",
        "_popularity_noise(epsilon).epsilon(_SENSITIVITY)", "_popularity_noise(epsilon).epsilon(_SENSITIVITY // 2)",
    ),
    on("CentralPrivacy._noise_event", *(f"{EFFECT}[{name}]" for name in ("FedRec", "FedRecPlusPlus")))(
        "fedrec-sums-for-one-user", "the replace sensitivity of FedRec's sums is that of one gradient",
        "noise.noise_multiplier(sensitivity)", "2 * noise.noise_multiplier(sensitivity)",
    ),
    on("fit_rounds", f"{RELATION}[FedRec]", f"{RELATION}[FedRecPlusPlus]")(
        "fedrec-counts-before-their-event", "FedRec's counts are released before their event is recorded",
        """
        for event in events_before:
            fit.account.record(event, simulation=fit.key.is_simulation)
        state = rounds.initial_state(data)
        """,
        """
        state = rounds.initial_state(data)
        for event in events_before:
            fit.account.record(event, simulation=fit.key.is_simulation)
        """,
    ),
    # ---- cohorts ----------------------------------------------------------------------------------------------------
    on("FedGNNRounds._cohort", f"{SECRET}[FedGNN]", f"{INDEPENDENT}[FedGNN]")(
        "fedgnn-cohort-is-public", "FedGNN's secret cohorts are derived from a public seed", "key=self.key",
        "key=Key.from_seed(1)",
    ),
    on("FedGNNRounds._cohort", f"{SECRET}[FedGNN]")(
        "fedgnn-cohort-of-a-seed", "FedGNN's secret cohorts are derived from a seed as short as a broadcast one",
        "key=self.key", "key=Key.from_seed(int(self.key.words('fedgnn.seed', size=1)[0]))",
    ),
    on("FedGNNRounds._cohort", f"{INDEPENDENT}[FedGNN]")(
        "fedgnn-one-cohort", "the same FedGNN cohort takes part in every round", "round=round_number", "round=0",
    ),
    on("FedGNNRounds._cohort", f"{INDEPENDENT}[FedGNN]")(
        "fedgnn-next-cohort-is-this", "the same FedGNN cohort takes part in two rounds", "round=round_number",
        "round=round_number // 2",
    ),
    on("CohortRounds.state_of", *(f"{test}[{name}]" for name in PRIVREC for test in (SECRET, INDEPENDENT)))(
        "privrec-cohort-is-public", "PrivRec's secret cohorts are derived from a public seed", "key=self.key",
        "key=Key.from_seed(1)",
    ),
    on("CohortRounds.state_of", *(f"{SECRET}[{name}]" for name in PRIVREC))(
        "privrec-cohort-of-a-seed", "PrivRec's secret cohorts are derived from a short seed", "key=self.key",
        "key=Key.from_seed(int(self.key.words('privrec.seed', size=1)[0]))",
    ),
    on("FixedSizeSampling.sample", *(f"{INDEPENDENT}[{name}]" for name in ("PrivRec", "FedGNN")))(
        "cohort-of-the-first", "a fixed-size cohort always contains the first clients",
        "_marked_clients(marked, self.cohort_size, resolve_n_threads(0))", "np.arange(self.cohort_size)",
    ),
    # ---- groups of users ---------------------------------------------------------------------------------------------
    on("PrototypeRounds._cluster", NEAREST, ALONE, "test_the_sums_of_a_round_are_those_of_these_groups")(
        "kmeans-thrown-away", "users are grouped by exact centres after private k-means has been charged",
        "clustering.assign_rows(points, centers, n_threads=n_threads)[0].astype(np.int64)",
        "clustering.kmeans(points, n_prototypes, key=key, n_threads=n_threads).labels.astype(np.int64)",
    ),
    on("PrototypeRounds._cluster", NEAREST, ALONE)(
        "kmeans-refined", "the released centres move to exact means before they group users",
        "clustering.assign_rows(points, centers, n_threads=n_threads)[0].astype(np.int64)",
        """
        clustering.assign_rows(
            points,
            np.array([
                points[clustering.assign_rows(points, centers)[0] == c].mean(axis=0)
                if (clustering.assign_rows(points, centers)[0] == c).any() else center
                for c, center in enumerate(centers)
            ]),
            n_threads=n_threads,
        )[0].astype(np.int64)
        """,
    ),
    on("PrototypeRounds._group", NEAREST, ALONE)(
        "kmeans-not-private", "users are grouped by exact k-means",
        "self._cluster(shard, n_prototypes, key, entity, n_threads)",
        "clustering.kmeans(shard, n_prototypes, key=key, n_threads=n_threads).labels.astype(np.int64)",
    ),
    on("PrototypeRounds.local_round", "test_the_sums_of_a_round_are_those_of_these_groups")(
        "kmeans-of-other-groups", "prototype sums are computed over exact groups",
        "recover_prototypes(limited, labels, n_prototypes, recovery, round=entity, **options)",
        """
        recover_prototypes(
            limited,
            clustering.kmeans(limited, n_prototypes, key=key, n_threads=n_threads).labels.astype(np.int64),
            n_prototypes, recovery, round=entity, **options,
        )
        """,
    ),
    on("PrototypeRounds._cluster", "test_centres_are_chosen_from_the_projected_rows_at_the_budgets_price")(
        "kmeans-costs-more-than-noted", "swaps of private k-means are drawn at twice the charged epsilon",
        "epsilon=swap_epsilon", "epsilon=2 * swap_epsilon",
    ),
]  # fmt: skip
