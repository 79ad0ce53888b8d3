"""Time limits that end a test which hangs, and a clock that a test sets."""

import time

#: Seconds after which a process, a thread or a connection counts as hung.  The longest takes 30 s on an idle machine.
HANG = 900.0


class Clock:
    """Replace the module `time` by one in which only `sleep` advances the time."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def wait_until(is_done):
    """Wait for another thread or process."""
    ends = time.monotonic() + HANG
    while not is_done():
        assert time.monotonic() < ends, f"not done after {HANG:g} s"
        time.sleep(0.01)
