"""Calls of all mechanisms and accounting functions with numbers (`test_numbers`)."""

import numpy as np

from fastfedrec import accounting, mechanisms
from fastfedrec.accounting import Ledger
from support.events import EVENTS, changed_fields
from support.mechanism_table import EXAMPLES
from support.numbers_calls import HALF, KEY, ONE, SMALL, call, on

PURE, ZCDP = accounting.PureAccountant, accounting.ZCDPAccountant
LOCAL = accounting.LocalReports("x", ONE, 2, 100)
SHUFFLED = accounting.ShuffledReports("x", ONE, 2, 100)
GAUSSIAN = accounting.Gaussian(2.0, neighboring="add_remove", sampling="none")
SEARCH = {"epsilon": ONE, "delta": SMALL}


def noise():
    return mechanisms.DiscreteLaplace(2, sampler="table")


def channel():
    return mechanisms.Channel([[2**63, 2**63], [2**62, 3 * 2**62]], inputs=[0, 1], outputs=[0, 2])


def published():
    return mechanisms.PublishedLaplaceRR(1.0, 1.0)


def selection():
    return mechanisms.ExponentialMechanism(1.0, sampler="gumbel")


def subsets():
    return mechanisms.SubsetSelection(1.0, 6)


def ledger():
    book = Ledger()
    book.record(LOCAL, simulation=True)
    return book


def path_below(kind):
    """Return the module of a class below `mechanisms`."""
    return kind.__module__.removeprefix("fastfedrec.mechanisms.")


