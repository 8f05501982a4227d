"""What the workers of the conformance suite run.

Every function runs in all workers at the same time, and returns plain values.
"""

import dataclasses
import hashlib
import os
import pathlib
import signal
import threading
import time

import numpy as np
import tensorflow as tf

import tf_gc

# What is reduced: odd sizes, one value and none, all types.
VARIABLES = {
    "matrix": ((37, 29), tf.float32),
    "tensor": ((3, 5, 7), tf.float32),
    "vector": ((129,), tf.float32),
    "scalar": ((), tf.float32),
    "empty": ((0, 3), tf.float32),
    "half": ((31, 11), tf.float16),
    "brain": ((13, 17), tf.bfloat16),
    "double": ((5, 3), tf.float64),
}
FLOAT32 = [name for name, (_, dtype) in VARIABLES.items() if dtype == tf.float32]
EMBEDDING = (23, 3)  # its gradient has only some of the rows
# What goes through the compressor; the embedding where a policy says so.
COMPRESSED = {
    **{name: kind for name, kind in VARIABLES.items() if name != "double"},
    "embedding": (EMBEDDING, tf.float32),
}

# What the gradients are, step by step.
ZEROS = (0, 1)
NORMAL = (2, 3, 4)
POISONED = 5
AGAIN = 6
RESTORED = 7
STEPS = range(RESTORED)
POISON = {"matrix": np.nan, "half": np.inf, "brain": -np.inf}
POISONED_VARIABLES = {(POISONED, name) for name in POISON}
BAD_WORKER = 1
BAD_INDEX = 7

# Several threads share the work on so many values, and they travel in several pieces.
LARGE = (4096, 550)
TRAFFIC_STEPS = 4
SAMPLES = 64
WARM_UP = 2
_HANGS_AFTER_SECONDS = 100

_jobs = {}  # of `prepare`


def rank():
    """Which worker this is."""
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id


def gradient(name, step, worker):
    """The gradient of a variable that a worker has at a step; the suite computes it too."""
    if name == "embedding":
        dense = np.zeros(EMBEDDING, np.float32)
        dense[embedding_rows(worker)] = 1
        return dense
    shape, dtype = VARIABLES[name]
    if step in ZEROS:
        return np.zeros(shape, dtype.as_numpy_dtype)
    seed = [step, worker, list(VARIABLES).index(name)]
    values = np.asarray(np.random.default_rng(seed).standard_normal(shape))
    values = values.astype(dtype.as_numpy_dtype)
    if (step, name) in POISONED_VARIABLES and worker == BAD_WORKER:
        values.flat[BAD_INDEX] = POISON[name]
    return values


def embedding_rows(worker):
    """The rows of the embedding for which a worker has a gradient, which is 1."""
    return [worker, worker + 1]


def measure_contracts(compressor, directory, saved_by):
    """Runs the steps above with "SUM", some with "MEAN", and one from a checkpoint.

    Args:
      compressor: what is measured.
      directory: where each number of workers saves a checkpoint.
      saved_by: the number of workers whose checkpoint is restored.

    Returns:
      The runs (see `_Job.run`) and the slots that were saved and restored.
    """
    total = _Job(compressor, embedding=True)
    workers = total.strategy.num_replicas_in_sync
    runs = {"SUM": total.run(STEPS, residuals_after={NORMAL[-1], POISONED, AGAIN})}
    total.checkpoint().write(f"{directory}/{workers}/{rank()}/checkpoint")
    mean = _Job(compressor, "MEAN", FLOAT32)
    runs["MEAN"] = mean.run([*ZEROS, *NORMAL])
    # As in a restarted program: before there are residuals; and eagerly.
    restored = _Job(compressor, names=[n for n in VARIABLES if n != "double"], compiled=False)
    restored.checkpoint().read(f"{directory}/{saved_by}/0/checkpoint")
    slots = restored.slots()
    runs["restored"] = restored.run([RESTORED])
    return {
        **runs,
        "embedding": total.embedding,
        "saved": total.slots(),
        "slots": slots,
        "traffic": total.strategy.traffic.as_dict(),
    }


