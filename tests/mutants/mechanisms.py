from mutants.patch import Mutant

MECHANISMS: list[Mutant] = []
