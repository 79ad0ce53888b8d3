"""What benchmarks share: peers that may be absent, instruction sets, ratios to the best peer and to the floor."""

import contextlib
import functools

import numpy as np

from benches.floors import WIDTHS, fastest, in_turns
from fastfedrec import Key, hardware

INSTRUCTION_SETS = list(WIDTHS)

PARTS = {"hundredth": 100, "thousandth": 1000}  # how a peer that is asked for so much of the work is named


def times_faster(theirs, ours, **options):
    """The least time of the first over that of the second, called in turns (`in_turns` has the options)."""
    their_seconds, our_seconds = in_turns(theirs, ours, **options)
    return their_seconds / our_seconds


def times_of_part(theirs, values, part, ours):
    """As `times_faster`, of a peer that is given one of so many parts of the values; NaN where it is not installed."""
    some = values[: len(values) // part]
    try:
        theirs(some[:10])
    except ImportError:
        return np.nan
    return part * times_faster(lambda: theirs(some), ours)


@contextlib.contextmanager
def peer(name):
    """Imports of a peer; without it `setup`, or a class decorated with `nan_without_peers`, has asv show n/a."""
    try:
        yield
    except ImportError as error:
        raise NotImplementedError(f"{name} is not installed") from error


def nan_without_peers(kind):
    """Decorate a class: where a peer is absent or cannot do a case, its ratios are NaN, and asv does not fail."""
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
    """A benchmark with the parameter `instruction_set`: from its `setup` on, all kernels are those of that one."""

    def setup(self, *values):
        name = values[self.param_names.index("instruction_set") - len(self.param_names)]
        if name not in hardware.instruction_sets():
            raise NotImplementedError(f"no {name} here")
        self._forced = hardware.use_instruction_set(name)
        self._forced.__enter__()

    def teardown(self, *_):
        if hasattr(self, "_forced"):
            self._forced.__exit__(None, None, None)


def with_ratios(method, *, floor=None, threads=1):
    """Decorate a class whose parameter `impl` names what `method` times; ours begin with "fastfedrec".

    Adds `track_times_best_peer` where there are peers, and `track_floor_share` where `floor` tells, of an instance that
    is set up, the least seconds of one core; `threads` cores share them.
    """

    def decorate(kind):
        names = kind.param_names
        at = names.index("impl")
        ours = tuple(impl for impl in kind.params[at] if impl.startswith("fastfedrec"))
        peers = tuple(impl for impl in kind.params[at] if impl not in ours)
        params = tuple(ours if i == at else values for i, values in enumerate(kind.params))

        def with_impl(values, impl):
            place = len(values) - len(names) + at  # after what `setup_cache` returned, if anything
            return (*values[:place], impl, *values[place + 1 :])

        def track_times_best_peer(self, *values):
            functions, parts = [lambda: getattr(self, method)(*values)], [1]
            for peer in peers:
                theirs, case = with_impl(values, peer), type(self)()
                try:
                    case.setup(*theirs)
                except NotImplementedError:
                    continue
                functions.append(lambda case=case, theirs=theirs: getattr(case, method)(*theirs))
                parts.append(PARTS.get(peer.rpartition("_")[2], 1))
            if len(functions) == 1:
                raise NotImplementedError("no peer is installed")
            mine, *others = np.multiply(in_turns(*functions, repetitions=3), parts)
            return min(others) / mine

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
    """The least time of one core for so many 64-bit words of the keystream."""
    return fastest(lambda: Key.from_seed(0).words("bench", size=n_words))