MECHANISMS = {
    **{f"{path_below(kind)}.{name}": call(nominal_epsilon=ONE, **kind._example[0]) for name, kind in EXAMPLES.items()},
    "ratings.bayes_kary.BayesKary": call(
        nominal_epsilon=ONE, grid=(1, 2, 4), prior=(1.0, 2.0, 1.0), variance_ratio=1.5
    ),
    "ratings.bayes_kary.check_prior": call(name="prior", prior=(1.0, 2.0), n_values=2),
    "ratings.bayes_kary.explained_share": call(channel=channel(), prior=(HALF, HALF)),
    "channels.binary_response.BinaryResponse.privatize": on(
        lambda: mechanisms.BinaryResponse(1.0), values=[HALF], key=KEY
    ),
    "channels.binary_response.BinaryResponse.value_variance": on(lambda: mechanisms.BinaryResponse(1.0), t=HALF),
    "channels.channel.Channel": call(counts=[[2**63, 2**63], [2**62, 3 * 2**62]], inputs=(0, 1), outputs=(0.5, 2.0)),
    "channels.channel.Channel.probability": on(channel, x=1, y=0),
    "channels.channel.Channel.mean": on(channel, x=1),
    "channels.channel.Channel.variance": on(channel, x=1),
    "channels.channel.Channel.privatize": on(channel, values=[0, 1], key=KEY),
    "channels.channel.exp_lower": call(epsilon=ONE),
    "channels.channel.log_upper": call(ratio=2),
    "channels.largest_response.LargestResponse": call(nominal_epsilon=ONE, n_candidates=2),
    "channels.largest_response.LargestResponse.privatize": on(
        lambda: mechanisms.LargestResponse(1.0, 2), values=[[HALF, ONE]], key=KEY
    ),
    "client_sampling.FixedSizeSampling": call(cohort_size=5),
    "client_sampling.FixedSizeSampling.sample": on(lambda: mechanisms.FixedSizeSampling(5), n_clients=50, key=KEY),
    "client_sampling.PoissonSampling": call(sampling_probability=HALF),
    "client_sampling.PoissonSampling.sample": on(lambda: mechanisms.PoissonSampling(0.5), n_clients=50, key=KEY),
    "clipping.clip_rows_l1": call(rows=np.ones((2, 3)), clip_norm=HALF),
    "clipping.clip_rows_l2": call(rows=np.ones((2, 3)), clip_norm=HALF),
    "noise.discrete_gaussian.DiscreteGaussian": call(stddev=2),
    "noise.discrete_gaussian.DiscreteGaussian.rho": on(lambda: mechanisms.DiscreteGaussian(2), sensitivity=3),
    "noise.discrete_laplace.DiscreteLaplace": call(scale=2),
    "noise.discrete_laplace.DiscreteLaplace.exact_epsilon": on(noise, sensitivity=3),
    "noise.discrete_laplace.DiscreteLaplace.epsilon": on(noise, sensitivity=3),
    "frequencies.frequency.GRR.privatize": on(lambda: mechanisms.GRR(1.0, 4), values=[0, 3], key=KEY),
    "frequencies.frequency.GRR.channel": on(lambda: mechanisms.GRR(1.0, 2), inputs=(HALF, ONE)),
    "frequencies.frequency.GRR.estimate_from_support": on(
        lambda: mechanisms.GRR(1.0, 2), support=np.array([1, 2]), n_reports=10
    ),
    "frequencies.frequency.GRR.variance": on(lambda: mechanisms.GRR(1.0, 2), frequency=HALF, n_reports=10),
    "frequencies.frequency.OUE.privatize": on(lambda: mechanisms.OUE(1.0, 4), values=[0, 3], key=KEY),
    "frequencies.frequency.OUE.privatize_support": on(lambda: mechanisms.OUE(1.0, 4), values=[0, 3], key=KEY),
    "noise.integer_noise.IntegerNoise.delta": on(noise, epsilon=ONE, n_draws=5),
    "noise.integer_noise.IntegerNoise.total_variation_of": on(noise, n_draws=5),
    "noise.integer_noise.IntegerNoise.sample": on(noise, size=5, key=KEY, purpose="x"),
    "noise.integer_noise.IntegerNoise.add_noise": on(noise, values=[1, 2], key=KEY, purpose="x"),
    "noise.integer_noise.IntegerNoise.privatize": on(noise, values=[1, 2], key=KEY),
    "noise.integer_noise.extra_delta": call(epsilon=ONE, total_variation=SMALL),
    "ratings.laplace_rr.MixtureLaplaceRR": call(epsilon_1=ONE, epsilon_2=HALF, grid=(1, 2, 4)),
    "ratings.laplace_rr.PublishedLaplaceRR": call(epsilon_1=ONE, epsilon_2=HALF, low=HALF, high=2.0),
    "ratings.laplace_rr.PublishedLaplaceRR.delta": on(published, epsilon=HALF),
    "ratings.laplace_rr.PublishedLaplaceRR.privatize": on(published, values=[HALF], key=KEY),
    "ratings.laplace_rr.PublishedLaplaceRR.on_grid": on(published, grid=(0, 1)),
    "ratings.laplace_rr.RoundedLaplace": call(nominal_epsilon=ONE, grid=(1, 2, 4), margin=HALF),
    "ratings.laplace_rr.SerialLaplaceRR": call(epsilon_1=ONE, epsilon_2=HALF, grid=(1, 2, 4)),
    "noise.layered_gaussian.LayeredGaussian": call(stddev=2**15),
    "noise.layered_gaussian.LayeredGaussian.share": on(
        lambda: mechanisms.LayeredGaussian(2**20), n_nodes=4, n_answers=3, honest_fraction=HALF
    ),
    "noise.layered_gaussian.LayeredGaussian.sum_of": on(lambda: mechanisms.LayeredGaussian(2**20), n_shares=2),
    "noise.layered_gaussian.LayeredGaussian.total_variation_of_shares": on(
        lambda: mechanisms.LayeredGaussian(2**20), n_draws=3, n_shares=2
    ),
    "noise.layered_gaussian.gaussian_noise": call(stddev=HALF),
    "channels.piecewise.Hybrid": call(nominal_epsilon=ONE, n_cells=5),
    "channels.piecewise.Piecewise": call(nominal_epsilon=ONE, n_cells=5),
    "channels.piecewise.Piecewise.variance": on(lambda: mechanisms.Piecewise(1.0, 5), t=HALF),
    "channels.piecewise.Piecewise.privatize": on(lambda: mechanisms.Piecewise(1.0, 5), values=[HALF], key=KEY),
    "noise.rounded_gaussian.RoundedGaussian": call(stddev=2),
    "noise.skellam.Skellam": call(variance=2),
    "noise.skellam.Skellam.share": on(lambda: mechanisms.Skellam(2), n_nodes=4, n_answers=3, honest_fraction=HALF),
    "noise.rounded_gaussian.RoundedGaussian.noise_multiplier": on(lambda: mechanisms.RoundedGaussian(2), sensitivity=3),
    "exponential.ExponentialMechanism": call(epsilon=ONE, sensitivity=3, n_selected=2),
    "exponential.ExponentialMechanism.delta": on(selection, n_scores=5),
    "exponential.ExponentialMechanism.event": on(selection, n_scores=5, neighboring="replace"),
    "exponential.ExponentialMechanism.privatize": on(selection, scores=[1, 5], key=KEY),
    "frequencies.subset_selection.SubsetSelection": call(nominal_epsilon=ONE, n_values=6, subset_size=2),
    "frequencies.subset_selection.SubsetSelection.privatize": on(subsets, values=[0, 3], key=KEY),
}

