"""A reader without a fault."""

from fuzz.target import Target

TARGET = Target(read=lambda content, _: int(content), errors=(ValueError,), seeds=lambda: [b"17"])
