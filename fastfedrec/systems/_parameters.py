"""Parameters that several systems share, each declared once."""

from typing import Any

from fastfedrec.core.parameters import choice, integer, parameter, real
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.mechanisms.bounded_rows import check_value_range

_MAX_EPSILON = 1e12  # a run's noise stays above the smallest standard deviation that LayeredGaussian draws


#: Trust models, with the party that sees the data or their reports.
TRUSTED_PARTIES = {
    "central": "the server is trusted with the data",
    "shuffle": "only a shuffler is trusted",
    "local": "only the user's own device is trusted",
    "aggregator": "an honest share of the nodes is trusted to add noise to masked numbers",
}

#: Party that adds the messages of users, by the word for it.
AGGREGATIONS = {
    "central": "the server adds exact sums, and the noise",
    "secure": "each node adds a share of the noise, and the server learns the noisy sums alone",
}


def check_n_factors(n_factors: int, n_items: int) -> int:
    """Return a number of factors that a fit of `n_items` items can have, or raise an error with the remedy."""
    if n_factors > n_items:
        raise ValueError(
            f"n_factors must be at most {n_items}, the number of items, got {n_factors}; pass {n_items} or less"
        )
    return n_factors


def aggregation_of_sums() -> Any:
    """Declare who adds users' contributions and the noise."""
    return choice("central", AGGREGATIONS).doc("""
        Party that sums users' contributions.  With "central" the server sees exact sums and adds the noise.  With
        "secure" each user's node adds a share of the noise to masked numbers, and `epsilon` holds against the server,
        too.  `fit` then simulates all nodes in one process.""")


def honest_share() -> Any:
    """Declare the share of honest nodes."""
    return real(None, above=0.0, high=1.0, also=[None]).doc("""
        With secure aggregation, which requires it: share of the nodes, in (0, 1], that add their share of the noise and
        do not reveal it to the server.  Fewer honest nodes need larger shares.""")


def dropout_share() -> Any:
    """Declare the largest share of nodes that drop out of a round."""
    return real(0.05, low=0.0, below=1.0).doc("""
        With secure aggregation: largest share of the nodes that do not answer in a round, in [0, 1).  All of them may
        be honest.  If more drop out, the fit ends without a result.""")


def run_epsilon() -> Any:
    """Declare the epsilon of a run with noisy sums."""
    text = "Epsilon of the whole run, in nats, above 0 and below 1e12."
    return real(1.0, above=0.0, below=_MAX_EPSILON).doc(text)


def run_delta() -> Any:
    """Declare the delta of a run."""
    return real(1e-6, above=0.0, below=1.0).doc("Delta of the whole run, between 0 and 1.")


def share_of_mean(default: float) -> Any:
    """Declare the share of the squared budget for a mean."""
    text = "Share of the squared budget for the first mean of the users' rows, in (0, 1)."
    return real(default, above=0.0, below=1.0).doc(text)


def public_users(high: int, use: str) -> Any:
    """Declare the public number of users, with a sentence on its use."""
    return integer(None, low=1, high=high, also=[None]).doc(f"""
        Public number of users, which `communication_` and saved files contain.  None publishes the number of rows, and
        the ledger states this.  {use}""")


def public_features(use: str) -> Any:
    """Declare the public features of items, with a sentence on their use."""
    kind = "frame, mapping of str to array_like, array of shape (n_items, n_dimensions),"
    return parameter(None, kind, ItemFeatures.of, also=[None]).doc(f"""
        **Public** features of the items, never made from users' rows: labels, lists of labels, numbers, text or vectors
        (`fastfedrec.data.item_features.ItemFeatures.of`).  The ids are a column `item`, or one of a usual name; without
        ids, rows are in the order of the items.
        {use}""")


def number_of_factors(default: int, more: str = "") -> Any:
    """Declare the number of factors, with a further sentence."""
    return integer(default, low=1, high=256).doc(f"Number of factors, from 1 to 256.  {more}")


def range_of_values() -> Any:
    """Declare the public range of values."""
    return parameter((1.0, 5.0), "tuple of float", lambda _, value: check_value_range(value))
