"""``python -P -m fuzz.worker MODULE FLAGS WORKING KNOWN`` fuzzes one target in this process, by libFuzzer's flags."""

import ctypes
import hashlib
import itertools
import os
import resource
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from random import Random

import atheris

# Share of the mutations that keep the structure of an input, if its target has such mutations.
_STRUCTURED = 0.9
# libFuzzer measures the time of a clock, which includes waits and other processes; `deadline` measures the processor's.
_WAITING = 10
_TRIMMED = 256  # executions between two returns of free memory


def main(argv):
    """Warm up with the seeds, limit the memory, and let atheris run until a finding or its time limit."""
    program, module, *arguments = argv
    warnings.simplefilter("ignore")
    # All of the package is imported here and in the runs of the target, and reports its branches to atheris.
    with atheris.instrument_imports(include=["fastfedrec", "fuzz.planted"]):
        from fuzz import load_target
        from fuzz.target import Finding, check, deadline

        target, scratch = load_target(module), Path(tempfile.mkdtemp())
        seeds = list(dict.fromkeys(target.seeds()))
        if module.startswith("fuzz.targets") and not sum(check(target, seed, scratch) for seed in seeds):
            raise SystemExit(f"{module} must accept one of its own seeds, and refuses all of them")
        working, known = (Path(argument) for argument in arguments if not argument.startswith("-"))
        for number, seed in enumerate(seeds):
            (working / f"seed-{number}").write_bytes(seed)
        if target.words:
            words = scratch.with_suffix(".words")
            words.write_text("".join(f'"{escaped(word)}"\n' for word in target.words))
            arguments.append(f"-dict={words}")
        limit = limit_memory(target.memory_bytes)
        flags = [
            f"-timeout={_WAITING * target.seconds}",
            f"-report_slow_units={_WAITING * target.seconds}",
            f"-rss_limit_mb={limit}",
            f"-max_len={target.max_bytes}",
            "-len_control=0",
        ]

        def mutated(content, max_size, seed):
            random = Random(seed)
            if random.random() < _STRUCTURED:
                try:
                    changed = target.mutate(random, content)
                except Exception:  # content without the structure, after a change of bytes
                    changed = b""
                if 0 < len(changed) <= max_size:
                    return changed
            return atheris.Mutate(content, max_size)

        executions = itertools.count(1)

        def execute(content):
            number = next(executions)
            if number % _TRIMMED == 0:
                ctypes.CDLL(None).malloc_trim(0)  # memory that is free already is not counted
            try:
                with deadline(target.seconds):
                    check(target, content, scratch)
            except Finding:
                traceback.print_exc()
                (known / f"crash-{hashlib.sha1(content).hexdigest()}").write_bytes(content)
                print(f"stat::number_of_executed_units: {number}", file=sys.stderr, flush=True)
                os._exit(1)  # a regular exit would wait for threads of the reader

        options = {} if target.mutate is None else {"custom_mutator": mutated}
        atheris.Setup([program, *flags, *arguments], execute, **options)
        atheris.Fuzz()


def escaped(word):
    """Return bytes in the notation of libFuzzer's dictionaries."""
    return "".join(f"\\x{byte:02x}" for byte in word)


def limit_memory(n_bytes):
    """Limit the address space to `n_bytes` more than now, and return the same limit of resident memory in MiB."""
    pages = [int(pages) for pages in Path("/proc/self/statm").read_text().split()[:2]]
    now, resident = (n * resource.getpagesize() for n in pages)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    # libFuzzer checks the resident memory, and needs address space for its threads.
    resource.setrlimit(resource.RLIMIT_AS, (now + 2 * n_bytes, hard))
    # It compares the peak, which a process inherits from the one that forked it.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return (max(resident, peak) + n_bytes) >> 20


if __name__ == "__main__":
    main(sys.argv)
