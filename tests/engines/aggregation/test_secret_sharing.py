"""Shares of secrets against the package pycryptodome and polynomials in Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.engines.aggregation import secret_sharing as naive
from scipy import stats

from fastfedrec import Key
from fastfedrec.engines.aggregation.secret_sharing import combine_shares, split_secret
from fastfedrec.testing import ALPHA

SECRETS, RANDOMNESS = st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32)

# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(secret=SECRETS, randomness=RANDOMNESS, n_shares=st.integers(1, 6), data=st.data())
def test_shares_equal_the_naive_twin(secret, randomness, n_shares, data):
    threshold = data.draw(st.integers(1, n_shares))
    shares = split_secret(secret, n_shares, threshold, randomness=randomness)
    assert shares == naive.split_secret(secret, n_shares, threshold, randomness)
    some = data.draw(st.permutations(list(enumerate(shares, start=1))))[:threshold]
    assert combine_shares(some) == naive.combine_shares(some) == secret


def test_shares_are_those_of_pycryptodome():
    shamir = pytest.importorskip("Crypto.Protocol.SecretSharing").Shamir
    secret = b"0123456789abcdef"
    theirs = shamir.split(60, 200, secret)
    assert combine_shares(theirs[100:160]) == combine_shares(theirs) == secret
    ours = list(enumerate(split_secret(secret, 200, 60, randomness=b"r" * 32), start=1))
    assert shamir.combine(ours[140:]) == secret
    # One share fewer has another value at 0.
    assert combine_shares(theirs[:59]) != secret
    assert combine_shares(theirs[:59]) == shamir.combine(theirs[:59])


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(secret=SECRETS, randomness=RANDOMNESS)
def test_the_largest_numbers_of_shares(secret, randomness):
    shares = list(enumerate(split_secret(secret, 1023, 3, randomness=randomness), start=1))
    assert combine_shares(shares[-3:]) == combine_shares(shares[:2] + shares[-1:]) == secret


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    secret, randomness = bytes(16), bytes(32)
    for arguments, options, message in (
        ((bytes(15), 3, 2), {"randomness": randomness}, "secret must have 16 bytes, got 15"),
        ((secret, 3, 2), {"randomness": bytes(16)}, "randomness must have 32 bytes, got 16"),
        ((secret, 1024, 2), {"randomness": randomness}, "n_shares must be"),
        ((secret, 3, 4), {"randomness": randomness}, "threshold must be"),
    ):
        with pytest.raises(ValueError, match=message):
            split_secret(*arguments, **options)
    for shares, message in (
        ([], "shares must have distinct numbers"),
        ([(1, secret), (1, secret)], "shares must have distinct numbers"),
        ([(0, secret)], "shares must be"),
        ([(1, secret + b"x")], "shares must have 16 bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            combine_shares(shares)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fewer_shares_than_the_threshold_are_uniform_for_each_secret():
    def are_uniform(threshold):
        words = Key.from_seed(1).words("test", size=4 * 20_000).astype("<u8").reshape(-1, 4)
        counts = np.zeros((2, 64), dtype=int)
        for row in words:
            first, second = split_secret(bytes(16), 4, threshold, randomness=row.tobytes())[:2]
            counts[0, (first[0] >> 5) * 8 + (second[0] >> 5)] += 1
            # The value at 0 of the line through both, which is the secret with threshold 2.
            counts[1, combine_shares([(1, first), (2, second)])[0] >> 2] += 1
        return all(stats.chisquare(count).pvalue > ALPHA for count in counts)

    assert are_uniform(3)
    assert not are_uniform(2)
