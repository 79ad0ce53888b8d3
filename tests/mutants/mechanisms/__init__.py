"""Mutants of mechanisms and keys, from the list `MUTANTS` of each module of this folder."""

import importlib
import pkgutil

MODULES = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
MECHANISMS = [mutant for module in MODULES for mutant in module.MUTANTS]
