"""Binding a run to its data: the digests that a checkpoint's fit takes once, and a node for each message."""

import hashlib

import numpy as np

from fastfedrec import Key
from fastfedrec._digest import data_parts, digests
from fastfedrec.datasets import generate_implicit

from .ratios import with_ratios


def _fastfedrec(data):
    return digests(data_parts(data))


def _hashlib(data):
    """The same bytes through the same hash, without names and types: least that binding to all of them may take."""
    digest = hashlib.blake2b(digest_size=32)
    for array in (data.indptr, data.indices, data.values, data.user_ids, data.global_user_ids, data.item_ids):
        digest.update(np.ascontiguousarray(array).view(np.uint8))
    return digest.digest()


@with_ratios("time_digests")
class Digests:
    params = (["fastfedrec", "hashlib"], [6_040, 60_400])
    param_names = ("impl", "n_users")

    def setup(self, impl, n_users):
        self.data = generate_implicit(n_users, 3_706, key=Key.from_seed(0), ratings=True)
        self.bind = {"fastfedrec": _fastfedrec, "hashlib": _hashlib}[impl]
        other = self.data._replace(item_ids=self.data.item_ids[::-1])
        assert self.bind(self.data) == self.bind(self.data) != self.bind(other)

    def time_digests(self, impl, n_users):
        self.bind(self.data)
