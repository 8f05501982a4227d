"""Messages of any size, on a transport that takes no more than 2 GiB at a time.

gRPC and protocol buffers count bytes with 31 bits. A message that may be longer
is cut where it is sent, and joined where it arrives. How many pieces there are
is known when a step is traced: it follows from the sizes of the variables.
"""

import itertools
import math

import tensorflow as tf

# What a piece should have at most. It may have more, but not twice as much: a message has four
# bytes a value, if it is not compressed, and little beside.
PIECE_BYTES = 1 << 30

# Pieces begin where tensors may, so that cutting copies nothing.
_ALIGNMENT = 64


def count(shapes, sparse_shapes=()):
    """Returns in how many pieces a message about variables of these shapes travels.

    Args:
      shapes: of variables that may travel whole.
      sparse_shapes: of variables of which rows travel, each with its index, of 8 bytes.
    """
    size = sum(4 * math.prod(shape) for shape in shapes)
    size += sum(shape[0] * (4 * math.prod(shape[1:]) + 8) for shape in sparse_shapes)
    return max(1, math.ceil(size / PIECE_BYTES))


def cut(message, pieces):
    """Returns a vector as a list of so many, of about the same length."""
    if pieces == 1:
        return [message]
    size = tf.size(message, tf.int64)
    length = (size // (pieces * _ALIGNMENT) + 1) * _ALIGNMENT
    ends = [tf.minimum(i * length, size) for i in range(pieces + 1)]
    return [message[begin:end] for begin, end in itertools.pairwise(ends)]


def join(pieces):
    """Returns the message that was cut, on the device of whoever calls this."""
    return tf.identity(pieces[0]) if len(pieces) == 1 else tf.concat(pieces, axis=0)
