"""Tests of the shuffler: complete batches only, no trace of senders or times, and the effect of SIGKILL.

Over Flower, with nodes and a server: `test_shuffled_server.py`.
"""

import itertools
import json
import os

import numpy as np
import pytest
from support.shuffler_case import OTHER, RUN, codes, codes_of, make, opened
from support.significance import counts_are

from fastfedrec import FMFLDP, Key
from fastfedrec.cli.main import main
from fastfedrec.core.kept_files import DamagedFileError, read_document, write_document
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines.shuffling.reports import decode_reports, encode_reports
from fastfedrec.engines.shuffling.shuffler import ShufflerError

# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_coordinates", [1, 300, 2**31, 2**31 + 1, 2**40])
def test_reports_travel_as_whole_numbers(n_coordinates):
    index = np.array([0, n_coordinates - 1, n_coordinates // 2], dtype=np.int64)
    bit = np.array([1, 1, 0], dtype=np.uint8)
    body = encode_reports(index, bit, n_coordinates)
    assert len(body) == 3 * (4 if n_coordinates <= 2**31 else 8)
    # The size of a message must not depend on its reports: the first one is about coordinate 0.
    assert len(encode_reports(index[:1], bit[:1], n_coordinates)) == len(body) / 3
    for there, here in zip(decode_reports(body, n_coordinates), (index, bit), strict=True):
        np.testing.assert_array_equal(there, here)


def test_a_batch_adds_up_to_the_sums_of_shards(tmp_path):
    data, key = generate_implicit(60, 40, key=Key.from_seed(7)), Key.from_seed(3)
    system = FMFLDP(n_reports=5)._rounds()
    state = system.initial_state(40, key)
    size = state.item_factors.size
    shuffler = opened(tmp_path, round_number=2, min_crowd=60, n_reports=5, n_coordinates=size)
    for name, shard in zip("ab", data.shard(2), strict=True):
        shuffler.submit(RUN, 2, name, encode_reports(*system.report_stream(state, shard, key, 2), size))
    index, bit = decode_reports(shuffler.release(RUN, 2), size)
    there = system.collect_reports(state, index, bit, 2, sender="shuffler", n_clients=60)
    here = system.local_round(state, data, key, 2)
    for name in here.arrays:
        np.testing.assert_array_equal(there.arrays[name], here.arrays[name])


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_too_few_users_are_not_released(tmp_path):
    shuffler = opened(tmp_path, min_crowd=3)
    for name, n_users in (("a", 0), ("b", 0), ("c", 4)):
        with pytest.raises(ShufflerError, match=rf"a batch must have at least {max(3, n_users)} users"):
            shuffler.release(RUN, 0, n_users)
        shuffler.submit(RUN, 0, name, codes(5))
    assert shuffler.release(RUN, 0, 3) == codes(5, 5, 5)


def test_users_count_and_not_reports(tmp_path):
    shuffler = opened(tmp_path, [("a", codes(1, 2, 3, 4))], n_reports=4)
    with pytest.raises(ShufflerError, match="got reports of 1"):
        shuffler.release(RUN, 0)


def test_a_node_without_users_is_accepted_and_adds_no_user(tmp_path):
    shuffler = opened(tmp_path, [("nobody", b""), ("a", codes(1))])
    with pytest.raises(ShufflerError, match="got reports of 1"):
        shuffler.release(RUN, 0)
    assert not shuffler.expects(RUN, 0, "nobody")
    shuffler.submit(RUN, 0, "b", codes(2))
    assert sorted(codes_of(shuffler.release(RUN, 0))) == [1, 2]


def test_a_repeated_message_counts_once(tmp_path):
    shuffler = opened(tmp_path, [("a", codes(1)), ("a", codes(2))])
    with pytest.raises(ShufflerError, match="got reports of 1"):
        shuffler.release(RUN, 0)


def test_a_round_is_released_once(tmp_path):
    """Two batches that differ by one node would reveal its reports; a lost answer is repeated unchanged."""
    shuffler = opened(tmp_path, [("a", codes(0)), ("b", codes(0))])
    first = shuffler.release(RUN, 0)
    with pytest.raises(ShufflerError, match="the round is over"):
        shuffler.submit(RUN, 0, "c", codes(1))
    assert shuffler.open(RUN, 0)
    assert shuffler.release(RUN, 0) == first
    shuffler.open(RUN, 1)
    with pytest.raises(ShufflerError, match="not open"):
        shuffler.release(RUN, 0)
    for _ in range(2):
        with pytest.raises(ShufflerError, match="released before") as caught:
            shuffler.open(RUN, 0)
        assert caught.value.is_final
        shuffler.close()
        shuffler = make(tmp_path)
    shuffler.open(OTHER, 0)  # another run has its own rounds
    for name in ("a", "b"):
        shuffler.submit(OTHER, 0, name, codes(0))
    shuffler.release(OTHER, 0)
    shuffler.close()
    with pytest.raises(ShufflerError, match="released before"):
        make(tmp_path).open(RUN, 0)


def test_batches_of_the_same_reports_have_independent_orders(tmp_path):
    sent, batches = np.arange(200), []
    for folder in ("one", "two"):
        halves = [(name, codes(*part)) for name, part in zip("ab", np.split(sent, 2), strict=True)]
        batches.append(codes_of(opened(tmp_path / folder, halves, n_coordinates=1000).release(RUN, 0)))
        np.testing.assert_array_equal(np.sort(batches[-1]), sent)
    for one, other in ((batches[0], sent), (batches[1], sent), batches):
        # Independent orders of 200 reports agree at one position on average.
        assert (one == other).mean() < 0.1


def test_reports_of_a_round_that_was_given_up_are_in_no_later_batch(tmp_path):
    shuffler = opened(tmp_path, [("north", codes(7))])
    shuffler.open(RUN, 1)
    for name, code in (("south", 1), ("west", 2)):
        shuffler.submit(RUN, 1, name, codes(code))
    assert sorted(codes_of(shuffler.release(RUN, 1))) == [1, 2]


def test_released_reports_are_erased(tmp_path):
    """No sender's name and no reports remain in its attributes."""
    shuffler = opened(tmp_path, [("north", codes(7)), ("south", codes(9))])
    assert "north" in repr(vars(shuffler))
    assert sorted(codes_of(shuffler.release(RUN, 0))) == [7, 9]
    assert "north" not in repr(vars(shuffler))
    assert "south" not in repr(vars(shuffler))


def test_a_round_that_was_not_released_is_opened_anew_and_empty(tmp_path):
    opened(tmp_path, [("a", codes(1))]).close()
    restarted = make(tmp_path)
    with pytest.raises(ShufflerError, match="not open"):
        restarted.submit(RUN, 0, "b", codes(1))
    restarted.open(RUN, 0)
    restarted.submit(RUN, 0, "b", codes(1))
    with pytest.raises(ShufflerError, match="got reports of 1"):
        restarted.release(RUN, 0)


def test_only_the_numbers_of_rounds_are_written(tmp_path):
    shuffler = opened(tmp_path / "own", [("north", codes(1)), ("south", codes(1))], round_number=4)
    assert os.listdir(tmp_path / "own") == ["lock"]
    shuffler.release(RUN, 4)
    assert sorted(os.listdir(tmp_path / "own")) == ["lock", "released.json"]
    path = tmp_path / "own/released.json"
    assert (tmp_path / "own/lock").read_text().split()[0] == str(os.getpid())
    assert read_document(path) == {RUN: 4}
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "north" not in repr(vars(shuffler))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (codes(1, 2, 3), "each user must send 2 reports, got 3"),
        (codes(1, 20), "coordinates must be below 10, got 10"),
        (codes(1, 2**32 - 1), "must be below 10"),
        (codes(1, 2)[:-1], "reports must have 4 bytes each"),
        (codes(*[1] * 8), "a node's message must have at most 24 bytes"),
    ],
)
def test_unsound_reports_are_refused(tmp_path, body, reason):
    shuffler = opened(tmp_path, n_reports=2, max_users=3)
    with pytest.raises(ShufflerError, match=reason):
        shuffler.submit(RUN, 0, "a", body)


