"""How often the benchmarks take turns, and whether a neighbour is noticed."""

import concurrent.futures
import os
import subprocess
import sys
import types

import pytest
from support.benches_module import load_benches

floors = load_benches("floors")


@pytest.fixture
def take(monkeypatch):
    """How many turns of so many seconds are taken, given what is said each time whether both processors are there."""

    def take(*arguments, said=(), second=1.0, **options):
        clock, answers = [0.0], iter(said)
        monkeypatch.setattr(floors, "time", types.SimpleNamespace(perf_counter=lambda: sum(clock)))
        monkeypatch.setattr(floors, "both_processors", lambda: next(answers))
        for _ in floors.turns(*arguments, **options):
            clock.append(second)
        return len(clock) - 1

    return take


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ([True] * 4, 3),
        ([False, True, True, False, True, True, True], 6),  # a turn counts when both were there before and after
        ([False] * 99, 4 * 3 + 1),  # in vain: until four times the turns and the seconds are over
    ],
)
def test_only_turns_with_both_processors_count(take, said, taken):
    assert take(3, 3.0, said=said, processors=2) == taken


def test_one_processor_is_not_waited_for(take):
    assert take(3, 5.0) == 5
    assert take(3, 5.0, 4) == 4
    assert take(7, 5.0) == 7


def test_long_turns_are_taken_four_times_as_often_at_most(take):
    assert take(5, 0.1, said=[False] * 99, processors=2) == 20
    assert take(5, 0.1, said=[True] * 99, processors=2) == 5


def test_short_turns_are_looked_at_by_the_half_second(take):
    said = [True, False, *[True] * 99]
    assert take(3, 2.0, said=said, second=0.125, processors=2) == (2 + 4) * 4


@pytest.mark.parametrize(("alone", "there"), [(60.0, True), (0.0, False)])
def test_both_are_there_where_two_take_hardly_longer_than_one(monkeypatch, alone, there):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(floors, "_alone", lambda: (alone, pool))
        assert floors.both_processors() is there


@pytest.mark.slow
def test_neighbours_are_seen():
    """With every processor taken by others, two threads seldom have one each."""
    floors.both_processors()  # what one thread takes by itself is measured, before there are others
    busy = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    others = [subprocess.Popen(busy, stdout=subprocess.PIPE) for _ in range(2 * os.cpu_count())]
    try:
        for other in others:
            other.stdout.readline()  # it is there
        assert sum(floors.both_processors() for _ in range(20)) <= 5
    finally:
        for other in others:
            other.kill()
            other.communicate()
