"""Calls of all public functions with numbers, except those of `numbers_mechanisms` (`test_numbers`)."""

import functools

import numpy as np

import fastfedrec
from fastfedrec import Interactions, datasets, mechanisms
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.joint_loss import JointNetwork
from fastfedrec.compute.networks.meta_learning import MetaNetwork, split_examples
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features
from fastfedrec.engines.aggregation import SecureSums
from fastfedrec.evaluation.metrics.averages import average_fits
from fastfedrec.mechanisms.bounded_rows import limit_contributions
from fastfedrec.studies.membership.attack import membership_loss, membership_shadow
from fastfedrec.systems.baselines import item_models
from fastfedrec.systems.baselines import popularity as baselines
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes
from support.numbers_calls import HALF, KEY, ONE, SMALL, call, on, to
from support.numbers_mechanisms import channel

ROSTER = [f"{node:064x}" for node in range(20)]


def secure_sums():
    return SecureSums(
        "test", ROSTER, n_values=3, max_value=2, l2_sensitivity=1, variance=1, honest_fraction=1, min_answers=19
    )


WIDTHS = {"n_factors": 16, "hidden": (16, 32)}
CLIENT = {"learning_rate": HALF, "n_epochs": 1, "batch_size": 8, "clip_norm": HALF, "clip_order": 2, "key": KEY}


@functools.cache
def implicit():
    return datasets.generate_implicit(60, 40, key=KEY)


@functools.cache
def rated():
    return datasets.generate_implicit(60, 40, key=KEY, ratings=True)


@functools.cache
def fitted():
    return fastfedrec.FMFLDP(n_rounds=1, n_reports=2).fit(implicit(), key=KEY)


def rounds():
    return fastfedrec.FMFLDP()._rounds()


@functools.cache
def start():
    return rounds().initial_state(40, KEY)


@functools.cache
def public():
    return Interactions.from_arrays([1, 1, 2, 3], list("abac"), item_ids=list("abcdefgh"))


@functools.cache
def limited():
    return limit_contributions(rated(), 5, value_range=(1.0, 5.0), key=KEY)


@functools.cache
def points():
    return KEY.normal("points", size=120).reshape(60, 2).clip(-1, 1) / 2


@functools.cache
def sequences():
    return datasets.generate_sequences(20, 30, key=KEY, n_topics=2, length=12)


@functools.cache
def features():
    return Features.from_interactions(implicit())


@functools.cache
def network():
    return TwoTower(features(), n_factors=16, hidden=(16,))


@functools.cache
def examples():
    users = np.arange(3)
    return draw_examples(implicit(), Events.from_interactions(implicit()), users, 2, key=KEY, n_threads=1)


def recovery():
    return Recovery("masked", 5, (1.0, 5.0), 1.0)