@pytest.mark.parametrize(("run", "round_number"), [("../x", 0), (RUN, -1), (RUN, 2**32), (RUN, 0.5), (None, 0)])
def test_rounds_have_plain_names(tmp_path, run, round_number):
    with pytest.raises(ShufflerError):
        make(tmp_path).open(run, round_number)


def test_no_more_nodes_than_were_agreed_to(tmp_path):
    shuffler = opened(tmp_path, [(name, codes(1)) for name in "aba"], max_nodes=2)
    with pytest.raises(ShufflerError, match="2 nodes have sent"):
        shuffler.submit(RUN, 0, "c", codes(1))


def test_bad_arguments(tmp_path, capsys):
    with pytest.raises(ValueError, match="min_crowd must be at least 2"):
        make(tmp_path, 1)
    with pytest.raises(ValueError, match="index must be from 0 to 9"):
        encode_reports(np.array([10]), np.array([0]), 10)
    common = ["shuffler", "--min-crowd=2", "--reports=1", "--coordinates=3", f"--folder={tmp_path}"]
    for arguments, reason in (
        (["--listen=127.0.0.1:0"], "or --insecure"),
        (["--listen=127.0.0.1:0", "--authority=x", "--insecure"], "or --insecure"),
        (["--listen=0.0.0.0:0", "--insecure"], "--insecure needs a loopback address"),
        (["--listen=8000", "--insecure"], "--listen must be HOST:PORT"),
        (["--listen=127.0.0.1:0", "--insecure"], "give --server-key, so that the shuffler cannot read reports"),
        (["--listen=127.0.0.1:0", "--insecure", "--unsealed", "--server-key=x"], "or --unsealed"),
    ):
        assert main([*common, *arguments]) == 2
        assert reason in capsys.readouterr().err