def measure_modes(case):
    """Measures, on one number of workers, what should not depend on it."""
    compressor = case.compressor
    warm_up = dataclasses.replace(compressor, start_step=WARM_UP)
    result = {
        "plain": _Job(compressor, names=FLOAT32).run(STEPS),
        "large": _steps_of_large(_large_job(compressor)),
        "loop": _Job(compressor, names=FLOAT32, embedding=True, dense=True).loop(NORMAL),
        "keras": _keras(compressor),
        "warm_up": _Job(warm_up, names=FLOAT32).run(NORMAL, residuals_after=NORMAL),
    }
    if case.schedule is not None:
        result["scheduled"], result["constant"] = _scheduled(compressor, *case.schedule)
    if case.unbiased:
        job = _Job(compressor, names=["matrix"])
        value = gradient("matrix", NORMAL[0], rank())
        result["samples"] = np.stack([job.reduce([value])[0] for _ in range(SAMPLES)])
    return result


def measure_repetition(compressor, has_network):
    """Runs part of `measure_modes` again, and counts the bytes that a large variable takes.

    Args:
      compressor: what is measured.
      has_network: whether workers have network interfaces of their own.
    """
    job = _large_job(compressor)
    large = _steps_of_large(job)  # connections are made, too
    values = _large_gradient(NORMAL[0])
    before, seen_before = job.strategy.traffic, _bytes_on_the_wire() if has_network else 0
    for _ in range(TRAFFIC_STEPS):
        job.reduce([values])
    after, seen_after = job.strategy.traffic, _bytes_on_the_wire() if has_network else 0
    return {
        "plain": _Job(compressor, names=FLOAT32).run(STEPS),
        "large": large,
        "values": after.values_sent - before.values_sent,
        "counted": after.bytes_sent - before.bytes_sent,
        "seen": seen_after - seen_before,
    }


def alone(compressor):
    """One worker: returns whether a gradient is handed on as it is, and the ops that this adds."""
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=_policy(compressor))
    with strategy.scope():
        variable = tf.Variable(tf.zeros([64, 64]))
    result = {}

    @tf.function
    def step():
        def replica_step():
            value = tf.ones([64, 64])
            before = len(tf.compat.v1.get_default_graph().get_operations())
            [(reduced, _)] = strategy.reduce_gradients([(value, variable)])
            after = len(tf.compat.v1.get_default_graph().get_operations())
            result.update(same_tensor=reduced is value, ops=after - before)

        strategy.run(replica_step)

    step()
    return result | {"residuals": len(strategy.residuals)}


def set_threads(count):
    """To be called first."""
    tf.config.threading.set_intra_op_parallelism_threads(count)


def prepare(compressors, timeout_seconds):
    """Makes a job of each compressor for the function below, and reduces with it once."""
    for name, compressor in compressors.items():
        _jobs[name] = _Job(compressor, names=["matrix"], timeout_seconds=timeout_seconds)
        _jobs[name].reduce([gradient("matrix", NORMAL[0], rank())])


def reduce_until_error(victim, absent):
    """Reduces with all jobs at the same time until an error ends them.

    Args:
      victim: the worker that kills itself after some steps, or None.
      absent: the worker that takes no part, or None.

    Returns:
      For each job the error's type, or "hangs".
    """
    if rank() == absent:
        return {}
    errors = dict.fromkeys(_jobs, "hangs")
    begun = threading.Semaphore(0)
    value = gradient("matrix", NORMAL[0], rank())

    def loop(name):
        try:
            while True:
                _jobs[name].reduce([value])
                begun.release()
        except Exception as error:
            errors[name] = type(error).__name__

    threads = [threading.Thread(target=loop, args=(name,), daemon=True) for name in _jobs]
    for thread in threads:
        thread.start()
    if rank() == victim:
        for _ in range(3 * len(threads)):
            begun.acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    for thread in threads:
        thread.join(_HANGS_AFTER_SECONDS / len(threads))
    return errors


