"""Shared parts of benchmarks: optional peers, instruction sets, ratios to the best peer and to the floor."""

import contextlib
import functools

import numpy as np
import scipy.sparse

from benches.floors import WIDTHS, fastest, in_turns
from fastfedrec import Key, hardware

INSTRUCTION_SETS = list(WIDTHS)
N_CALLS = 20  # of a short function in a turn

PARTS = {"hundredth": 100, "thousandth": 1000}  # suffixes of slow peers that get a part of the work


def times_faster(theirs, ours, **options):
    """Return the smallest time of `theirs` over the smallest time of `ours`, with the options of `in_turns`."""
    their_seconds, our_seconds = in_turns(theirs, ours, **options)
    return their_seconds / our_seconds


def one_user(n_items=1_000, n_visited=30):
    """Return the matrix of one user with random items, for the cost of a single call."""
    items = np.sort(np.random.default_rng(0).choice(n_items, n_visited, replace=False)).astype(np.int32)
    values = np.ones(n_visited, dtype=np.float32)
    return scipy.sparse.csr_array((values, items, np.array([0, n_visited], dtype=np.int32)), shape=(1, n_items))


def microseconds(*functions):
    """Return microseconds of one call of each function, which is too short for a call to be a turn."""
    return [seconds * 1e6 / N_CALLS for seconds in in_turns(*(functools.partial(_repeat, f) for f in functions))]


def _repeat(function):
    for _ in range(N_CALLS):
        function()


def times_of_part(theirs, values, part, ours):
    """Return `times_faster` for a peer that gets one of `part` parts of the values, or NaN without the peer."""
    some = values[: len(values) // part]
    try:
        theirs(some[:10])
    except ImportError:
        return np.nan
    return part * times_faster(lambda: theirs(some), ours)


@contextlib.contextmanager
def peer(name):
    """Turn a failed import of a peer into the error that asv shows as n/a in `setup`."""
    try:
        yield
    except ImportError as error:
        raise NotImplementedError(f"{name} is not installed") from error


def nan_without_peers(kind):
    """Decorate a class so that ratios to an absent or unsuitable peer are NaN and do not fail."""
    for name, function in list(vars(kind).items()):
        if name.startswith("track_"):
            setattr(kind, name, _or_nan(function))
    return kind


def _or_nan(function):
    @functools.wraps(function)
    def measured(*arguments):
        try:
            return function(*arguments)
        except NotImplementedError:
            return np.nan

    return measured


class OnInstructionSet:
    """Base of benchmarks with the parameter `instruction_set`, which selects all kernels from `setup` on."""

    def setup(self, *values):
        name = values[self.param_names.index("instruction_set") - len(self.param_names)]
        if name not in hardware.instruction_sets():
            raise NotImplementedError(f"this machine has no {name}")
        # The context stays open until `teardown`.
        self._forced = hardware.use_instruction_set(name)
        self._forced.__enter__()

    def teardown(self, *_):
        if hasattr(self, "_forced"):
            self._forced.__exit__(None, None, None)


def with_ratios(method, *, floor=None, threads=1):
    """Add `track_times_best_peer` and `track_floor_share` to a class with the parameter `impl`."""
    # Implementations of this package have names that begin with "fastfedrec"; all others are peers.  `floor` returns
    # the smallest seconds of one core for an instance after `setup`, which `threads` cores share.

    def decorate(kind):
        names = kind.param_names
        at = names.index("impl")
        ours = tuple(impl for impl in kind.params[at] if impl.startswith("fastfedrec"))
        peers = tuple(impl for impl in kind.params[at] if impl not in ours)
        params = tuple(ours if i == at else values for i, values in enumerate(kind.params))

        def with_impl(values, impl):
            position = len(values) - len(names) + at  # a result of `setup_cache` comes first
            return (*values[:position], impl, *values[position + 1 :])

        def track_times_best_peer(self, *values):
            functions, parts = [lambda: getattr(self, method)(*values)], [1]
            for peer in peers:
                theirs, case = with_impl(values, peer), type(self)()
                # Each peer gets a separate instance, so that its data do not replace ours.
                try:
                    case.setup(*theirs)
                except NotImplementedError:
                    continue
                functions.append(lambda case=case, theirs=theirs: getattr(case, method)(*theirs))
                parts.append(PARTS.get(peer.rpartition("_")[2], 1))  # its time is scaled to all of the work
            if len(functions) == 1:
                raise NotImplementedError("no peer is installed")
            our_seconds, *peer_seconds = np.multiply(in_turns(*functions, repetitions=3), parts)
            return min(peer_seconds) / our_seconds

        def track_floor_share(self, *values):
            (taken,) = in_turns(lambda: getattr(self, method)(*values))
            return floor(self) / threads / taken

        added = [(track_times_best_peer, "times faster")] if peers else []
        added += [(track_floor_share, "share of floor")] if floor else []
        for function, unit in added:
            function.params, function.param_names, function.unit = params, names, unit
            setattr(kind, function.__name__, _or_nan(function))
        return kind

    return decorate


def keystream_seconds(n_words):
    """Return the smallest seconds of one core for `n_words` 64-bit words of the keystream."""
    return fastest(lambda: Key.from_seed(0).words("bench", size=n_words))
