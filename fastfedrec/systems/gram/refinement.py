"""What the server makes of DPGram's third release: the directions that it asks about, and the answer put in.

The release is C = kappa hollow(A) E + noise, with A the matrix of item pairs of which an estimate R is known, E the
public encoder made of R's strongest eigenvectors, and hollow(A) the matrix without its diagonal.  See
docs/explanation/systems/gram/dp-gram.md.
"""

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread
from fastfedrec.systems.gram.shrinkage import RANK

__all__ = ["N_COLUMNS", "directions", "refine_factors"]

N_COLUMNS = 40  # of the encoder
_LENGTH = 2.0**12  # of its longest column, in whole numbers: its entries are far within what devices answer
_LEAST = 0.01  # of the strongest factor's length: so that whole numbers still tell the shortest column well


def directions(factors: np.ndarray, n_columns: int) -> NDArray[np.int16]:
    """The encoder: the strongest eigenvectors of L L', the weaker ones longer, in whole numbers.

    A user's answer has norm 1 whatever it asks, so that columns share it by what the row has of each.  The fourth root
    of the eigenvalues lies between equal columns, of which the strongest would take most, and equal answers.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L, with orthogonal columns, strongest first.
    n_columns : int
        Of the encoder.

    Returns
    -------
    ndarray of shape (n_items, n_columns), int16
        Columns beyond the rank are 0.
    """
    asked = factors[:, :n_columns]
    encoder = np.zeros((len(factors), n_columns), dtype=np.int16)
    if asked.shape[1]:
        encoder[:, : asked.shape[1]] = np.rint(asked * (_scales(asked) / np.linalg.norm(asked, axis=0)))
    return encoder


def refine_factors(
    factors: np.ndarray, sums: np.ndarray, encoder: np.ndarray, noise: float, *, rank: int = RANK
) -> NDArray[np.float64]:
    """Correct an estimate L L' of A by what noisy cross products say of its strongest directions.

    kappa is the regression of C on H = hollow(L L') E.  Each column of what C / kappa has beyond H is shrunk by the
    part of its square that is noise (James and Stein), and the estimate moves as little as it can to agree with it.

    Parameters
    ----------
    factors : ndarray of shape (n_items, k), float64
        L, with orthogonal columns, strongest first.
    sums : ndarray of shape (n_items, n_columns), float64
        C.
    encoder : ndarray of shape (n_items, n_columns), int16
        `directions` of L.
    noise : float
        Standard deviation of an entry of C, above 0.
    rank : int
        Most columns of the result, at least 1.

    Returns
    -------
    ndarray of shape (n_items, n_found), float64
        L as `denoise_pairs` returns it; as it was where C has nothing of H.
    """
    n_items, n_asked = len(factors), min(factors.shape[1], encoder.shape[1])
    asked, sums = encoder[:, :n_asked].astype(np.float64), sums[:, :n_asked]
    with one_blas_thread():
        expected = factors @ (factors.T @ asked) - np.square(factors).sum(axis=1)[:, None] * asked
        power = np.square(expected).sum()
        strength = float((expected * sums).sum() / power) if power > 0 else 0.0
        if strength <= 0:
            return factors
        beyond = sums / strength - expected
        squares = np.maximum(np.square(beyond).sum(axis=0), np.finfo(float).tiny)
        beyond *= np.maximum(1 - n_items * (noise / strength) ** 2 / squares, 0.0)
        # R V = L L' V + U on the eigenvectors V, and what is orthogonal to them on both sides stays.
        moved = beyond / _scales(factors[:, :n_asked])
        vectors = factors[:, :n_asked] / np.linalg.norm(factors[:, :n_asked], axis=0)
        basis, _ = np.linalg.qr(np.column_stack([factors, moved]))
        within, seen, told = basis.T @ factors, basis.T @ vectors, basis.T @ moved
        inner = seen.T @ told
        cross = told @ seen.T
        matrix = within @ within.T + cross + cross.T - seen @ ((inner + inner.T) / 2) @ seen.T
        values, turn = np.linalg.eigh(matrix)
        strongest = np.flatnonzero(values > 0)[::-1][:rank]
        return basis @ (turn[:, strongest] * np.sqrt(values[strongest]))


def _scales(asked: np.ndarray) -> np.ndarray:
    """Lengths of the encoder's columns: 1 / sqrt of those of the factors, which are roots of eigenvalues."""
    lengths = np.linalg.norm(asked, axis=0)
    lengths = np.maximum(lengths, _LEAST * lengths[0])
    return _LENGTH * np.sqrt(lengths[-1] / lengths)
