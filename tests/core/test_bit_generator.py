"""Streams as a bit generator of NumPy: words of the key, vectors of RFC 8439, states, and the end of a stream."""

import copy
import itertools
import os
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.core import bit_generator as naive
from scipy import stats
from support.significance import ALPHA, assert_only

from fastfedrec import ChaCha20, Key
from fastfedrec._kernels.core import bit_generator as kernel

N_WORDS = 2**35  # of a stream
positions = st.integers(0, 300) | st.integers(N_WORDS - 300, N_WORDS) | st.integers(0, N_WORDS)


def at(position, key=None, purpose="test"):
    """A generator at a word of a stream."""
    generator = ChaCha20(key or Key.from_seed(1), purpose)
    state = generator.state
    state["state"]["position"] = position
    generator.state = state
    return generator


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "counter", "nonce", "expected"),
    [
        # RFC 8439, section 2.3.2, then appendix A.1, vectors 1, 2 and 5.
        (bytes(range(32)), 1, "000000090000004a00000000",
         "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
         "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"),
        (bytes(32), 0, "00" * 12,
         "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
         "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"),
        (bytes(32), 1, "00" * 12,
         "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
         "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"),
        (bytes(32), 0, "00" * 11 + "02",
         "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
         "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d"),
    ],
)  # fmt: skip
def test_rfc_8439_blocks(key, counter, nonce, expected):
    # The nonce has the round, then the user in two words.
    round_number, low, high = np.frombuffer(bytes.fromhex(nonce), dtype="<u4").tolist()
    generator = ChaCha20(Key.from_seed(1), "test")
    stream = kernel.Stream(np.frombuffer(key, dtype="<u4").astype(np.uint32), round_number, low | high << 32)
    stream.connect(generator.capsule)
    stream.seek(8 * counter, None)
    assert generator.random_raw(8).astype("<u8").tobytes().hex() == expected


@given(st.text(max_size=5), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 400))
def test_integers_are_the_words_of_the_key(purpose, round_number, user, size):
    key = Key.from_seed(3)
    generator = np.random.Generator(ChaCha20(key, purpose, round=round_number, user=user))
    words = key.words(purpose, round=round_number, user=user, size=size + 1)
    np.testing.assert_array_equal(generator.integers(0, 2**64, size=size, dtype=np.uint64), words[:size])
    assert generator.bit_generator.random_raw() == words[size]


def test_other_draws_are_those_of_the_twin():
    key = Key.from_seed(3)
    words = key.words("test", size=100).tolist()
    for size in (1, 7, 100):
        generator = np.random.Generator(ChaCha20(key, "test"))
        expected = list(itertools.islice(naive.halves(words), size))
        assert generator.integers(0, 2**32, size=size, dtype=np.uint32).tolist() == expected
        doubles = np.random.Generator(ChaCha20(key, "test")).random(size)
        assert [Fraction(x) for x in doubles.tolist()] == [Fraction(*naive.double(word)) for word in words[:size]]


@pytest.mark.parametrize("position", [0, 1, 8, 4091, 8 * (2**32 - 20), N_WORDS - 40])
def test_positions_name_the_blocks_of_the_stream(position):
    # The kernel of the RFC's vectors computes blocks from an explicit counter.
    from fastfedrec._kernels.core import randomness

    key, n_blocks = Key.from_seed(1), 5
    constants = np.frombuffer(b"expand 32-byte k", dtype="<u4")
    counter = np.array([position // 8], dtype=np.uint32)
    state = np.concatenate([constants, key.subkey("test"), counter, np.zeros(3, dtype=np.uint32)])
    blocks = np.empty((n_blocks, 16), dtype=np.uint32)
    randomness.keystream_blocks(state, blocks)
    words = blocks.astype("<u4").reshape(-1).view("<u8")[position % 8 :]
    n = min(len(words), 32)
    np.testing.assert_array_equal(at(position, key).random_raw(n), words[:n])


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(positions, st.lists(st.sampled_from([32, 64]), max_size=6))
def test_a_state_is_restored(position, draws):
    generator = np.random.Generator(at(min(position, N_WORDS - 200)))
    for bits in draws:
        generator.integers(0, 2**bits, dtype=f"uint{bits}")
    other = ChaCha20(Key.from_seed(9), "other", round=3)
    other.state = generator.bit_generator.state
    for restored in (np.random.Generator(other), copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))):
        assert restored.bit_generator.state == generator.bit_generator.state
        twin = copy.deepcopy(generator)
        assert (
            restored.integers(0, 2**32, size=5, dtype=np.uint32).tolist()
            == twin.integers(0, 2**32, size=5, dtype=np.uint32).tolist()
        )
        assert restored.random(100).tolist() == twin.random(100).tolist()


