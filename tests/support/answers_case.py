"""Users, of which one has no item, and another one all items except one."""

from fastfedrec import Interactions
from support.data import rated

NOBODY = "user 7"  # a user without items
FULL = "user 9"  # a user with all items but one


def people():
    matrix = rated(80, 50, 1).to_scipy().tolil()
    matrix[7] = 0
    matrix[9] = 3
    matrix[9, 31] = 0
    matrix = matrix.tocsr()
    matrix.eliminate_zeros()
    return Interactions.from_scipy(
        matrix, user_ids=[f"user {u}" for u in range(80)], item_ids=[(i, "film") for i in range(50)]
    )