# Calls of every kind of event.
EVENT_CALLS = {
    f"events.{name}": [call(**changed_fields(event)) for event in EVENTS if type(event).__name__ == name]
    for name in {type(event).__name__: None for event in EVENTS}
}
ACCOUNTING = EVENT_CALLS | {
    "calibration.calibrate_epsilon_per_report": call(event=LOCAL, count=2, accountant=PURE, **SEARCH),
    "calibration.calibrate_n_reports": call(event=SHUFFLED, epsilon=2.0, delta=SMALL),
    "calibration.calibrate_n_rounds": call(event=LOCAL, epsilon=8.0, delta=SMALL, accountant=PURE),
    "calibration.calibrate_noise_multiplier": call(event=GAUSSIAN, count=2, accountant=ZCDP, **SEARCH),
    "composition.Accountant.compose": on(accounting.ZCDPAccountant, event=GAUSSIAN, count=3),
    "composition.Accountant.get_epsilon": on(lambda: accounting.ZCDPAccountant().compose(GAUSSIAN), delta=SMALL),
    "composition.Accountant.get_delta": on(lambda: accounting.ZCDPAccountant().compose(GAUSSIAN), epsilon=ONE),
    "composition.PureAccountant.get_epsilon": on(lambda: accounting.PureAccountant().compose(LOCAL), delta=SMALL),
    "communication.CommunicationLedger": call(rounds=[], n_clients=5),
    "communication.RoundTraffic": call(download=100, upload=50, n_clients=5),
    "blanket.largest_response_loss": call(epsilon=ONE, n_candidates=2, n_users=100),
    "events.Composed": call(events=(LOCAL,), count=2),
    "ledger.Ledger": call(delta=SMALL, budget=ONE),
    "ledger.Ledger.remaining": on(lambda: Ledger(budget=4.0), n_uses=2),
    "ledger.Ledger.amend": on(ledger, event=LOCAL, n_reporting_users=50),
    "ledger.Ledger.confirm_shuffled": on(ledger, event=LOCAL, n_users=100, honest_fraction=HALF),
    "ledger.Ledger.epsilon": on(ledger, delta=SMALL),
    "pld.epsilon_lower_bound": call(event=GAUSSIAN, delta=SMALL),
    "published.published_privrec_epsilon": call(
        n_users=100, cohort_size=10, rounds=5, noise_multiplier=2.0, delta=SMALL
    ),
    "published.published_shuffle_epsilon": call(
        theorem="feldman2021", epsilon_per_report=0.25, n_users=10_000, delta=SMALL
    ),
    "rdp.poisson_divergence": call(order=3.0, sampling_probability=HALF, noise_multiplier=2.0),
    "rdp.without_replacement_divergence": call(order=3.0, sampling_rate=HALF, noise_multiplier=2.0),
    "shuffle.clone_loss": call(epsilon=ONE, n_users=100, clone_probability=HALF),
    "shuffle.shuffled_epsilon": call(
        epsilon_per_report=ONE, n_reports=2, n_users=100, n_rounds=2, delta=SMALL, honest_fraction=HALF
    ),
    "shuffle.shuffled_epsilon_lower_bound": call(epsilon_per_report=ONE, n_reports=2, n_users=100, delta=SMALL),
    "shuffle.shuffled_loss": call(epsilon=ONE, n_users=100),
    "shuffle.split_reports": call(n_reports=3),
    "shuffle.zero_out_loss": call(epsilon=ONE, n_reports=2, n_users=100),
    "views.composed_epsilon": call(events={LOCAL: 2}, view="server", delta=SMALL),
    "views.cost_of": call(events={LOCAL: 2}, view="server", delta=SMALL),
    "views.stated_cost": call(events={LOCAL: 2}, view="server", delta=SMALL),
}
