"""The command line: `main` with `fit`, `evaluate` and `recommend`, and a module for each other command.

What commands do is elsewhere; here are arguments, and how answers are printed.
"""
