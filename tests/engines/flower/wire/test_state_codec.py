"""Tests of states as plain arrays and values: declared fields return unchanged, and other content is refused."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from fastfedrec.engines.flower.wire.state_codec import decode_state, encode_state
from fastfedrec.systems.fmf.fmf_ldp import FMFState
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchState
from fastfedrec.systems.private_prototypes.model import PrototypeState


@dataclass(frozen=True)
class AllKinds:
    array: np.ndarray
    typed: NDArray[np.int64]
    text: np.ndarray
    whole: int
    real: float
    word: str
    flag: bool
    numbers: tuple[int, ...]
    words: tuple[str, ...] = field(default=())


ROWS = np.arange(6).reshape(2, 3)
ALL = AllKinds(np.arange(3), ROWS, np.array(["a", "ß"]), -(2**80), 0.1, "no\n", True, (2**64 - 1, -3), ("x", ""))
STATES = [
    ALL,
    FMFState(np.ones((3, 2), dtype=np.float32), 2**63 - 1),
    PrototypeState(("a", "b"), (1, 1), 3, np.arange(2), ROWS, ROWS, ROWS, 2**64 - 1),
    SketchState(np.ones((1, 2, 4), dtype=np.int16)),
]

# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_a_decoded_state_equals_the_encoded_one(state):
    arrays, values = encode_state(state)
    read = decode_state(type(state), arrays, values)
    for name in vars(state):
        one, other = getattr(state, name), getattr(read, name)
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unknown:
    anything: dict


def test_a_field_without_a_plain_form_is_refused_by_name():
    with pytest.raises(TypeError, match=r"Unknown.anything must have a supported type, got <class 'dict'>"):
        encode_state(Unknown({}))
    with pytest.raises(TypeError, match="must have a supported type"):
        decode_state(Unknown, {}, {"anything": {}})
    with pytest.raises(TypeError, match="a state must be a dataclass, got int"):
        encode_state(3)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("array", [1, 2], "AllKinds.array must be"),
        ("array", np.array([{}]), "must be numbers or text, got dtype object"),
        ("whole", True, "AllKinds.whole must be"),
        ("real", 1, "AllKinds.real must be"),
        ("numbers", (1, "2"), "AllKinds.numbers must be"),
        ("numbers", [1], "AllKinds.numbers must be"),
    ],
)
def test_a_field_that_differs_from_its_declaration(name, value, reason):
    with pytest.raises(TypeError, match=reason):
        encode_state(AllKinds(**{**vars(ALL), name: value}))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("whole", 5, "AllKinds.whole must be sent as str"),
        ("whole", "5.5", "a whole number of at most 40 digits"),
        ("whole", "9" * 5000, "a whole number of at most 40 digits"),
        ("whole", "", "a whole number"),
        ("real", "0.5", "must be sent as float"),
        ("flag", 1, "must be sent as bool"),
        ("numbers", "12", "AllKinds.numbers must be a list"),
        ("numbers", ["1", 2], "must be sent as str"),
        ("more", "1", "AllKinds must have the fields"),
    ],
)
def test_an_undeclared_value(name, value, reason):
    arrays, values = encode_state(ALL)
    with pytest.raises(ValueError, match=reason):
        decode_state(AllKinds, arrays, values | {name: value})


def test_missing_fields():
    arrays, values = encode_state(ALL)
    with pytest.raises(ValueError, match="must have the fields"):
        decode_state(AllKinds, {}, values)
    with pytest.raises(ValueError, match="must have the fields"):
        decode_state(AllKinds, arrays, {"whole": "1"})
