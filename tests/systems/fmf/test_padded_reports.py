"""Reports of padded rows, which take the same time for every row; `tests/mechanisms/test_timing.py` measures it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from support.data import of_dense
from support.strategies import interaction_matrices, keys, seeds

from fastfedrec import FMFLDP, Key, hardware
from fastfedrec.systems.fmf.fmf_ldp import FMFState


def state_of(n_items, n_factors, seed):
    rng = np.random.default_rng(seed)
    return FMFState((0.5 * rng.normal(size=(n_items, n_factors))).astype(np.float32))


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"normalize": "l2"}, {"normalize": "l2", "rotate": True}], ids=str)
@given(interaction_matrices(), keys(), seeds())
@settings(max_examples=20)
def test_padded_rows_give_the_same_reports(options, data, key, seed):
    rounds = FMFLDP(9, 8.0, n_reports=30, **options)._rounds()
    state = replace(state_of(data.n_items, 9, seed), rotation=5)
    streams = [rounds.report_stream(state, data, key, 2, shuffle_key=key, pad=pad) for pad in (False, True)]
    for plain, padded in zip(*streams, strict=True):
        np.testing.assert_array_equal(padded, plain)


@pytest.mark.parametrize("options", [{}, {"normalize": "l2"}], ids=str)
def test_padded_reports_are_about_the_row_at_every_instruction_set(options):
    rows = np.zeros((3, 40))
    rows[1, [0, 7, 8, 39]] = rows[2] = 1
    rounds, state = FMFLDP(5, 30.0, n_reports=400, **options)._rounds(), state_of(40, 5, 1)
    answers = []
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            for pad in (False, True):
                users = of_dense(rows).shard(3)
                _, bits = zip(
                    *(
                        rounds.report_stream(state, u, Key.from_seed(1), 0, shuffle_key=Key.from_seed(2), pad=pad)
                        for u in users
                    ),
                    strict=True,
                )
                answers.append(np.stack(bits))
    for other in answers[1:]:
        np.testing.assert_array_equal(other, answers[0])
    assert (answers[0][1] != answers[0][2]).mean() > 0.1


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_padding_needs_equal_weights():
    rounds, state = FMFLDP(confidence_weight=2.0)._rounds(), state_of(2, 5, 0)
    with pytest.raises(ValueError, match=r"pad must be False with confidence_weight=2.0.*set confidence_weight=0"):
        rounds.report_stream(state, of_dense(np.eye(2)), Key.from_seed(1), 0, pad=True)
    with pytest.raises(TypeError, match="pad must be"):
        rounds.report_stream(state, of_dense(np.eye(2)), Key.from_seed(1), 0, pad="all")
