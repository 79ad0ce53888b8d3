from mutants.patch import Mutant

ENGINES: list[Mutant] = []
