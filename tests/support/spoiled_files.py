"""What may become of a file that was kept: each makes other bytes of what was written."""

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