# ---- a process of its own -------------------------------------------------------------------------------------------


DAMAGED = [b"", b"{", b"7", b"[]", bytes(40), b"\xff" * 8, b"[" * 100_000]


DAMAGED += [
    json.dumps(document).encode() for document in ({"a": 0}, {RUN: -1}, {RUN: "0"}, {RUN: 0.5}, {RUN: True}, {RUN: [0]})
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_list_of_released_rounds_is_named_with_the_way_out(tmp_path, content):
    (tmp_path / "released.json").write_bytes(content)
    with pytest.raises(
        DamagedFileError, match=r"/released.json' is damaged: .*; without it .* start with a new folder"
    ):
        make(tmp_path)
    assert (tmp_path / "released.json").read_bytes() == content


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({OTHER: -1}, f"record 2, '{OTHER}': round must be at least 0, got -1"),
        ({OTHER: "7"}, f"record 2, '{OTHER}': round must be "),
        ({"x" * 90: 3}, f"record 2, '{'x' * 40}': the run must be named by 32 hexadecimal digits"),
    ],
)
def test_a_damaged_record_is_named_with_its_file_and_the_way_out(tmp_path, record, reason):
    write_document(tmp_path / "released.json", {RUN: 4})
    make(tmp_path).close()  # the control: one sound record
    write_document(tmp_path / "released.json", {RUN: 4} | record)
    with pytest.raises(DamagedFileError, match=r"/released.json' is damaged: .*; without it .* new folder") as caught:
        make(tmp_path)
    assert reason in str(caught.value)


def test_the_list_of_released_rounds_is_whole_or_as_it_was(tmp_path, monkeypatch):
    shuffler = opened(tmp_path, [("a", codes(1)), ("b", codes(1))])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            shuffler.release(RUN, 0)
    assert os.listdir(tmp_path) == ["lock"]
    assert shuffler.release(RUN, 0) == codes(1, 1)  # no batch had been sent, so it can be released again
    assert read_document(tmp_path / "released.json") == {RUN: 0}
    assert (tmp_path / "released.json").stat().st_mode & 0o777 == 0o600


# ---- statistics -----------------------------------------------------------------------------------------------------


def orders(folder, n):
    """Count the releases of three reports in each of the six orders."""
    counts = dict.fromkeys(itertools.permutations((2, 4, 6)), 0)
    shuffler = make(folder, 3)
    for number in range(n):
        shuffler.open(RUN, number)
        for name, code in zip("abc", (6, 2, 4), strict=True):
            shuffler.submit(RUN, number, name, codes(code))
        counts[tuple(codes_of(shuffler.release(RUN, number)).tolist())] += 1
    shuffler.close()
    return list(counts.values())


@pytest.mark.slow
def test_all_orders_are_as_likely(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # syncing to disk is slow and is not tested here
    # The power: a tenth in order moves chi-squared with 5 degrees by 2,400 / 20 = 120, and 36 is enough.
    assert counts_are(orders(tmp_path / "own", 2_400), [1 / 6] * 6)
    uniform = Key.permutation
    calls = itertools.count()

    def broken(key, purpose, *, size, **options):
        return np.arange(size) if next(calls) % 10 == 0 else uniform(key, purpose, size=size, **options)

    monkeypatch.setattr(Key, "permutation", broken)
    assert not counts_are(orders(tmp_path / "other", 2_400), [1 / 6] * 6)
