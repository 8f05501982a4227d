"""Small uncompressed variables that travel in the messages of compressed ones."""

import dataclasses

from tf_gc.compressors.compressor import Compressor
from tf_gc.compressors.thc import THC, UniformTHC
from tf_gc.compressors.three_lc import ThreeLC
from tf_gc.compressors.uncompressed import Uncompressed

# Of subclasses nothing is known: what they do with sums may not suit companions.
_TAKERS = (Uncompressed, ThreeLC, THC, UniformTHC)


def takes_companions(compressor: Compressor) -> bool:
    """Whether `all_reduce` of a compressor returns the sums of `Exchange.companions`, too."""
    # Around a ring narrow types would be rounded at every hop.
    is_sharded = getattr(compressor, "topology", "sharded") == "sharded"
    return type(compressor) in _TAKERS and is_sharded


def all_reduce(compressor, gradients, exchange):
    """Adds up the gradients of a bucket, and of its companions if there are any.

    They travel together if the compressor takes companions, else the companions have messages
    of their own.

    Returns:
      The sums, or means, and then those of the companions.
    """
    if exchange.companions is None or takes_companions(compressor):
        return compressor.all_reduce(gradients, exchange)
    companions = exchange.companions
    return [
        *compressor.all_reduce(gradients, dataclasses.replace(exchange, companions=None)),
        *Uncompressed().all_reduce(companions.gradients, companions.exchange),
    ]