def test_a_state_is_restored_for_generators_that_were_made_before_it():
    """NumPy's Generator copies the address of the stream; words of a later stream at this address must stay secret."""
    generator = np.random.Generator(ChaCha20(Key.from_seed(0), "simulation"))
    functions = generator.bit_generator.ctypes
    state = generator.bit_generator.state
    first = generator.random(20).tolist()
    generator.bit_generator.state = state
    later = [ChaCha20(Key.from_seed(seed), "later") for seed in range(20)]
    assert generator.random(20).tolist() == first
    generator.bit_generator.state = state
    assert [functions.next_double(functions.state) for _ in range(20)] == first
    assert [other.state["state"]["position"] for other in later] == [0] * 20


def test_spawned_generators_have_streams_of_other_purposes():
    key = Key.from_seed(1)
    parent = np.random.Generator(ChaCha20(key, "p", round=2, user=5))
    children = parent.spawn(2) + parent.spawn(1)
    for i, child in enumerate(children):
        expected = key.words(f"p/{i}", round=2, user=5, size=3)
        assert child.bit_generator.random_raw(3).tolist() == expected.tolist()
    assert pickle.loads(pickle.dumps(parent)).spawn(1)[0].bit_generator.random_raw() == key.words(
        "p/3", round=2, user=5, size=1
    )


def test_jumps_go_on_in_the_same_stream():
    generator = at(5)
    assert generator.jumped(0).random_raw(9).tolist() == at(5).random_raw(9).tolist()
    assert generator.jumped(3).random_raw(9).tolist() == at(5 + 3 * 2**30).random_raw(9).tolist()
    assert generator.random_raw(9).tolist() == at(5).random_raw(9).tolist()


def test_an_entropy_key_gives_each_stream_once():
    key = Key.from_entropy()
    first = ChaCha20(key, "p")
    others = [ChaCha20(key, "q"), ChaCha20(key, "p", round=1), ChaCha20(key, "p", user=1), *first.spawn(2)]
    assert len({generator.random_raw() for generator in [first, *others]}) == 6
    for again in (
        lambda: ChaCha20(key, "p"),
        lambda: ChaCha20(key, "p/1"),
        lambda: key.claim("X.fit"),
        lambda: key.claim_stream("X", "q"),
    ):
        with pytest.raises(ValueError, match="single-use and was already used by ChaCha20"):
            again()
    used = Key.from_entropy()
    used.claim("X.fit")
    with pytest.raises(ValueError, match=r"already used by X\.fit: ChaCha20 would repeat bits of 'p'"):
        ChaCha20(used, "p")


def test_all_streams_of_a_purpose_are_claimed_at_once():
    key = Key.from_entropy()
    key.claim_stream("compiled code", "p")
    key.claim_stream("compiled code", "q")
    for repeated in (lambda: ChaCha20(key, "p", user=3), lambda: key.claim_stream("Y", "q")):
        with pytest.raises(ValueError, match="already used by compiled code"):
            repeated()
    ChaCha20(key, "r")
    with pytest.raises(ValueError, match="Y would repeat bits of 'r'"):
        key.claim_stream("Y", "r")


