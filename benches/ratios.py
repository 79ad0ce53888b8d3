"""What a class of timed alternatives says beside their seconds: ratios to the best peer and to the floor, in turns."""

import numpy as np

from benches.floors import fastest, in_turns
from fastfedrec import Key

PARTS = {"hundredth": 100, "thousandth": 1000}  # how a peer that is asked for so much of the work is named


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

        def seconds(self, *values):
            (found,) = in_turns(lambda: getattr(self, method)(*values))
            return found

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
            taken = seconds(self, *values)
            return floor(self) / threads / taken

        added = [(track_times_best_peer, "times faster")] if peers else []
        added += [(track_floor_share, "share of floor")] if floor else []
        for function, unit in added:
            function.params, function.param_names, function.unit = params, names, unit
            setattr(kind, function.__name__, function)
        return kind

    return decorate


def keystream_seconds(n_words):
    """The least time of one core for so many 64-bit words of the keystream."""
    return fastest(lambda: Key.from_seed(0).words("bench", size=n_words))