FUNCTIONS = {
    "systems.private_recommender.choice.advise": call(
        n_users=2_000, n_items=1_000, epsilon=ONE, trust="aggregator", delta=2.0**-20, row_length=32.0,
        honest_fraction=0.75, dropout_fraction=0.25,
    ),
    "compute.als.check_item_factors": call(item_factors=np.ones((3, 2)), n_items=3),
    "compute.als.regularized_gram": call(item_factors=np.ones((3, 2)), regularization=HALF, confidence_weight=2.0),
    "compute.als.solve_users": to(
        lambda: functools.partial(fastfedrec.als.solve_users, implicit(), np.ones((40, 2)), solver="cg"),
        regularization=HALF, confidence_weight=2.0, cg_steps=2,
    ),
    "compute.als.HalfStep": call(
        item_factors=np.ones((3, 2)), regularization=HALF, confidence_weight=2.0, solver="cg", cg_steps=2,
    ),
    "compute.als.HalfStep.solve": on(
        lambda: fastfedrec.als.HalfStep(np.ones((40, 2)), regularization=HALF, confidence_weight=2.0),
        interactions=implicit(),
    ),
    "compute.als.solve_own_users": to(
        lambda: functools.partial(fastfedrec.als.solve_own_users, implicit(), np.ones((40, 2))),
        regularization=HALF, confidence_weight=2.0,
    ),
    "audit.search.search_pairs": call(
        mechanism=channel(), pairs=[(0, 1)], claim=ONE, n=200, alpha=0.25, delta=SMALL, key=KEY
    ),
    "testing.strategies.neighbours": call(
        max_size=3, n_columns=2, low=HALF, high=ONE, max_count=3, clip_norm=HALF
    ),
    "testing.verification.verify": call(
        claim=ONE, pairs=[(0, 1)], n=200, delta=SMALL, max_examples=3, alpha=0.25, control=HALF
    ),
    "audit.bounds.audit": call(mechanism=channel(), x0=0, x1=1, claim=ONE, n=200, alpha=0.25, delta=SMALL, key=KEY),
    "compute.networks.client_examples.draw_examples": to(
        lambda: functools.partial(draw_examples, implicit(), Events.from_interactions(implicit()), np.arange(3)),
        negatives=2, key=KEY,
    ),
    "compute.networks.client_examples.Events.first": on(lambda: Events.from_interactions(implicit()), n=2),
    "compute.clustering.assign_rows": call(rows=points(), centers=np.ones((2, 2))),
    "compute.clustering.kmeans": call(rows=points(), n_clusters=3, n_iterations=2, key=KEY),
    "datasets.generate.generate_implicit": call(n_users=50, n_items=40, mean_interactions=23.0, key=KEY),
    "datasets.generate_counts.generate_counts": call(n_users=50, n_items=40, n_factors=3, n_entities=2, key=KEY),
    "datasets.generate_sequences.generate_sequences": call(
        n_users=10, n_items=40, n_topics=4, length=5, stay_probability=HALF, popularity=HALF, key=KEY
    ),
    "rounds.local.LocalEngine": call(n_shards=2),
    "engines.aggregation.sums.SecureSums": call(
        run="test", roster=ROSTER, n_values=3, max_value=2, l2_sensitivity=ONE, l1_sensitivity=ONE, variance=ONE,
        honest_fraction=ONE, min_answers=19, n_rounds=2,
    ),
    "engines.aggregation.sums.SecureSums.plan": on(secure_sums, round=0),
    "engines.aggregation.sums.SecureSums.with_share": on(
        secure_sums, values=np.ones(3, dtype=np.int64), key=KEY, node="node", round=0
    ),
    "engines.shuffling.shuffler.Shuffler": call(
        min_crowd=5, n_reports=2, n_coordinates=10, folder="/nonexistent", max_users=100, max_nodes=10,
        max_memory=1000,
    ),
    "engines.shuffling.client.ShufflerClient": call(url="http://localhost:1", timeout=2.0),
    "engines.shuffling.reports.decode_reports": call(body=b"", n_coordinates=10),
    "engines.shuffling.reports.encode_reports": call(
        index=np.zeros(2, dtype=np.int64), bit=np.ones(2, dtype=np.int8), n_coordinates=10
    ),
    "evaluation.metrics.evaluate.evaluate": to(
        lambda: functools.partial(fastfedrec.evaluation.evaluate, baselines.Popularity().fit(split().train), *split()),
        batch_size=16, threshold=HALF, key=KEY,
    ),
    "evaluation.metrics.sampled.Sampled": call(n=9),
    "evaluation.metrics.comparison.compare": to(
        lambda: functools.partial(fastfedrec.evaluation.compare, {"a": result(), "b": result()}),
        n_permutations=20, n_resamples=5, key=KEY,
    ),
    "evaluation.metrics.results.Evaluation.intervals": to(
        lambda: average_fits([result(), result()]).intervals, level=HALF, n_resamples=5, key=KEY
    ),
    "evaluation.splits.hold_out": call(
        indptr=np.array([0, 4, 8]), global_user_ids=np.arange(2, dtype=np.uint64), fraction=HALF, key=KEY
    ),
    "evaluation.splits.KFold": call(n_folds=3),
    "evaluation.splits.RandomHoldout": [call(share=HALF, user_share=HALF), call(n=2)],
    "evaluation.temporal_split.TemporalSplit": [call(time=7), call(share=HALF)],
    "evaluation.user_holdout.UserHoldout": [call(share=HALF, given=HALF), call(given=3)],
    "evaluation.rating_metrics.evaluate_ratings": to(
        lambda: functools.partial(fastfedrec.evaluation.evaluate_ratings, fastfedrec.GlobalMean().fit(rated()),
        rated()),
        batch_size=16,
    ),
    "evaluation.percentiles.mean_percentile_rank": to(
        lambda: functools.partial(
            fastfedrec.evaluation.mean_percentile_rank, baselines.Popularity().fit(implicit()), split().test
        ),
        batch_size=64,
    ),
    "compute.networks.gru.GRUEncoder": call(n_items=20, n_factors=16),
    "compute.networks.gru.GRUEncoder.train_clients": to(
        lambda: functools.partial(encoder().train_clients, *masked()), item_weight=HALF, segment_weight=HALF, **CLIENT
    ),
    "compute.hadamard.hadamard_transform": call(values=np.ones((2, 4))),
    "data.log.InteractionLog.shard": on(sequences, n=2),
    "compute.networks.joint_loss.JointNetwork.train_clients": to(
        lambda: functools.partial(joint().train_clients, joint().initial_parameters(KEY), examples(), masked()[1]),
        contrastive_weight=HALF, masked_batch_size=8, **CLIENT,
    ),
    "studies.membership.attack.membership_loss": to(
        lambda: functools.partial(membership_loss, item_models.ItemKNN(3), implicit()),
        n_references=2, n_reference_users=20, threshold=HALF, alpha=0.25, n_bootstrap=100, key=KEY,
    ),
    "studies.membership.attack.membership_shadow": to(
        lambda: functools.partial(membership_shadow, item_models.ItemKNN(3), implicit()),
        n_shadows=2, n_shadow_users=20, shadow_members=HALF, n_top=3, threshold=HALF, n_trees=3, alpha=0.25,
        n_bootstrap=100, key=KEY,
    ),
    "compute.networks.meta_learning.split_examples": to(
        lambda: functools.partial(split_examples, examples(), key=KEY), support_share=HALF, round=0
    ),
    "compute.networks.meta_learning.MetaNetwork": to(
        lambda: functools.partial(MetaNetwork, network(), "maml"), learning_rate=HALF
    ),
    "compute.networks.meta_learning.MetaNetwork.train_clients": to(
        lambda: functools.partial(
            meta().train_clients, network().initial_parameters(KEY), *split_examples(examples(), key=KEY)
        ),
        **{name: value for name, value in CLIENT.items() if name != "learning_rate"},
    ),
    "compute.networks.meta_learning.MetaNetwork.adapt_clients": to(
        lambda: functools.partial(meta().adapt_clients, network().initial_parameters(KEY), examples()),
        **{name: value for name, value in CLIENT.items() if name not in ("learning_rate", "clip_norm", "clip_order")},
    ),
    "compute.networks.two_tower.TwoTower": call(features=features(), **WIDTHS),
    "compute.networks.two_tower.TwoTower.train_clients": to(
        lambda: functools.partial(network().train_clients, network().initial_parameters(KEY), examples()), **CLIENT
    ),
    "compute.networks.two_tower.TwoTower.score": on(
        network, parameters=network().initial_parameters(KEY), users=np.arange(3),
    ),
    "data.interactions.Interactions.binarize": on(rated, threshold=2.0),
    "data.interactions.Interactions.filter_core": on(
        implicit, min_interactions_per_user=2, min_interactions_per_item=3
    ),
    "data.interactions.Interactions.head": to(lambda: lambda n: implicit().head(n, "polars").rows(), n=2),
    "data.interactions.Interactions.shard": on(implicit, n=2),
    "data.interactions.Interactions.top_items": on(implicit, n=5),
    "systems.recommender.Recommender.memory_needed": to(
        lambda: fitted().memory_needed, n_users=60, n_items=40, n_interactions=600, n_threads=1
    ),
    "systems.fmf.fmf_ldp.FMFLDP.recommend": to(lambda: functools.partial(fitted().recommend, [1, 2]), n=3),
    "systems.fmf.fmf_ldp.FMFLDP.recommend_for": to(lambda: functools.partial(fitted().recommend_for, [1, 2]), n=3),
    "systems.fmf.fmf_ldp.FMFLDP.similar_items": to(lambda: functools.partial(fitted().similar_items, [1, 2]), n=3),
    "systems.fmf.fmf_ldp_rounds.FMFRounds.initial_state": on(rounds, n_items=10, key=KEY),
    "systems.fmf.fmf_ldp_rounds.FMFRounds.report_stream": to(
        lambda: functools.partial(rounds().report_stream, start(), implicit(), KEY, shuffle_key=KEY),
        round=2, n_threads=1,
    ),
    "systems.fmf.fmf_ldp_rounds.FMFRounds.collect_reports": to(
        lambda: functools.partial(rounds().collect_reports, start(), np.arange(5), np.arange(5) % 2),
        round=2, sender="x", n_clients=5,
    ),
    "mechanisms.item_choice.choose_items": [
        call(interactions=implicit(), n=5, epsilon=8.0, delta=SMALL, max_items_per_user=3, key=KEY),
        call(interactions=public(), n=5, epsilon=8.0, key=KEY),
    ],
    "mechanisms.item_choice.count_threshold": call(scale=2.0, delta=SMALL),
    "compute.nmf.fit_nmf": call(
        ratings=np.ones((4, 3)), n_factors=2, regularization=HALF, n_epochs=2, n_sweeps=2, key=KEY,
    ),
    "compute.nmf.solve_rows_nonnegative": call(
        ratings=np.ones((4, 3)), item_factors=np.ones((3, 2)), regularization=HALF, max_sweeps=5, tolerance=SMALL
    ),
    "evaluation.new_users.personalization_split": call(data=rated(), threshold=2.0, test_fraction=HALF, key=KEY),
    "compute.networks.sequences.draw_contrastive_examples": to(
        lambda: functools.partial(draw_contrastive_examples, sequences(), np.arange(3)), length=5, n_negatives=2,
        key=KEY,
    ),
    "systems.gram.shrinkage.denoise_pairs": call(matrix=np.ones((4, 4), dtype=np.float32), noise=HALF, rank=2),
    "systems.gram.shrinkage.shrink_matrix": call(
        matrix=np.ones((4, 4), dtype=np.float32), noise=HALF, rank=2, n_threads=1
    ),
    "systems.gram.shrinkage.shrink_eigenvalues": call(values=np.arange(3.0), counts=np.ones(3), noise=HALF),
    "systems.private_prototypes.private_kmeans.clustering_events": call(
        swap_epsilon=HALF, n_swaps=3, grid_epsilon=HALF, depth=2, n_shifts=2, n_rows=2
    ),
    "systems.private_prototypes.private_kmeans.private_kmeans": call(
        points=points(), candidates=points()[:9], n_clusters=2, radius=2.0, n_swaps=2, epsilon=ONE, key=KEY
    ),
    "systems.private_prototypes.private_kmeans.selection_event": call(
        mechanism="x", epsilon=HALF, count=3, accounting="pure", n_rows=2,
    ),
    "systems.private_prototypes.private_lloyd.lloyd_event": call(epsilon=ONE, n_rows=2),
    "systems.private_prototypes.private_lloyd.lloyd_rounds": call(
        n_users=100, n_clusters=3, n_dimensions=2, epsilon=ONE,
    ),
    "systems.private_prototypes.private_lloyd.private_lloyd": call(
        points=points(), n_clusters=2, radius=2.0, n_rounds=2, epsilon=ONE, key=KEY,
    ),
    "systems.private_prototypes.private_lloyd.round_epsilons": call(epsilon=ONE, n_rounds=2),
    "mechanisms.bounded_rows.check_radius": call(radius=2.0),
    "mechanisms.bounded_rows.check_value_range": call(value_range=(HALF, 2.0)),
    "mechanisms.bounded_rows.grid_candidates": call(
        points=points(), n_candidates=3, radius=2.0, depth=2, n_shifts=1, epsilon=ONE, threshold=HALF, key=KEY
    ),
    "mechanisms.bounded_rows.limit_contributions": call(
        interactions=rated(), max_entries=3, value_range=(ONE, 5.0), key=KEY,
    ),
    "mechanisms.bounded_rows.project_rows": call(interactions=rated(), n_dimensions=2, radius=2.0, key=KEY),
    "mechanisms.bounded_rows.public_candidates": call(n_candidates=3, n_dimensions=2, radius=2.0, key=KEY),
    "systems.private_prototypes.prototypes.Recovery": [
        call(
            kind="masked", max_entries=5, value_range=(ONE, 5.0), epsilon=ONE, support_size=3, support_epsilon=HALF,
            steps_per_unit=2,
        ),
        call(kind="masked", max_entries=5, value_range=(ONE, 5.0), rho=HALF),
    ],
    "data.item_features.AlignedFeatures": call(blocks=(), n_known=3, unlisted=np.arange(2)),
    "systems.sdcf.model.SDCF.epsilon_after": on(fastfedrec.SDCF, n_rounds=3),
    "systems.subspace.model.DPSubspace.costs": on(fastfedrec.DPSubspace, n_items=10),
    "systems.private_prototypes.prototypes.Recovery.check_users": on(recovery, n_users=7),
    "systems.private_prototypes.prototypes.Recovery.n_draws": on(recovery, n_clusters=2, n_items=7),
    "systems.private_prototypes.prototypes.Recovery.events": on(recovery, n_clusters=2, n_items=7, n_rows=2),
    "systems.private_prototypes.prototypes.recover_prototypes": to(
        lambda: functools.partial(
            recover_prototypes, limited(), np.arange(60) % 2, recovery=recovery()
        ),
        n_clusters=2, key=KEY,
    ),
    "core.bit_generator.ChaCha20": call(key=KEY, purpose="x", user=3),
    "core.bit_generator.ChaCha20.spawn": on(lambda: fastfedrec.ChaCha20(KEY, "x"), n_children=2),
    "core.bit_generator.ChaCha20.jumped": on(lambda: fastfedrec.ChaCha20(KEY, "x"), jumps=2),
    "core.randomness.Key.from_seed": call(n=7),
    "core.randomness.Key.words": on(lambda: KEY, purpose="x", user=3, size=4),
    "core.randomness.Key.words_by_user": on(lambda: KEY, purpose="x", users=np.arange(2), size=4),
    "core.randomness.Key.ragged_words": on(lambda: KEY, purpose="x", users=np.arange(2), sizes=np.array([1, 2])),
    "core.randomness.Key.uniform": on(lambda: KEY, purpose="x", user=3, size=4),
    "core.randomness.Key.normal": on(lambda: KEY, purpose="x", user=3, size=4),
    "core.randomness.Key.permutation": on(lambda: KEY, purpose="x", user=3, size=4),
    "core.randomness.claim_call": call(what="x", key=KEY, round=3, n_threads=2),
    "compute.ranking.held_out_ranks": call(
        held_out_scores=np.ones(2), other_scores=np.ones((2, 3)), counts=np.array([3, 3]),
    ),
    "compute.ranks.rank_counts": call(scores=np.ones((2, 5)), held_out=([0, 1, 2], [3, 4])),
    "compute.ranks.rank_counts_factors": call(
        user_factors=np.ones((2, 3)), item_factors=np.ones((5, 3)), held_out=([0, 1, 2], [3, 4])
    ),
    "compute.ranking.recommend_factors": call(user_factors=np.ones((2, 3)), item_factors=np.ones((5, 3)), n=2),
    "compute.ranking.sample_unseen": call(interactions=implicit(), rows=np.arange(3), n=2, key=KEY, purpose="x"),
    "compute.ranking.top_k": call(scores=np.ones((2, 5)), n=2),
    "compute.row_sums.sum_rows": call(interactions=implicit(), matrix=np.ones((40, 2))),
    "compute.sgd.fit_factors": call(
        users=np.arange(6), items=np.arange(6) % 3, ratings=np.ones(6), n_users=6, n_items=3, n_factors=2, n_epochs=2,
        learning_rate=HALF, regularization=HALF, bias_regularization=HALF, validation=HALF, patience=2,
        init_scale=HALF, n_blocks=2, key=KEY,
    ),
    "studies.sweep.sweeps.GeneratedData": call(
        n_users=50, n_items=40, row_length=8.0, share_kept=HALF, n_held_out=5
    ),
    "evaluation.metrics.resampling.share_error": call(values=(HALF, 0.25), n_tested=100),
    "testing.assertions.assert_clipped": call(clip=mechanisms.clip_rows_l2, clip_norm=HALF, n_columns=5),
    "testing.assertions.assert_epsilon": to(
        lambda: functools.partial(fastfedrec.testing.assert_epsilon, channel(), 0, 1), claim=ONE, n=200, delta=SMALL,
        control=HALF,
    ),
    "systems.baselines.popularity.best_n_reports": call(epsilon=4.0),
    "systems.baselines.popularity.split_epsilon": call(epsilon=4.0, n_reports=3),
    "accounting.gaussian.gaussian_mu": call(epsilon=ONE, delta=SMALL),
    "accounting.shares.count_honest_shares": call(n_nodes=4, n_answers=3, honest_fraction=HALF),
    "accounting.shares.needed_shares": call(n_nodes=4, n_answers=3, honest_fraction=HALF),
    "accounting.guesses.largest_guess_share": call(epsilon=ONE, delta=SMALL),
}  # fmt: skip


def split():
    return next(fastfedrec.evaluation.RandomHoldout(share=0.25).split(implicit(), key=KEY))


@functools.cache
def result():
    return fastfedrec.evaluation.evaluate(baselines.Popularity().fit(split().train), *split())


@functools.cache
def encoder():
    return GRUEncoder(30, n_factors=16)


def masked():
    drawn = draw_contrastive_examples(sequences(), np.arange(3), length=8, n_negatives=2, key=KEY, n_threads=1)
    return encoder().initial_parameters(KEY), drawn


@functools.cache
def joint():
    return JointNetwork(network())


@functools.cache
def meta():
    return MetaNetwork(network(), "maml", learning_rate=HALF)
