"""Keys and streams: RFC 8439's vectors, a pure-Python twin, the key rules, and uniformity."""

import copy
import hashlib
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.core import randomness as naive
from scipy import special, stats
from support.significance import ALPHA, assert_only, counts_are

from fastfedrec import Key
from fastfedrec._kernels.core import randomness as kernel
from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.randomness import claim_call, resolve_key

SECRET = bytes(range(32))
users = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1), st.sampled_from([2**32 - 1, 2**32, 2**33 + 5]))
rounds = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))
purposes = st.text(st.characters(codec="utf-8"), max_size=12)


def little_endian(hexadecimal):
    return np.frombuffer(bytes.fromhex(hexadecimal.replace(":", "").replace(" ", "")), dtype="<u4").astype(np.uint32)


def state(key, counter, nonce):
    constants = np.array([0x61707865, 0x3320646E, 0x79622D32, 0x6B206574], dtype=np.uint32)
    return np.concatenate([constants, little_endian(key), np.array([counter], np.uint32), little_endian(nonce)])


def keystream(key, counter, nonce, n_bytes):
    out = np.empty((-(-n_bytes // 64), 16), dtype=np.uint32)
    kernel.keystream_blocks(state(key, counter, nonce), out)
    return out.astype("<u4").tobytes()[:n_bytes]


# ---- oracle -----------------------------------------------------------------------------------------------------

ASCENDING = "".join(f"{i:02x}" for i in range(32))
ZERO, ONE = "00" * 32, "00" * 31 + "01"

#: (key, block counter, nonce, keystream) of RFC 8439: section 2.3.2, then appendix A.1, vectors 1 to 5.
BLOCKS = [
    (ASCENDING, 1, "000000090000004a00000000",
     "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
     "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"),
    (ZERO, 0, "00" * 12,
     "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
     "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"),
    (ZERO, 1, "00" * 12,
     "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
     "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"),
    (ONE, 1, "00" * 12,
     "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
     "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"),
    ("00ff" + "00" * 30, 2, "00" * 12,
     "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
     "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"),
    (ZERO, 0, "00" * 11 + "02",
     "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
     "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d"),
]  # fmt: skip

SUNSCREEN = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
    b"sunscreen would be it."
)
SUNSCREEN_CIPHER = bytes.fromhex(
    "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b357"
    "1639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
    "5af90bbf74a35be6b40b8eedf2785e42874d"
)


@pytest.mark.parametrize(("key", "counter", "nonce", "expected"), BLOCKS)
def test_rfc_8439_blocks(key, counter, nonce, expected):
    assert keystream(key, counter, nonce, 64).hex() == expected
    # The twin in Python must pass the vectors of the RFC too, since other tests compare with it.
    twin = naive.block(little_endian(key).tolist(), counter, little_endian(nonce).tolist())
    assert np.array(twin, dtype="<u4").tobytes().hex() == expected


def test_rfc_8439_encryption():
    # Section 2.4.2 of RFC 8439.
    stream = keystream(ASCENDING, 1, "000000000000004a00000000", len(SUNSCREEN))
    assert bytes(a ^ b for a, b in zip(SUNSCREEN, stream, strict=True)) == SUNSCREEN_CIPHER


@pytest.mark.parametrize("n_blocks", [1, 3, 4, 5, 9])
def test_blocks_computed_together_are_those_computed_alone(n_blocks):
    combined = keystream(ASCENDING, 7, "00" * 12, 64 * n_blocks)
    separate = b"".join(keystream(ASCENDING, 7 + i, "00" * 12, 64) for i in range(n_blocks))
    assert combined == separate


@given(st.binary(min_size=32, max_size=32), purposes, rounds, users, st.integers(0, 70))
def test_words_equal_the_twin(secret, purpose, round_number, user, size):
    got = Key(secret).words(purpose, round=round_number, user=user, size=size)
    assert got.dtype == np.uint64
    assert got.tolist() == naive.words(secret, purpose, round_number, user, size)


@given(purposes, rounds, st.lists(users, max_size=5), st.integers(0, 40))
def test_words_by_user_are_the_words_of_each(purpose, round_number, chosen, size):
    key = Key(SECRET)
    got = key.words_by_user(purpose, np.array(chosen, dtype=np.uint64), round=round_number, size=size)
    assert got.shape == (len(chosen), size)
    for row, user in zip(got, chosen, strict=True):
        np.testing.assert_array_equal(row, key.words(purpose, round=round_number, user=user, size=size))


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_uniforms_are_exact_and_inside(stream):
    for word, got in zip(stream, as_uniform(np.array(stream, dtype=np.uint64)).tolist(), strict=True):
        assert Fraction(got) == Fraction(*naive.uniform(word))
        assert 0 < got < 1


def test_uniforms_at_the_ends():
    lowest, highest = as_uniform(np.array([0, 2**64 - 1], dtype=np.uint64)).tolist()
    # The middle of the first and of the last of 2^52 cells.
    assert lowest == 2.0**-53
    assert highest == 1 - 2.0**-53
    assert np.isfinite(special.ndtri([lowest, highest])).all()


def test_derived_draws_follow_their_words():
    key, name = Key.from_seed(1), {"round": 3, "user": 2**40, "size": 200}
    stream = key.words("p", **name)
    uniforms = [numerator / denominator for numerator, denominator in map(naive.uniform, stream.tolist())]
    assert key.uniform("p", **name).tolist() == uniforms
    assert key.normal("p", **name) == pytest.approx(stats.norm.ppf(uniforms), rel=1e-13)
    assert key.permutation("p", **name).tolist() == naive.permutation(stream.tolist())


@given(st.lists(st.integers(0, 40), max_size=400))
def test_equal_words_keep_their_order_in_a_permutation(stream):
    key = Key.from_seed(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Key, "words", lambda self, *name, **more: np.array(stream, dtype=np.uint64))
        assert key.permutation("p", size=len(stream)).tolist() == naive.permutation(stream)


# ---- invariants -------------------------------------------------------------------------------------------------


def test_a_stream_is_its_name_whatever_the_size():
    key = Key.from_seed(5)
    longest = key.words("p", round=1, user=2, size=1000)
    # Sizes at the borders of ChaCha20's blocks of eight words, and of four blocks at a time.
    for size in (0, 1, 31, 32, 33, 999):
        np.testing.assert_array_equal(key.words("p", round=1, user=2, size=size), longest[:size])


@given(purposes, rounds, users, st.integers(0, 2**70))
def test_another_name_is_another_stream(purpose, round_number, user, seed):
    key = Key.from_seed(seed)

    def first(purpose=purpose, round_number=round_number, user=user, key=key):
        return tuple(key.words(purpose, round=round_number, user=user, size=4).tolist())

    streams = [
        first(),
        first(purpose=purpose + "x"),
        first(round_number=round_number ^ 1),
        first(user=user ^ 1),
        first(user=user ^ 2**32),
        first(key=Key.from_seed(seed + 1)),
    ]
    assert len(set(streams)) == len(streams)
    assert first() == streams[0]


def test_round_and_user_do_not_trade_places():
    key = Key.from_seed(0)
    streams = {
        tuple(key.words("p", round=round_number, user=user, size=2).tolist())
        for round_number, user in [(1, 0), (0, 1), (0, 2**32), (1, 1), (1, 2**32), (0, 2**32 + 1)]
    }
    # The round and both halves of the user id are different words of the nonce.
    assert len(streams) == 6


@given(st.integers(0, 50), users)
def test_a_permutation_is_one(size, user):
    assert sorted(Key.from_seed(9).permutation("p", user=user, size=size).tolist()) == list(range(size))


def test_the_key_of_a_seed_is_fixed_for_all_time():
    secret = hashlib.sha256(b"fastfedrec simulation key 1:7").digest()
    assert Key.from_seed(7).words("p", size=9).tolist() == naive.words(secret, "p", 0, 0, 9)


def test_entropy_keys_differ():
    draws = {tuple(Key.from_entropy().words("p", size=2).tolist()) for _ in range(10)}
    assert len(draws) == 10
    assert not Key.from_entropy().is_simulation
    assert Key.from_seed(0).is_simulation


def test_a_key_that_was_handed_over_serves_one_run_there_and_none_here():
    key = Key.from_entropy()
    inner = key._hand_over("outer.fit")
    assert inner is not key
    np.testing.assert_array_equal(inner.words("x", size=3), key.words("x", size=3))
    # The outer key is used up, and the inner key allows exactly one claim.
    for taken in (key.claim, key._hand_over):
        with pytest.raises(ValueError, match=r"single-use and was already used by outer\.fit"):
            taken("again")
    inner.claim("inner.fit")
    with pytest.raises(ValueError, match=r"already used by inner\.fit"):
        inner.claim("again")
    seeded = Key.from_seed(1)
    assert seeded._hand_over("outer.fit") is seeded


def test_an_entropy_key_is_taken_once():
    key = Key.from_entropy()
    key.claim("first.fit")
    with pytest.raises(ValueError, match=r"key is single-use and was already used by first\.fit"):
        key.claim("second.fit")
    with pytest.raises(ValueError, match=r"first.fit.*Key.from_seed\(n\) for a simulation"):
        copy.deepcopy(key).claim("third.fit")


def test_a_simulation_key_is_reusable():
    key = Key.from_seed(1)
    before = key.words("p", size=4).tolist()
    key.claim("one")
    key.claim("two")
    assert key.words("p", size=4).tolist() == before


def test_of_many_threads_one_gets_the_key():
    key, barrier, won = Key.from_entropy(), threading.Barrier(8), []

    def take(name):
        # All threads claim at the same time.
        barrier.wait()
        try:
            key.claim(name)
        except ValueError:
            return
        won.append(name)

    threads = [threading.Thread(target=take, args=(f"thread {i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_a_copy_is_the_same_key():
    for key in (Key.from_entropy(), Key.from_seed(3)):
        assert copy.copy(key) is key
        assert copy.deepcopy([key])[0] is key


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_only_simulation_keys_are_pickled(protocol):
    restored = pickle.loads(pickle.dumps(Key.from_seed(11), protocol))
    assert repr(restored) == "Key.from_seed(11)"
    assert restored.words("p", size=3).tolist() == Key.from_seed(11).words("p", size=3).tolist()
    with pytest.raises(TypeError, match="an entropy key is never pickled or sent"):
        pickle.dumps(Key.from_entropy(), protocol)


def test_nothing_printed_holds_the_secret():
    key = Key(SECRET)
    for text in (repr(key), str(key), f"{key}", repr([key]), repr({"key": key})):
        assert "Key.from_entropy()" in text
        assert SECRET.hex() not in text
        assert repr(SECRET)[2:-1] not in text
    # A debugger or a serializer that prints `__dict__` would show the secret.
    assert not hasattr(key, "__dict__")
    key.claim("fit")
    with pytest.raises(ValueError, match="single-use") as caught:
        key.claim("fit")
    assert SECRET.hex() not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"round": -1}, {"round": 2**32}, {"round": 0, "n_threads": -1}])
def test_a_call_that_is_refused_does_not_use_its_key_up(wrong):
    key = Key.from_entropy()
    with pytest.raises(ValueError, match=f"{list(wrong)[-1]} must be"):
        claim_call("first", key, **wrong)
    # The refused call did not claim the key, so this one can.
    assert claim_call("second", key, 3, 2) == (key, 3, 2)
    with pytest.raises(ValueError, match="already used by second"):
        claim_call("third", key, 3, 2)


def test_resolve_key():
    key = Key.from_seed(1)
    assert resolve_key(key) is key
    assert not resolve_key(None).is_simulation


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 70)), max_size=8), st.integers(0, 2**32 - 1))
def test_ragged_words_are_the_first_words_of_each(streams, round_number):
    key = Key.from_seed(3)
    users = np.array([user for user, _ in streams], dtype=np.uint64)
    sizes = np.array([size for _, size in streams], dtype=np.int64)
    for n_threads in (1, 4):
        words, starts = key.ragged_words("demo", users, sizes, round=round_number, n_threads=n_threads)
        assert len(words) == starts[-1] == sizes.sum()
        for k, (user, size) in enumerate(streams):
            expected = key.words("demo", round=round_number, user=user, size=size)
            assert (words[starts[k] : starts[k + 1]] == expected).all()


