"""What the workers of auto_test.py run.

Every function runs in all workers at the same time, and returns plain values.
"""

import contextlib
import importlib.util
import unittest.mock

import keras
import numpy as np
import tensorflow as tf
from tf_gc.strategy import link_probe

import tf_gc
from tests import second_moment_programs
from tests.strategy_programs import fingerprint, gaussian, rank
from tf_gc import kernels, ops
from tf_gc.adaptive import Network, leader, ratio_search
from tf_gc.adaptive.chooser import Chooser
from tf_gc.adaptive.gain import gains
from tf_gc.adaptive.leader import Decision
from tf_gc.adaptive.plans import Plan

_SHAPES = {"a": (48, 64), "b": (64, 96)}
_SHAPE_OF_TWO = (64, 64)  # of two variables of which one may have no gradient


@contextlib.contextmanager
def _scripted(script, settled=False):
    """Makes worker 0 decide in every step, as a list of (choices, ratio) says.

    With `settled` it decides as if no plan were being tried.
    """

    class Scripted(Chooser):
        calls = 0
        wants_links = False

        def update(self, network, seconds=(), gains=None, used=None):
            del network, seconds, gains, used
            choices, ratio = script[self.calls % len(script)]
            self.calls += 1
            self.plan = Plan(tuple(choices), ratio)
            self.is_settled = settled
            self.steps_since_change = 1000 if settled else 0
            return self.plan

    patch = unittest.mock.patch
    with (
        patch("tf_gc.strategy.adaptation.Chooser", Scripted),
        patch.multiple(leader, _TRYING_SECONDS=0, _SECONDS=0, _LEAST_STEPS=1),
    ):
        yield


def reduce_steps(
    compression, steps, script=None, bytes_per_pack=0, dtype="float32", lie=None, adopt_at=None
):
    """Reduces Gaussian gradients in one function.

    Args:
      compression: the compressor, or policy.
      steps: how many.
      script: what is decided; by default what is measured decides.
      bytes_per_pack: of buckets.
      dtype: of gradients.
      lie: (rank, latency, bandwidth) of a worker that measures something else.
      adopt_at: a step before which residuals of ones are restored.

    Returns:
      By variable: the sum of what was delivered over the steps, the residual; then the choices and
      the fingerprint of each step, the number of traces, and the traffic.
    """
    strategy, variables, step = _reduction(compression, bytes_per_pack, dtype)
    delivered, choices, fingerprints = [], [], []
    with _scripted(script) if script else contextlib.nullcontext():
        for number in range(steps):
            if number == adopt_at:
                own = strategy.residuals.own_values()
                strategy.residuals.adopt({key: np.ones_like(own[key]) for key in own})
            gradients = [gaussian(number, shape).astype(dtype) for shape in _SHAPES.values()]
            reduced = [r.numpy() for r in step(tuple(map(tf.constant, gradients)))]
            delivered.append([r.astype(np.float64) for r in reduced])
            fingerprints.append(fingerprint(reduced))
            adaptations = strategy._reducer._adaptations.values()
            for adaptation in adaptations:
                if lie and lie[0] == rank():
                    adaptation._links = _Liar(*lie[1:])
            plans = [ops.read_plan(adaptation._plan) for adaptation in adaptations]
            choices.append(tuple(c for plan in plans for c in plan.choices.numpy().tolist()))
    residuals = [strategy.residuals.of(v).values[0].numpy() for v in variables]
    return (
        [sum(d[i] for d in delivered) for i in range(len(variables))],
        residuals,
        choices,
        fingerprints,
        step.experimental_get_tracing_count(),
        strategy.traffic.as_dict(),
    )


