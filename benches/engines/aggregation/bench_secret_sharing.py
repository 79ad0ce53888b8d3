"""Shares of one seed for the neighbours of a node among 1,000 and 50,000, and the seed from as many as needed.

The peer is pycryptodome, with the same arithmetic in Python's integers.
"""

from benches.floors import integer_operations_per_second
from benches.ratios import peer, with_ratios
from fastfedrec import hardware
from fastfedrec.engines.aggregation.secret_sharing import combine_shares, split_secret

SECRET, RANDOMNESS = bytes(range(16)), bytes(32)
NEEDED = {118: 100, 172: 144}  # neighbours and shares that are needed


def _split(n_shares):
    return list(enumerate(split_secret(SECRET, n_shares, NEEDED[n_shares], randomness=RANDOMNESS), start=1))


def _seconds(n_steps):
    """Return the smallest seconds of one core for steps of a product.

    A step handles one binary digit: twelve operations on words of 64 bits, which are two lanes of 32 bits each.
    """
    return 24 * n_steps / integer_operations_per_second(hardware.instruction_set())


class _Shares:
    param_names = ("impl", "n_shares")
    params = (["fastfedrec", "pycryptodome"], list(NEEDED))

    def setup(self, impl, n_shares):
        self.n_needed, self.shares = NEEDED[n_shares], _split(n_shares)
        if impl == "pycryptodome":
            with peer("pycryptodome"):
                from Crypto.Protocol.SecretSharing import Shamir
            self.shamir = Shamir
            if Shamir.combine(self.shares[-self.n_needed :]) != SECRET:
                raise AssertionError("shares differ")


@with_ratios("time_split", floor=lambda case: _seconds(case.n_needed * len(case.shares) * 7))
class Split(_Shares):
    def time_split(self, impl, n_shares):
        if impl == "fastfedrec":
            _split(n_shares)
        else:
            self.shamir.split(self.n_needed, n_shares, SECRET)


@with_ratios("time_combine", floor=lambda case: _seconds(case.n_needed**2 * 7 + (4 * case.n_needed + 254) * 128))
class Combine(_Shares):
    def time_combine(self, impl, n_shares):
        (combine_shares if impl == "fastfedrec" else self.shamir.combine)(self.shares[: self.n_needed])
