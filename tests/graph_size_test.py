"""What a step's graph holds does not depend on how many workers there are."""

import tensorflow as tf
from absl.testing import absltest, parameterized

import tf_gc
from tf_gc.exchange import Exchange

_SHAPES = ((32, 32), (8, 4, 4))


def _nodes(compressor, workers):
    """Returns the ops of a reduction's graph and of the functions it calls."""
    slots, turns = {}, tf.Variable(tf.zeros([], tf.int64))
    for shape in _SHAPES:
        for name, slot_shape in compressor.slot_shapes(shape).items():
            slots.setdefault(name, []).append(tf.Variable(tf.zeros(slot_shape)))

    @tf.function
    def reduce(bucket, step, *gradients):
        exchange = Exchange(
            bucket=bucket,
            group_key=1,
            workers=workers,
            rank=0,
            reduce_op="SUM",
            timeout_seconds=1.0,
            step=step,
            names=("a", "b"),
            shapes=_SHAPES,
            slots=slots,
            units=[tf.ones([64]), tf.ones([24])],
            turn_counter=lambda: turns,
        )
        return compressor.all_reduce(gradients, exchange)

    bucket = tf_gc.ops.bucket("graph size", len(_SHAPES))
    graph = reduce.get_concrete_function(bucket, tf.constant(0, tf.int64), *map(tf.zeros, _SHAPES))
    graph = graph.graph.as_graph_def()
    functions = [node for function in graph.library.function for node in function.node_def]
    return len(graph.node) + len(functions)


class GraphSizeTest(parameterized.TestCase):
    @parameterized.parameters(
        tf_gc.compressors.Uncompressed(),
        tf_gc.ThreeLC(),
        tf_gc.THC(),
        tf_gc.Marsit(),
        tf_gc.ARTopK(),
        tf_gc.ScaleCom(),
        tf_gc.TopK(),
        tf_gc.SampledTopK(),
        tf_gc.DGC(),
        tf_gc.QSGD(),
        tf_gc.OneBitAdam(),
        tf_gc.PowerSGD(),
    )
    def test_nodes_are_as_many_for_2_as_for_12_workers(self, compressor):
        self.assertEqual(_nodes(compressor, 2), _nodes(compressor, 12))


if __name__ == "__main__":
    absltest.main()