class _Job:
    """A strategy, its variables, and a step that reduces a gradient of each."""

    def __init__(
        self,
        compressor,
        reduce_op="SUM",
        names=tuple(VARIABLES),
        kinds=VARIABLES,
        embedding=False,
        dense=False,
        compiled=True,
        timeout_seconds=None,
    ):
        options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
        self.strategy = tf_gc.MultiWorkerMirroredStrategy(
            communication_options=options, compression=_policy(compressor, dense)
        )
        self.traces = 0
        self.embedding = None  # its reduced gradient
        self._compressor = compressor
        self._reduce_op = reduce_op
        # AutoGraph, which takes a second, is tested by `loop`.
        self._step = tf.function(self._run, autograph=False) if compiled else self._run
        with self.strategy.scope():
            # Not of 16 bits: TensorFlow cannot mirror all of those. Gradients may be.
            self._variables = {n: tf.Variable(tf.zeros(kinds[n][0]), name=n) for n in names}
            self._embedding = tf.Variable(tf.zeros(EMBEDDING), name="embedding")
        self._has_embedding = embedding
        self._compressed = dict(self._variables)
        self._compressed.pop("double", None)
        if dense:
            self._compressed["embedding"] = self._embedding

    def reduce(self, gradients):
        """Returns the reduced gradients of one step, as arrays."""
        reduced, embedding = self._step([tf.constant(g) for g in gradients])
        if self._has_embedding:
            self.embedding = tf.convert_to_tensor(embedding).numpy()
        return [r.numpy() for r in reduced]

    def run(self, steps, residuals_after=()):
        """Reduces the gradients of some steps.

        Returns:
          The steps; what was delivered, by step and variable; the residuals after
          some steps, and before and after all of them; the number of traces.
        """
        run = {"steps": list(steps), "before": self.residuals(), "delivered": {}, "residuals": {}}
        for step in steps:
            reduced = self.reduce([gradient(name, step, rank()) for name in self._variables])
            run["delivered"][step] = dict(zip(self._variables, reduced, strict=True))
            if step in residuals_after:
                run["residuals"][step] = self.residuals()
        return {**run, "after": self.residuals(), "traces": self.traces}

    def loop(self, steps):
        """The same in a loop in a `tf.function`; what was delivered is added up."""
        gradients = [
            tf.constant(np.stack([gradient(name, step, rank()) for step in steps]))
            for name in self._variables
        ]

        @tf.function
        def train(gradients):
            totals = [tf.zeros_like(values[0]) for values in gradients]
            embedding = tf.zeros(EMBEDDING)
            for i in tf.range(len(steps)):
                reduced, of_embedding = self._run([values[i] for values in gradients])
                totals = [t + r for t, r in zip(totals, reduced, strict=True)]
                embedding += of_embedding
            return totals, embedding

        totals, embedding = train(gradients)
        delivered = {n: t.numpy() for n, t in zip(self._variables, totals, strict=True)}
        delivered["embedding"] = embedding.numpy()
        return _whole_run(steps, delivered, self.residuals())

    def slots(self):
        """All that is kept for the variables that are compressed, by variable and slot."""
        return {
            (name, slot): self.strategy.residuals.local(variable, slot, shape).numpy()
            for name, variable in self._compressed.items()
            for slot, shape in self._compressor.slot_shapes(tuple(variable.shape)).items()
        }

    def residuals(self):
        """This worker's residuals, by variable; none where the compressor has none."""
        return {name: value for (name, slot), value in self.slots().items() if slot == "residual"}

    def checkpoint(self):
        """What a program saves, and restores."""
        return tf.train.Checkpoint(residuals=self.strategy.residuals)

    def _run(self, gradients):
        return self.strategy.run(self._replica_step, args=(gradients,))

    def _replica_step(self, gradients):
        self.traces += 1
        pairs = list(zip(gradients, self._variables.values(), strict=True))
        if self._has_embedding:
            rows = embedding_rows(rank())
            slices = tf.IndexedSlices(
                tf.ones([len(rows), EMBEDDING[1]]), tf.constant(rows), tf.constant(EMBEDDING)
            )
            pairs.append((slices, self._embedding))
        reduced = [r for r, _ in self.strategy.reduce_gradients(pairs, self._reduce_op)]
        return reduced[: len(gradients)], reduced[-1] if self._has_embedding else None


