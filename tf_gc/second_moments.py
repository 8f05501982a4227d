"""Second moments that all workers share: of what variables, and how long they are remembered.

The strategy exchanges the means of the squares of each gradient's rows and
columns, averaged over the workers. `tf_gc.ops` computes with them.
"""

import math
from collections.abc import Sequence

# How much of the statistics that compression goes by is kept in a step.
DECAY = 0.99
# The same where nothing waits in residuals yet, as while compressors are tried. Units far above
# gradients would then hold all of them back, until what waits has grown as large.
QUICK_DECAY = 0.9


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Returns (rows, columns) of the matrix that a variable's values are seen as.

    The variable's shape is cut in two where rows + columns is least, at the
    first of such places: a kernel [3, 3, 64, 128] is a matrix of 576 x 128. A
    vector is a row.
    """
    shape = tuple(shape)
    cuts = ((math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape)))
    return min(cuts, key=sum, default=(1, math.prod(shape)))


def has_statistics(shape: Sequence[int]) -> bool:
    """Whether the rows and columns of a variable say more, in less room, than its values."""
    return min(matrix_shape(shape)) > 1
