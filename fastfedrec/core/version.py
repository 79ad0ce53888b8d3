"""The one place the version is written."""

__all__ = ["__version__"]

__version__ = "0.3.0.dev0"
