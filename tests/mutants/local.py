from mutants.patch import Mutant

LOCAL: list[Mutant] = []