def test_streams_of_other_code_and_messages_exclude_each_other():
    # Both would have the same bits if the purposes are equal.
    first, second, seed = Key.from_entropy(), Key.from_entropy(), Key.from_seed(1)
    first.claim_stream("compiled code", "fmf_ldp.reports")
    with pytest.raises(ValueError, match="gave streams to other code"):
        first.claim_message("fmf_ldp.reports", 0, "shard-0")
    second.claim_message("fmf_ldp.reports", 0, "shard-0")
    with pytest.raises(ValueError, match="already used by a message: compiled code would repeat bits"):
        second.claim_stream("compiled code", "fmf_ldp.reports")
    for _ in range(2):  # a simulation repeats its bits on purpose
        seed.claim_stream("compiled code", "fmf_ldp.reports")
        seed.claim_message("fmf_ldp.reports", 0, "shard-0")


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: generator.bit_generator.random_raw(),
        lambda generator: generator.random(),
        lambda generator: generator.integers(0, 10, size=50),
        lambda generator: generator.normal(size=50),
        lambda generator: generator.poisson(100.0, size=50),
        lambda generator: generator.permutation(50),
    ],
)
def test_a_stream_ends_with_an_error(draw):
    generator = np.random.Generator(at(N_WORDS - 3))
    last = generator.bit_generator.random_raw(3)
    assert len({*last.tolist(), *ChaCha20(Key.from_seed(1), "test").random_raw(64).tolist()}) == 67
    for _ in range(2):  # the generator stays at the end
        # NumPy's samplers return before the error is seen; Python then names it in one of its own.
        with pytest.raises((SystemError, OverflowError)) as caught:
            draw(generator)
        assert "the stream has ended after 2**35 words; use spawn()" in f"{caught.value} {caught.value.__cause__}"
    assert generator.bit_generator.state["state"]["position"] == N_WORDS


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_an_entropy_key_repeats_no_word():
    generator = ChaCha20(Key.from_entropy(), "p")
    for repeat in (
        lambda: generator.state,
        lambda: setattr(generator, "state", ChaCha20(Key.from_seed(1), "p").state),
        lambda: pickle.dumps(generator),
        lambda: copy.deepcopy(np.random.Generator(generator)),
        lambda: generator.jumped(),
    ):
        with pytest.raises(TypeError, match=r"of an entropy key is refused, because its words would be repeated"):
            repeat()
    assert "Key.from_entropy()" in repr(generator)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, "p"), TypeError, "key must be"),
        ((Key.from_seed(1), 2), TypeError, "purpose must be"),
        ((Key.from_seed(1), "p", -1), ValueError, "round must be at least 0"),
        ((Key.from_seed(1), "p", 2**32), ValueError, "round must be"),
        ((Key.from_seed(1), "p", 0, 2**64), ValueError, "user must be"),
        ((Key.from_seed(1), "p", 0, 0.5), TypeError, "user must be an integer"),
    ],
)
def test_bad_names(arguments, error, message):
    names = dict(zip(("round", "user"), arguments[2:], strict=False))
    with pytest.raises(error, match=message):
        ChaCha20(*arguments[:2], **names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state | {"bit_generator": "PCG64"}, "state must be of a ChaCha20"),
        (lambda state: None, "state must be of a ChaCha20"),
        (lambda state: {name: state[name] for name in ("bit_generator", "state")}, "lacks 'has_uint32'"),
        (lambda state: state | {"state": {}}, "lacks 'seed'"),
        (lambda state: state | {"state": state["state"] | {"position": 2**35 + 1}}, "position must be at most"),
        (lambda state: state | {"uinteger": 2**32}, "uinteger must be at most"),
        (lambda state: state | {"state": state["state"] | {"seed": 2, "n_spawned": -1}}, "n_spawned must be at least"),
    ],
)
def test_bad_states(change, message):
    generator = ChaCha20(Key.from_seed(1), "p")
    before = generator.state
    with pytest.raises(ValueError, match=message):
        generator.state = change(before)
    assert generator.state == before


def test_jumps_beyond_the_end_are_refused():
    assert at(0).jumped(32).state["state"]["position"] == N_WORDS
    with pytest.raises(OverflowError, match=r"jumps must end in the stream's 2\*\*35 words, got 32 to word"):
        at(1).jumped(32)
    with pytest.raises(ValueError, match="jumps must be at least 0"):
        at(1).jumped(-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_cannot_draw_the_words_of_its_parent():
    private, simulated = (ChaCha20(key, "p") for key in (Key.from_entropy(), Key.from_seed(1)))
    np.random.Generator(private).integers(0, 2**32, dtype=np.uint32)  # half a word waits
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # bypasses pytest, so that the pipe is the only output
        try:
            outcomes = []
            for draw in (np.random.Generator(private).integers, np.random.Generator(simulated).integers):
                try:
                    outcomes.append(str(draw(0, 2**32, dtype=np.uint32)))
                except Exception as error:
                    outcomes.append(f"{error} {error.__cause__}")
            with os.fdopen(writer, "w") as file:
                file.write("\n".join(outcomes))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        refused, drawn = file.read().split("\n")
    os.waitpid(child, 0)
    assert "an entropy key from before the fork of this process" in refused
    assert int(drawn) == int(Key.from_seed(1).words("p", size=1)[0]) & 0xFFFFFFFF
    assert private.random_raw(3).shape == (3,)  # the parent goes on


def test_there_is_no_seed_sequence():
    assert not hasattr(ChaCha20(Key.from_seed(1), "p"), "seed_seq")


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_share_a_generator_without_repeating_a_word():
    key, drawn = Key.from_seed(1), []
    generator = np.random.Generator(ChaCha20(key, "p"))

    def draw():
        for _ in range(20):
            drawn.append(generator.integers(0, 2**64, size=500, dtype=np.uint64))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(np.concatenate(drawn).tolist()) == sorted(key.words("p", size=40_000).tolist())


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_normal_draws_are_normal():
    draws = np.random.Generator(ChaCha20(Key.from_seed(5), "p")).normal(size=100_000)
    assert_only(lambda factor: stats.kstest(draws * factor, "norm").pvalue > ALPHA)
