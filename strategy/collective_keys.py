"""Keys of TensorFlow's own collectives that hold in loops too."""

import tensorflow as tf
from tf_gc.strategy import tensorflow_internals as internals

# Beyond the keys that TensorFlow hands out when a function is called.
_FIRST_KEY = 1 << 30


class CountingLauncher(internals.CollectiveReplicaLauncher):
    """Numbers the collectives of a `tf.function` as they run.

    TensorFlow takes the number when the function is called from Python, which
    fails ("You must feed a value for placeholder tensor") for a function that is
    called in another one's loop, as Keras 3's is with `steps_per_execution`. A
    counter in the graph has a number for every iteration, and each device of a
    group has a counter. All count alike, as they run the same collectives in the
    same order.
    """

    def _next_instance_key(self):
        if tf.executing_eagerly():
            return super()._next_instance_key()
        counters = self._collective_keys.tf_gc_counters
        key = (self._group_key, self._device)
        if key not in counters:
            with tf.init_scope(), tf.device("CPU:0"):
                counters[key] = internals.ResourceVariable(
                    _FIRST_KEY, dtype=tf.int32, trainable=False, name="collective_counter"
                )
        with tf.device("CPU:0"):
            return counters[key].assign_add(1)


def count_in_graphs(cross_device_ops):
    """Makes a `CollectiveAllReduce` number its collectives as they run."""
    for launcher in cross_device_ops._launchers:
        launcher.__class__ = CountingLauncher
        # Shared by all launchers of the strategy.
        launcher._collective_keys.__dict__.setdefault("tf_gc_counters", {})
