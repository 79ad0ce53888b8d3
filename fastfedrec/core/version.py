"""Version of the package, which other files read from here."""

__all__ = ["__version__"]

__version__ = "0.3.0.dev0"
