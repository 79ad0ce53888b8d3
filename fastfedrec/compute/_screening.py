"""The decision whether `ranking.recommend_factors` screens items by 8-bit copies of the factors."""

from fastfedrec._kernels.core import hardware as _hardware
from fastfedrec.core import hardware

__all__ = ["pays"]

# Smallest n_items * n_factors / n for which screening by 8-bit copies of the factors saves time, as measured, by
# instruction set and bytes of a number.  Code that multiplies 16 floats at once gains little from screening.
_MIN_SCREENED_PRODUCTS = {
    ("x86-64-v3", 4): 12_000,
    ("x86-64-v3", 8): 6_000,
    ("x86-64-v4", 4): 60_000,
    ("x86-64-v4", 8): 8_000,
}


def pays(n_users: int, n_items: int, n_factors: int, itemsize: int, n: int) -> bool:
    """Return whether screening by 8-bit copies of the factors saves time; the result does not depend on it."""
    name = hardware.instruction_set()
    # A processor that splits AVX-512 vectors into halves has the speed of AVX2.
    if name == "x86-64-v4" and _hardware.splits_vectors():
        name = "x86-64-v3"
    min_products = _MIN_SCREENED_PRODUCTS.get((name, itemsize))
    if min_products is None or n > 16 or n_users < 400 or n_factors * itemsize < 128:
        return False
    return n_items * n_factors >= min_products * n
