"""Tests of the number of alternating runs in benchmarks, and of the detection of other load."""

import concurrent.futures
import os
import subprocess
import sys
import types

import pytest
from support.benches_module import load_benches

floors = load_benches("floors")


ALWAYS, NEVER = [True] * 99, [False] * 99


@pytest.mark.parametrize(
    ("turns", "answers", "second", "taken"),
    [
        ((3, 3.0), ALWAYS, 1.0, 3),
        ((3, 3.0), [False, True, True, False, True, True, True], 1.0, 6),  # both must be there before and after
        ((3, 3.0), NEVER, 1.0, 4 * 3 + 1),  # stops after four times the turns and the seconds
        ((5, 0.1), NEVER, 1.0, 20),  # long turns are taken four times as often at most
        ((5, 0.1), ALWAYS, 1.0, 5),
        ((3, 2.0), [True, False, *ALWAYS], 0.125, (2 + 4) * 4),  # short ones are looked at by the half second
        ((3, 5.0), None, 1.0, 5),  # one processor is not waited for
        ((3, 5.0, 4), None, 1.0, 4),
        ((7, 5.0), None, 1.0, 7),
    ],
)
def test_turns_count_if_each_thread_has_a_processor(monkeypatch, turns, answers, second, taken):
    """The number of turns depends on their length and on whether both processors are free at each check."""
    clock, results = [0.0], iter(answers or ())
    monkeypatch.setattr(floors, "time", types.SimpleNamespace(perf_counter=lambda: sum(clock)))
    monkeypatch.setattr(floors, "both_processors", lambda: next(results))
    for _ in floors.turns(*turns, processors=2 if answers else 1):
        clock.append(second)
    assert len(clock) - 1 == taken


@pytest.mark.parametrize(("seconds", "is_free"), [(60.0, True), (0.0, False)])
def test_both_processors_are_free_if_two_threads_take_hardly_longer_than_one(monkeypatch, seconds, is_free):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(floors, "_one_thread", lambda: (seconds, pool))
        assert floors.both_processors() is is_free


@pytest.mark.nightly
def test_neighbours_are_seen():
    """With every processor taken by others, two threads seldom have one each."""
    floors.both_processors()  # measures one thread before the load starts
    busy = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    processes = [subprocess.Popen(busy, stdout=subprocess.PIPE) for _ in range(2 * os.cpu_count())]
    try:
        for process in processes:
            process.stdout.readline()  # it is there
        assert sum(floors.both_processors() for _ in range(20)) <= 5
    finally:
        for process in processes:
            process.kill()
            process.communicate()