def reduce_with_and_without_the_last(compression, alternates, script):
    """Reduces two gradients, or the first one alone: a number of steps of either, in turn.

    Args:
      compression: an `Auto`.
      alternates: of each step, whether the last variable has no gradient in it.
      script: by the number of gradients, the index of the system that they have; None for what is
        measured.

    Returns:
      What was delivered of the first variable over the steps, its gradients, its residual, and, on
      worker 0, how many steps of each adaptation are measured.
    """
    policy = tf_gc.Policy(default=compression, min_elements=0)
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=policy)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(_SHAPE_OF_TWO), name=name) for name in ("first", "last")]

    @tf.function
    def step(gradient, has_last):
        def replica_step(gradient):
            gradients = [gradient, gradient if has_last else None]
            return strategy.reduce_gradients(zip(gradients, variables, strict=True))[0][0]

        return strategy.run(replica_step, args=(gradient,))

    delivered = given = 0.0
    for number, leaves_out in enumerate(alternates):
        gradient = gaussian(number, _SHAPE_OF_TWO)
        given = given + gradient.astype(np.float64)
        reduced = step(tf.constant(gradient), not leaves_out)
        delivered = delivered + reduced.numpy().astype(np.float64)
        if script:
            for adaptation, index in zip(_adaptations(strategy), script, strict=False):
                until_the_next_report = Decision(10**9, False, False, False, True, 1.0)
                decision = tf.constant([*until_the_next_report, index], tf.float64)
                ops.change_plan(adaptation._plan, tf.constant(number, tf.int64), decision)
    leaders = [a._leader for a in _adaptations(strategy) if a._leader]
    measured = [leader._chooser._steps.total for leader in leaders]
    return delivered, given, strategy.residuals.of(variables[0]).values[0].numpy(), measured


def _adaptations(strategy):
    return list(strategy._reducer._adaptations.values())


def reduce_after_a_short_probe(compression, rank_without):
    """Reduces where one worker knows no bandwidth: all messages of its probe were short."""
    short = np.array([[32, 4e-4], [992, 4.5e-4], [32, 4.2e-4], [992, 4.4e-4], [32, 3.9e-4]])
    probe = link_probe.probe

    def with_short_messages(*arguments):
        samples = probe(*arguments)
        return short if rank() == rank_without else samples

    with unittest.mock.patch.object(link_probe, "probe", with_short_messages):
        return reduce_steps(compression, 4)


def gradients_waited_for(compression):
    """Returns, for each bucket's exchange, the variables whose gradients it waits for.

    Each variable has a bucket of its own.
    """
    _, _, step = _reduction(compression, bytes_per_pack=1)
    graph = step.get_concrete_function(tuple(map(tf.zeros, _SHAPES.values()))).graph
    names = {graph.inputs[i].op: name for i, name in enumerate(_SHAPES)}
    branches = [op for op in graph.get_operations() if op.type == "Case"]
    exchanges = [op for op in branches if op.name.startswith("system")]
    return [sorted(names[op] for op in _ancestors(e) if op in names) for e in exchanges]


def gains_of_steps(ratios, steps):
    """Returns the gains that this worker has measured last, and those of each step."""
    strategy, variables, step = _reduction(tf_gc.Auto(ratios=ratios), bytes_per_pack=1)
    residuals = [np.zeros(shape, np.float32) for shape in _SHAPES.values()]
    expected = []
    with _scripted([([3, 3], 0.1)]):
        for number in range(steps):
            gradients = [
                gaussian(number, shape) * np.float32(0.1**i)
                for i, shape in enumerate(_SHAPES.values())
            ]
            values = [g + r for g, r in zip(gradients, residuals, strict=True)]
            # Each bucket sends the largest of its own.
            histograms = [kernels.magnitude_histogram(v.ravel()) for v in values]
            squares = np.array([squares.sum() for _, squares in histograms])
            sent = [gains(*h, ratios) * s for h, s in zip(histograms, squares, strict=True)]
            expected.append(np.sum(sent, 0) / squares.sum())
            step(tuple(map(tf.constant, gradients)))
            residuals = [strategy.residuals.of(v).values[0].numpy() for v in variables]
    [adaptation] = strategy._reducer._adaptations.values()
    return adaptation._gains, expected


def gains_after_an_overflow(ratios, is_finite):
    """Returns the gains that this worker has measured where gradients are all NaN at first."""
    strategy, _, step = _reduction(tf_gc.Auto(ratios=ratios), bytes_per_pack=1)
    with _scripted([([3, 3], 0.1)]):
        for number in range(12):
            gradients = [gaussian(number, shape) for shape in _SHAPES.values()]
            step(tuple(tf.constant(g if is_finite else g * np.nan) for g in gradients))
    [adaptation] = strategy._reducer._adaptations.values()
    return adaptation._gains


def reduce_with_a_record_on_worker_0(path):
    """Returns by step what was chosen; no other worker has a record."""
    return reduce_steps(tf_gc.Auto(record=path if rank() == 0 else None), 4)[2]