def _policy(compressor, dense=False):
    """Everything goes through the compressor."""
    return tf_gc.Policy(
        default=compressor, min_elements=0, compress_vectors=True, sparse_as_dense=dense
    )


def _large_job(compressor):
    return _Job(compressor, names=["large"], kinds={"large": (LARGE, tf.float32)})


def _large_gradient(step):
    return np.random.default_rng([step, rank()]).standard_normal(LARGE, np.float32)


def _steps_of_large(job):
    """Returns a fingerprint of all bits that two steps deliver, and then are kept."""
    fingerprint = hashlib.sha256()
    for step in NORMAL[:2]:
        for delivered in job.reduce([_large_gradient(step)]):
            fingerprint.update(delivered)
    for kept in job.slots().values():
        fingerprint.update(kept)
    return fingerprint.hexdigest()


def _whole_run(steps, delivered, residuals):
    """A run of which only the total is known."""
    return {
        "steps": list(steps),
        "before": {},
        "delivered": {steps[-1]: delivered},
        "after": residuals,
    }


def _keras(compressor):
    """A Keras optimizer reduces the gradients, and applies them."""
    keras = tf.keras
    strategy = tf_gc.MultiWorkerMirroredStrategy(compression=_policy(compressor))
    make = getattr(keras, "Variable", tf.Variable)  # of Keras 3
    with strategy.scope():
        variables = {n: make(tf.zeros(VARIABLES[n][0]), name=n) for n in FLOAT32}
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build(list(variables.values()))

    @tf.function
    def step(gradients):
        def replica_step(gradients):
            optimizer.apply_gradients(zip(gradients, variables.values(), strict=True))

        strategy.run(replica_step, args=(gradients,))

    for number in NORMAL:
        step([tf.constant(gradient(name, number, rank())) for name in variables])
    delivered = {name: -variable.numpy() for name, variable in variables.items()}
    residuals = {}
    if compressor.uses_residual:
        residuals = {n: strategy.residuals.of(v).values[0].numpy() for n, v in variables.items()}
    return _whole_run(NORMAL, delivered, residuals)


def _scheduled(compressor, name, first, second):
    """Two runs: in one of them a hyper-parameter is changed after the first step."""
    schedule = tf_gc.schedules.Adjustable(first)
    runs = []
    for value in (schedule, first):
        job = _Job(dataclasses.replace(compressor, **{name: value}), names=["matrix"])
        run = job.run(NORMAL[:1])
        schedule.assign(second)
        # What a value does to the residual is seen in the next step.
        run["delivered"] |= job.run(NORMAL[1:])["delivered"]
        runs.append({**run, "traces": job.traces})
    return runs


def _bytes_on_the_wire():
    """Bytes sent so far through a network namespace's only link, once it is quiet.

    A worker may have all that it waits for while its own last message is still on its way out.
    """
    sent = None
    while (now := _sent()) != sent:
        sent = now
        time.sleep(0.1)
    return sent


def _sent():
    interfaces = pathlib.Path("/proc/net/dev").read_text(encoding="ascii")
    return int(interfaces.partition("eth0:")[2].split()[8])
