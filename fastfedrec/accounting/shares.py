"""Number of shares of noise that count: nodes may drop out, and the others may be dishonest."""

from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.docstrings import shares_docstring

__all__ = ["SHARE_COUNTS", "count_honest_shares", "needed_shares"]

#: Parameters of functions that size a share.
SHARE_COUNTS = """\
n_nodes : int
    Number of nodes that are asked.
n_answers : int
    Smallest number of answers with which a round ends, a public plan.
honest_fraction : float
    Share of the asked nodes, in [0, 1], that add their noise and do not reveal it."""


def count_honest_shares(n_nodes: int, n_answers: int, honest_fraction: float) -> int:
    """Return the number of answers that are from honest nodes for certain, if all nodes that dropped out were honest.

    Parameters
    ----------
    n_nodes : int
        Number of nodes that were asked.
    n_answers : int
        Number of nodes that answered, at most `n_nodes`.
    honest_fraction : float
        Share of the asked nodes that are honest, in [0, 1]; the number of honest nodes is rounded down.

    Returns
    -------
    int
        ``max(0, n_answers - (1 - honest_fraction) * n_nodes)``.

    Examples
    --------
    >>> from fastfedrec.accounting.shares import count_honest_shares
    >>> count_honest_shares(1000, 950, 0.7)
    650
    """
    n_nodes = check_integer("n_nodes", n_nodes, low=1)
    n_answers = check_integer("n_answers", n_answers, low=0, high=n_nodes)
    honest_fraction = check_real("honest_fraction", honest_fraction, low=0.0, high=1.0)
    # Above 2^53 nodes the product may round up, so the number of nodes bounds it.
    n_honest = min(n_nodes, int(honest_fraction * n_nodes))
    return max(0, n_answers - (n_nodes - n_honest))


@shares_docstring(SHARE_COUNTS)
def needed_shares(n_nodes: int, n_answers: int, honest_fraction: float) -> int:
    """Return `count_honest_shares`, by which the noise of a share is sized, or raise if no share counts.

    Returns
    -------
    int
        Number of shares that count, at least 1.

    Raises
    ------
    ValueError
        No share counts: all answers may be from dishonest nodes.

    Examples
    --------
    >>> from fastfedrec.accounting.shares import needed_shares
    >>> needed_shares(1000, 950, 0.7)
    650
    """
    n_shares = count_honest_shares(n_nodes, n_answers, honest_fraction)
    if not n_shares:
        raise ValueError(
            f"n_answers must be above the number of nodes that may be dishonest, got {n_answers} of {n_nodes} "
            f"nodes with honest_fraction {honest_fraction:g}; wait for more answers"
        )
    return n_shares