def test_sizes_of_ragged_words_are_checked():
    for sizes, message in (([1], r"sizes must be 2 integers, one for each user"), ([1, -1], "sizes must be from 0 to")):
        with pytest.raises(ValueError, match=message):
            Key.from_seed(3).ragged_words("demo", np.arange(2), np.array(sizes))


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda key: Key.from_seed(-1), ValueError, "n must be at least 0, got -1"),
        (lambda key: Key.from_seed(1.5), TypeError, "n must be an integer"),
        (lambda key: Key.from_seed(True), TypeError, "n must be an integer"),
        (lambda key: Key(b"short"), ValueError, "secret must be 32 bytes"),
        (lambda key: Key("x" * 32), ValueError, "secret must be 32 bytes"),
        (lambda key: key.words(3, size=1), TypeError, "purpose must be str, got int"),
        (lambda key: key.words("p", size=-1), ValueError, "size must be at least 0, got -1"),
        (lambda key: key.words("p", size=2**35 + 1), ValueError, "size must be at most 34359738368"),
        (lambda key: key.words("p", round=2**32, size=1), ValueError, "round must be at most 4294967295"),
        (lambda key: key.words("p", round=-1, size=1), ValueError, "round must be at least 0"),
        (lambda key: key.words("p", user=2**64, size=1), ValueError, "user must be at most 18446744073709551615"),
        (lambda key: key.words("p", user=-1, size=1), ValueError, "user must be at least 0, got -1"),
        (lambda key: key.words_by_user("p", np.array([-1]), size=1), ValueError, "users must be at least 0, got -1"),
        (lambda key: key.words_by_user("p", np.array([0.5]), size=1), TypeError, "users must be integers, got float64"),
        (lambda key: key.words_by_user("p", np.array([[1]]), size=1), ValueError, "users must have 1 dimension"),
        (lambda key: key.words_by_user("p", np.array([1]), size=1, n_threads=-1), ValueError, "n_threads must be at"),
        (lambda key: resolve_key(7), TypeError, r"key must be Key, got int; use Key.from_seed\(n\)"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(Key.from_seed(0))


def test_users_may_be_strided_and_read_only():
    chosen = np.arange(10, dtype=np.uint64)[::3]
    chosen.flags.writeable = False
    got = Key.from_seed(0).words_by_user("p", chosen, size=3)
    np.testing.assert_array_equal(got[2], Key.from_seed(0).words("p", user=6, size=3))


# ---- statistics -------------------------------------------------------------------------------------------------

N = 2**20


def even_but(n, n_off, factor):
    """Chances of `n` outcomes, the first of them `factor` times as likely as the others."""
    chances = np.full(n, 1 / n)
    chances[:n_off] *= factor
    return chances / chances.sum()


@pytest.mark.slow
@pytest.mark.parametrize("shift", range(0, 64, 8))
def test_every_byte_of_a_word_is_uniform(shift):
    stream = Key.from_seed(20).words("statistics", user=shift, size=N)
    counts = np.bincount((stream >> np.uint64(shift)).astype(np.uint8), minlength=256)
    assert_only(lambda factor: counts_are(counts, even_but(256, 26, factor)))


@pytest.mark.slow
@pytest.mark.parametrize("along", ["one stream", "the first word of many users", "the first word of many rounds"])
def test_uniforms_are_uniform_along_every_name(along):
    key, n = Key.from_seed(21), 100_000
    if along == "one stream":
        draws = key.uniform("statistics", size=n)
    elif along == "the first word of many users":
        draws = as_uniform(key.words_by_user("statistics", np.arange(n, dtype=np.uint64), size=1)[:, 0])
    else:
        draws = np.array([key.uniform("statistics", round=r, size=1)[0] for r in range(n)])
    assert_only(lambda power: stats.kstest(draws**power, "uniform").pvalue > ALPHA)
    for mixed, consistent in ((0, True), (0.1, False), (-0.1, False)):  # each draw with so much of the one before it
        assert (stats.pearsonr(draws[1:] + mixed * draws[:-1], draws[:-1]).pvalue > ALPHA) == consistent


@pytest.mark.slow
def test_normals_are_normal():
    draws = Key.from_seed(22).normal("statistics", size=100_000)
    assert_only(lambda factor: stats.kstest(factor * draws, "norm").pvalue > ALPHA)


@pytest.mark.slow
def test_every_order_of_four_is_as_likely():
    key, n = Key.from_seed(23), 100_000
    orders = np.argsort(key.words_by_user("statistics", np.arange(n, dtype=np.uint64), size=4), axis=1, kind="stable")
    np.testing.assert_array_equal(orders[17], key.permutation("statistics", user=17, size=4))
    # A number in base 4 encodes each order.
    counts = np.unique(orders @ [64, 16, 4, 1], return_counts=True)[1]
    assert len(counts) == 24
    assert_only(lambda factor: counts_are(counts, even_but(24, 12, factor)))
