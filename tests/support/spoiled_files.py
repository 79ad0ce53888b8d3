"""Damages of a stored file: each returns other bytes."""

SPOIL = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "text": lambda content: b"not what was written",
    "a number": lambda content: b"7",
    "a list": lambda content: b"[]",
    "nothing in it": lambda content: b"{}",
    "zeros": lambda content: bytes(len(content)),
    "not utf-8": lambda content: b"\xff" * 8,
    "deep": lambda content: b"[" * 100_000,
}