def _reduction(compression, bytes_per_pack, dtype="float32"):
    """Returns a strategy, its variables, and a function that reduces a gradient of each."""
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
    strategy = tf_gc.MultiWorkerMirroredStrategy(
        compression=compression, communication_options=options
    )
    with strategy.scope():
        variables = [
            tf.Variable(tf.zeros(shape, dtype), name=name) for name, shape in _SHAPES.items()
        ]

    @tf.function
    def step(gradients):
        def replica_step(*gradients):
            reduced = strategy.reduce_gradients(zip(gradients, variables, strict=True))
            return [gradient for gradient, _ in reduced]

        return strategy.run(replica_step, args=gradients)

    return strategy, variables, step


def _ancestors(op):
    found, new = set(), [op]
    while new:
        op = new.pop()
        if op not in found:
            found.add(op)
            new += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    return found


def bandwidths_of_several(compression, bandwidth):
    """Returns what each `Auto` knows in the end, after samples of so many bits a second."""
    known = {}

    def update(chooser, network, *args):
        known[chooser] = network.bandwidth
        return Chooser.update(chooser, network, *args)

    recording = type("Recording", (Chooser,), {"update": update})
    samples = [[[size, 8 * size / bandwidth, 1]] * 4 for size in (1 << 20, 1 << 21)]
    patch = unittest.mock.patch
    with (
        patch("tf_gc.strategy.adaptation.Chooser", recording),
        patch.multiple(leader, _TRYING_SECONDS=0, _SECONDS=0, _LEAST_STEPS=1),
    ):
        _, variables, step = _reduction(compression, 0, "float32")
        gradients = tuple(tf.zeros(v.shape) for v in variables)
        step(gradients)
        left = [np.reshape(samples, [-1, 3])]
        take = lambda: tf.constant(left.pop() if left else np.zeros([0, 3]))  # noqa: E731
        with patch.object(link_probe.ops, "network_samples", take):
            # The second `Auto` may ask before the first one has the samples, and nobody waits for
            # the last decision: so there are some reports more.
            for _ in range(12):
                step(gradients)
    return list(known.values())


def second_moments(compression, steps, script, settled, zero_columns=0, **kwargs):
    """Returns by step the second moments of reduced gradients, what units come from, and these."""
    with _scripted(script, settled):
        results = second_moment_programs.steps_with_second_moments(
            compression, steps, zero_columns=zero_columns, **kwargs
        )
    return results["moments"], results["slots"], results["reduced"]


def reduce_deterministically(compression):
    """Reduces where the user has asked for the same bits in every run."""
    tf.config.experimental.enable_op_determinism()
    return reduce_steps(compression, 1)


def reduce_without_pymoo(rank_without):
    """Reduces with `Auto`, as if one worker had not installed pymoo."""
    missing = unittest.mock.patch.object(importlib.util, "find_spec", return_value=None)
    with missing if rank() == rank_without else contextlib.nullcontext():
        return reduce_steps(tf_gc.Auto(), 1)


def reduce_where_worker_0_cannot_choose(path, has_broken_pymoo):
    """Reduces where worker 0 alone meets what keeps it from choosing."""
    auto = tf_gc.Auto(ratios=(0.1, 0.01), record=path)
    broken = unittest.mock.patch.object(
        ratio_search.importlib, "import_module", side_effect=ImportError("no numbers in pymoo")
    )
    with broken if has_broken_pymoo and rank() == 0 else contextlib.nullcontext():
        return reduce_steps(auto, 1)


class _Liar:
    def __init__(self, latency, bandwidth):
        self._network = Network(latency, bandwidth)

    def update(self):
        return self._network


def gradient_sums(steps):
    """What all steps' gradients of this worker add up to, by variable."""
    return [
        sum(gaussian(number, shape).astype(np.float64) for number in range(steps))
        for shape in _SHAPES.values()
    ]


def train(compression, optimizer, steps, steps_per_execution=1, run_eagerly=False):
    """Fits a small network; returns its weights' fingerprint, losses and traffic."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=compression)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
        )
        model.compile(
            optimizer=optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=steps_per_execution,
            run_eagerly=run_eagerly,
        )
    inputs = gaussian(0, (512, 32), worker=0)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :10].argmax(1)))
    history = model.fit(dataset.repeat().batch(64), epochs=2, steps_per_epoch=steps // 2, verbose=0)
    return fingerprint(model.get_weights()), history.history["loss"], strategy.traffic.as_dict()
