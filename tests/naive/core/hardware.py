"""Instruction sets from the operating system's list of processor features, as the x86-64 psABI defines the levels."""

from pathlib import Path

V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
V4 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def instruction_sets() -> tuple[str, ...]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split())
    names = ["plain"]
    if flags >= V3:
        names.append("x86-64-v3")
        if flags >= V4:
            names.append("x86-64-v4")
    return tuple(names)
