"""Functions with numbers that have no call in `numbers_case`, or a slow one, with the reasons (`test_numbers`)."""

#: Omitted parameters: the class inherits them and accepts no value, or a sequence or mapping of numbers.
OMITTED = {
    "accounting.events.DiscreteGaussianRelease": {"cohort_size", "n_users", "sampling_probability"},
    "accounting.events.SkellamRelease": {"cohort_size", "n_users", "sampling_probability"},
    "accounting.events.GaussianShares": {"cohort_size", "n_users", "sampling_probability"},
    "accounting.events.SkellamShares": {"cohort_size", "n_users", "sampling_probability"},
    "accounting.events.ZCDP": {"cohort_size", "n_users", "sampling_probability"},
    "engines.aggregation.simulate.simulate_secure_sum": {"dropouts"},
    "studies.membership.attack.membership_loss": {"guarantee"},
    "studies.membership.attack.membership_shadow": {"guarantee"},
}

#: These take seconds each, for compilers or solvers, and are run by the slow tests.
SLOW = {
    "compute.networks.gru.GRUEncoder.train_clients", "compute.networks.joint_loss.JointNetwork.train_clients",
    "mechanisms.ratings.bayes_kary.BayesKary",
    "testing.assertions.assert_clipped", "studies.membership.attack.membership_loss",
    "studies.membership.attack.membership_shadow",
    "accounting.pld.epsilon_lower_bound", "accounting.published.published_privrec_epsilon",
}  # fmt: skip

#: Methods that public classes inherit from private ones, with numbers from engines and rounds.
CALLED_BY_ENGINES = {
    "local_round", "round_event", "rules", "traffic", "zero_update", "values_event", "budget", "sums", "initial_state",
    "check_budget",
}  # fmt: skip

#: Functions with numbers that are not called here, with the reason.
EXEMPT = {
    "a record that the package fills in": (
        "systems.private_recommender.advice.Advice", "systems.private_recommender.advice.Offer",
        "systems.private_recommender.recipes.Recipe", "systems.private_recommender.recipes.Planned",
        "audit.bounds.AuditResult", "audit.search.WorstPair", "testing.verification.PrivacyClaim",
        "accounting.views.Cost",
        "compute.networks.client_updates.ClientUpdates", "compute.clustering.KMeans",
        "data.features.FeatureTable", "evaluation.new_users.PersonalizationSplit", "compute.sgd.FactorModel",
        "studies.sweep.cells.Cell", "evaluation.metrics.results.Evaluation", "evaluation.metrics.names.Metric",
        "evaluation.metrics.comparison.Comparison", "evaluation.metrics.comparison.PairedTest",
        "rounds.receiver.Rejection", "rounds.system.Update", "rounds.system.ArrayRule", "rounds.receiver.RoundReceiver",
    ),
    "called by engines, with numbers of theirs": (
        "engines.aggregation.plan.AggregationPlan", "engines.aggregation.plan.AggregationPlan.threshold_among",
        "engines.aggregation.plan.choose_degree", "engines.aggregation.masks.add_masks",
        "engines.aggregation.secret_sharing.split_secret", "engines.aggregation.secret_sharing.combine_shares",
        "engines.aggregation.stored_node.StoredNode", "engines.aggregation.sums.SecureSums.objection",
        "rounds.system.FederatedSystem", "rounds.engine.Engine",
        "engines.shuffling.shuffler.Shuffler", "engines.shuffling.client.ShufflerClient",
        "engines.shuffling.sealing.PublicKeys", "engines.shuffling.sealing.ServerKeys",
        "engines.shuffling.sealing.report_ids", "engines.shuffling.sealing.UnsealedReports", "engines.metrics.Metrics",
        "core.randomness.Key.claim_message", "core.randomness.Key.claim_stream",
        "compute.networks.gru.GRUEncoder.encode_sequences",
        "systems.private_prototypes.private_kmeans.draw_loss",
        "systems.private_prototypes.private_kmeans.selection_weights",
        "systems.private_prototypes.private_kmeans.swap_losses", "systems.private_prototypes.private_lloyd.limit_steps",
        "systems.dplcf.estimate_cooccurrences", "systems.dplcf.sum_answers",
        "systems.gram.shrinkage.denoising_memory",
        "systems.gram.shuffled_sketch.mean_largest",
        "compute.ranking.held_out_rank_counts_factors", "compute.ranking.held_out_ranks_factors",
        "data.times.check_timestamps",
        "evaluation.rating_metrics.predict_errors", "evaluation.metrics.resampling.bootstrap_sums",
        "evaluation.metrics.resampling.sign_test", "evaluation.metrics.resampling.fit_deviations",
        "evaluation.splits.choose_entries",
    ),
    "of the choice of a system, with numbers that `advise` has checked": (
        "systems.private_recommender.recipes.calibrated", "systems.private_recommender.recipes.plan_run",
    ),
    "takes the exact number that accountants hold": (
        "accounting.gaussian.gaussian_delta", "accounting.gaussian.gaussian_epsilon", "accounting.gaussian.pure_mu",
        "accounting.views.show_costs", "accounting.views.epsilon_under", "accounting.views.parties_of",
    ),
    "takes the counts of events that a ledger holds, and names its numbers as `Ledger` does": (
        "accounting.filters.Budget", "accounting.filters.BudgetError", "accounting.ledger.Ledger.check_budget",
    ),
    "reads its numbers as `evaluate` and other metrics do": (
        "evaluation.metrics.lists.evaluate_lists", "evaluation.metrics.rankings.Rankings.top",
        "evaluation.metrics.feature_diversity.FeatureDiversity", "systems.recommender.Recommender.card",
    ),
    "needs Flower or Dask, and is called by their tests": (
        "engines.flower.app", "engines.flower.private", "engines.flower.secure_sums", "engines.dask",
    ),
    "whole runs, of which a number is the seed": ("studies.reproduce", "studies.report", "studies.sweep.sweeps.sweep",
    "studies.sweep.sweeps.GeneratedData.draw", "studies.sweep.sweeps.GeneratedData.split"),
    "strategies of hypothesis, and arrays of numbers": (
        "testing.strategies.interactions", "testing.strategies.mechanism_inputs", "testing.strategies.shards",
        "testing.assertions.assert_unbiased",
        "compute.networks.client_examples.Events.from_log", "mechanisms.channels.piecewise.Piecewise.channel",
        "data.interactions.Interactions.from_arrays",
    ),
    "columns of a file, by name or number": ("datasets.stored_tables.store_table", "datasets.tables.load_table"),
    "runs in compiled functions only, which test_numba.py compiles": ("numba",),
    "takes a secret; its seed is a note": ("core.randomness.Key",),
    "needs what FedRec recorded": ("systems.fedrec.attacks.gradients", "systems.fedrec.attacks.run_attacks"),
    "its only numbers are n_threads and round, checked by resolve_n_threads for all": (
        "evaluation.new_users.evaluate_personalized",
    ),
}  # fmt: skip
