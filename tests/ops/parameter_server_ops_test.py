"""tf_gc.ops: parameter servers and their workers, all in one process."""

import collections
import itertools
import os
import threading
import unittest

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies as st
from tensorflow.python.eager import cancellation

from tests import testing
from tests.ops.op_testing import MODES, OpTestCase, as_bytes, traced
from tests.waiting import wait_until
from tf_gc import ops

_THC = "thc bits=4 truncation=2.15 headroom=1.2 seed=7 table=" + ",".join(map(str, range(16)))
_HEADER = 64  # bytes of a message
_CODECS = ("float32", "float16", "bfloat16", "int8", "three_lc", "three_lc scale=mean", _THC)
_NAMES = itertools.count()
_COUNTERS = (
    "version",
    "step",
    "updates",
    "accepted",
    "dropped",
    "pulls",
    "bytes_pushed",
    "bytes_pulled",
    "encodings",
    "log_bytes",
    "pushes_in_round",
    "leases",
    "parked",
)
_LONG = 3600 * 10**6  # microseconds


def unique_name():
    return f"parameter_server_ops_test {next(_NAMES)}"


def or_zeros(tensor, shape):
    """The value of what is empty where there is nothing."""
    return tensor.numpy() if tf.size(tensor) else np.zeros(shape, np.float32)


def values_like(variables, seed):
    return [tf.constant(testing.gaussian(v.shape, seed + i)) for i, v in enumerate(variables)]


class Cluster:
    """A server of some variables."""

    def __init__(self, variables, push="float32", pull="float32", start_step=0, **kwargs):
        self.variables = variables
        self.ids = list(range(len(variables)))
        self.shapes = [v.shape for v in variables]
        self.push = push
        self.start_step = start_step
        self.rounds = collections.Counter()  # that have ended, by channel
        self.server = ops.parameter_server(unique_name(), **kwargs)
        for i, variable in enumerate(variables):
            ops.add_variable(
                self.server,
                variable.handle,
                i,
                f"variable_{i}",
                variable.shape,
                push=push,
                pull=pull,
                start_step=start_step,
            )

    def counters(self):
        counters = ops.server_statistics(self.server).counters.numpy()
        return dict(zip(_COUNTERS, counters, strict=True))

    def take(self, push):
        return ops.take_gradients(self.server, push, self.ids, self.shapes, [], []).dense

    def end_update(self, channel=0):
        handles = [v.handle for v in self.variables]
        multipliers = [1.0] * len(self.ids)
        round_ = self.rounds[channel]
        self.rounds[channel] += 1
        return ops.end_update(self.server, round_, handles, multipliers, self.ids, channel=channel)

    def round(self):
        return [
            or_zeros(ops.read_round(self.server, i, shape), shape)
            for i, shape in zip(self.ids, self.shapes, strict=True)
        ]

    def wait_until_parked(self, pulls):
        wait_until(lambda: self.counters()["parked"] == pulls, f"{pulls} pulls are parked")


class Worker:
    """A worker that pulls and pushes all variables of a cluster."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.model = ops.local_model(unique_name())

    def request(self):
        return ops.pull_request(self.model, self.cluster.ids)

    def pull(self):
        cluster = self.cluster
        message = ops.pull(cluster.server, self.request(), cluster.ids)
        return ops.apply_pull(self.model, message, cluster.ids, cluster.shapes)

    def follow(self):
        return self.pull().version

    def copies(self):
        return [
            ops.read_model(self.model, i, shape).numpy()
            for i, shape in zip(self.cluster.ids, self.cluster.shapes, strict=True)
        ]

    def residuals(self):
        return [
            or_zeros(ops.read_residual(self.model, i, shape), shape)
            for i, shape in zip(self.cluster.ids, self.cluster.shapes, strict=True)
        ]

    def encode(self, gradients, channel=0):
        cluster = self.cluster
        n = len(cluster.ids)
        return ops.encode_push(
            self.model,
            gradients,
            [],
            [],
            [1.5] * n,
            ids=cluster.ids,
            codecs=[cluster.push] * n,
            start_steps=[cluster.start_step] * n,
            sparse_ids=[],
            sparse_shapes=[],
            channel=channel,
        )

    def step(self, gradients):
        """Pushes, and makes the update if it is ready; returns whether it was accepted."""
        cluster = self.cluster
        push = self.encode(gradients)
        outcome = ops.accumulate_push(cluster.server, push)
        if outcome.ready:
            for variable, mean in zip(cluster.variables, cluster.take(push), strict=True):
                variable.assign_sub(mean)
            cluster.end_update()
        ops.settle_push(self.model, push, outcome.accepted, outcome.counted)
        return bool(outcome.accepted)


class TrainingTest(OpTestCase):
    @parameterized.named_parameters(*MODES)
    def test_a_whole_step_by_hand(self, compile_function):
        variable = tf.Variable([[1.0, 2.0, 3.0]])
        cluster = Cluster([variable], pushes_per_round=2)
        name = unique_name()

        # The order of reading, applying and so on comes from the handles.
        @compile_function
        def step(gradient):
            model = ops.local_model(name)
            message = ops.pull(cluster.server, ops.pull_request(model, [0]), [0])
            ops.apply_pull(model, message, [0], [[1, 3]])
            copy = ops.read_model(model, 0, [1, 3])
            push = ops.encode_push(model, [gradient], [], [], [1.0], [0], ["float32"], [0], [], [])
            outcome = ops.accumulate_push(cluster.server, push)

            def update():
                gradients = ops.take_gradients(cluster.server, push, [0], [[1, 3]], [], [])
                variable.assign_sub(gradients.dense[0])
                return ops.end_update(cluster.server, outcome.round, [variable.handle], [1.0], [0])

            version = tf.cond(outcome.ready, update, lambda: tf.constant(0, tf.int64))
            ops.settle_push(model, push, outcome.accepted, outcome.counted)
            return copy, outcome.accepted, version

        def run(values):
            return [t.numpy().tolist() for t in step(tf.constant([values]))]

        self.assertEqual(run([1.0, 0.0, 2.0]), [[[1, 2, 3]], True, 0])
        self.assertEqual(run([3.0, 1.0, 0.0]), [[[1, 2, 3]], True, 2])
        self.assertEqual(run([0.0, 0.0, 0.0]), [[[-1, 1.5, 2]], True, 0])

    @hypothesis.given(
        st.sampled_from(_CODECS),
        st.sampled_from(_CODECS[:-1]),
        st.sampled_from([0, 3]),
        st.lists(st.sampled_from(["first", "second", "follow", "late"]), max_size=12),
    )
    def test_workers_agree_and_nothing_is_lost(self, push, pull, start_step, events):
        variables = [tf.Variable(tf.zeros(shape)) for shape in ((70,), (2, 3), ())]
        cluster = Cluster(variables, push, pull, start_step, pushes_per_round=2)
        workers = [Worker(cluster), Worker(cluster)]
        total = [np.zeros(v.shape) for v in variables]
        for worker in workers:
            worker.follow()
        for i, event in enumerate(events):
            if event == "late":
                workers.append(Worker(cluster))
                workers[-1].follow()
            elif event == "follow":
                [worker.follow() for worker in workers]
            else:
                gradients = values_like(variables, i)
                workers[event == "second"].step(gradients)
                total = [t + g.numpy() for t, g in zip(total, gradients, strict=True)]
        [worker.follow() for worker in workers]
        for v, variable in enumerate(variables):
            for worker in workers[1:]:
                np.testing.assert_array_equal(worker.copies()[v], workers[0].copies()[v])
            kept = sum(worker.residuals()[v] for worker in workers) + cluster.round()[v]
            # The variable is less by the means of two pushes.
            np.testing.assert_allclose(kept - 2 * variable.numpy(), total[v], atol=2e-4)

    @parameterized.parameters("float32", "int8", "three_lc")
    def test_pulls_are_shared_and_encoded_once(self, pull):
        variable = tf.Variable(testing.gaussian([1000], 1))
        cluster = Cluster([variable], pull=pull)
        workers = [Worker(cluster) for _ in range(3)]
        for worker in workers:
            worker.follow()
        before = cluster.counters()["encodings"]
        workers[0].step([tf.constant(testing.gaussian([1000], 2))])
        pulls = [ops.pull(cluster.server, worker.request(), [0]).numpy() for worker in workers]
        for message in pulls[1:]:
            np.testing.assert_array_equal(message, pulls[0])
        self.assertEqual(cluster.counters()["encodings"] - before, int(pull != "float32"))

    def test_optimizers_have_channels(self):
        cluster = Cluster([tf.Variable([0.0]), tf.Variable([0.0])], pushes_per_round=2)
        worker = Worker(cluster)
        worker.follow()
        gradients = [tf.constant([1.0]), tf.constant([2.0])]
        for channel in 0, 1, 1:
            push = worker.encode(gradients, channel)
            ready = ops.accumulate_push(cluster.server, push).ready
        self.assertTrue(ready)
        self.assertEqual(cluster.counters()["pushes_in_round"], 3)
        self.assertEqual(cluster.end_update(channel=1), 2)
        self.assertEqual(cluster.counters()["pushes_in_round"], 1)

    def test_an_update_is_made_once(self):
        cluster = Cluster([tf.Variable([0.0])], pushes_per_round=1)
        worker = Worker(cluster)
        worker.follow()
        answer = ops.accumulate_push(cluster.server, worker.encode([tf.constant([1.0])]))
        self.assertTrue(ops.begin_update(cluster.server, answer.round))
        self.assertEqual(cluster.end_update(), 2)
        self.assertFalse(ops.begin_update(cluster.server, answer.round))
        self.assertTrue(ops.begin_update(cluster.server, answer.round + 1))

    def test_a_push_without_an_answer_is_settled_with_the_next(self):
        cluster = Cluster([tf.Variable([0.0, 0.0])], pushes_per_round=100)
        worker = Worker(cluster)
        worker.follow()
        gradient = tf.constant([1.0, 2.0])
        ops.accumulate_push(cluster.server, worker.encode([gradient]))  # it has arrived
        worker.encode([2 * gradient])  # this has not
        self.assertTrue(worker.step([4 * gradient]))
        self.assertEqual(worker.residuals()[0].tolist(), [2, 4])
        self.assertEqual(cluster.round()[0].tolist(), [5, 10])

    def test_asynchronous_pulls_publish_what_is_due(self):
        cluster = Cluster(
            [tf.Variable([1.0, 2.0])], synchronous=False, updates_per_version=2, max_staleness=0
        )
        worker = Worker(cluster)
        self.assertEqual(worker.follow(), 1)
        self.assertTrue(worker.step([tf.constant([1.0, 1.0])]))
        self.assertEqual(worker.follow(), 1)
        self.assertTrue(worker.step([tf.constant([1.0, 1.0])]))
        Worker(cluster).follow()
        self.assertFalse(worker.step([tf.constant([1.0, 1.0])]))
        self.assertEqual(worker.follow(), 2)
        self.assertEqual(worker.copies()[0].tolist(), [-1, 0])
        self.assertEqual(worker.residuals()[0].tolist(), [1, 1])

    def test_steps_are_updates(self):
        cluster = Cluster([tf.Variable([1.0])])
        worker = Worker(cluster)
        ops.publish_whole(cluster.server, [0])
        self.assertEqual(worker.pull().step, 0)
        worker.step([tf.constant([1.0])])
        self.assertEqual(worker.pull().step, 1)
        ops.set_server_step(cluster.server, 40)
        self.assertEqual(worker.pull().step, 40)
        self.assertEqual(cluster.counters()["step"], 40)
        self.assert_invalid("step must be at least 0", ops.set_server_step, cluster.server, -1)

    def test_sparse_gradients_are_rows(self):
        table = tf.Variable(tf.zeros([4, 2]))
        server = ops.parameter_server(unique_name(), pushes_per_round=2)
        ops.add_variable(server, table.handle, 5, "table", [4, 2])
        model = ops.local_model(unique_name())
        message = ops.pull(server, ops.pull_request(model, [5]), [5])
        ops.apply_pull(model, message, [5], [[4, 2]])

        def push(indices, rows, bits=0):
            pushed = ops.encode_push(
                model,
                [],
                [tf.constant(indices, tf.int64)],
                [tf.constant(rows)],
                tf.zeros([0]),
                ids=[],
                codecs=[],
                start_steps=[],
                sparse_ids=[5],
                sparse_shapes=[[4, 2]],
                row_bits=bits,
            )
            return pushed, ops.accumulate_push(server, pushed)

        push([3, 0], [[1.0, 2.0], [3.0, 4.0]])
        pushed, outcome = push([3], [[6.0, 8.0]])
        self.assertTrue(outcome.ready)
        dense, _, indices, values = ops.take_gradients(server, pushed, [], [], [5], [[4, 2]])
        self.assertEmpty(dense)
        self.assertEqual(indices[0].numpy().tolist(), [3, 0, 3])
        self.assertEqual(values[0].numpy().tolist(), [[0.5, 1], [1.5, 2], [3, 4]])
        self.assert_invalid("one of variable 5 is 4, expected 0 ... 3", push, [4], [[1.0, 2.0]])
        self.assert_invalid("row_bits must be 0, 2", push, [0], [[1.0, 2.0]], 6)

    def test_the_seed_decides_how_rows_are_rounded(self):
        rows = tf.random.stateless_normal([64, 4], [1, 2])

        def push(seed):
            pushed = ops.encode_push(
                ops.local_model(unique_name()),
                [],
                [tf.range(64, dtype=tf.int64)],
                [rows],
                tf.zeros([0]),
                ids=[],
                codecs=[],
                start_steps=[],
                sparse_ids=[5],
                sparse_shapes=[[64, 4]],
                row_bits=2,
                row_seed=seed,
            )
            return pushed.numpy()[-128:].tolist()  # behind the header, which names the worker

        self.assertEqual(push(3), push(3))
        self.assertNotEqual(push(3), push(4))

    def test_writing_from_outside_is_published_whole(self):
        variable = tf.Variable([1.0, 2.0])
        cluster = Cluster([variable], pull="three_lc", pushes_per_round=2)
        worker = Worker(cluster)
        worker.follow()
        worker.step([tf.constant([1.0, 1.0])])
        variable.assign([5.0, 0.1])
        ops.publish_whole(cluster.server, [0], outdated=[0])
        self.assertEqual(cluster.counters()["pushes_in_round"], 0)
        self.assertEqual(worker.follow(), 2)
        self.assertEqual(worker.copies()[0].tolist(), [5, np.float32(0.1)])

    def test_residuals_are_written_and_read(self):
        cluster = Cluster([tf.Variable(tf.zeros([2, 2]))], push="int8", pushes_per_round=2)
        worker = Worker(cluster)
        worker.follow()
        residual = tf.constant([[0.5, 0.25], [0.0, 1.0]])
        ops.write_residual(worker.model, residual, 0)
        np.testing.assert_array_equal(worker.residuals()[0], residual)
        worker.step([tf.zeros([2, 2])])
        np.testing.assert_allclose(cluster.round()[0] + worker.residuals()[0], residual, atol=1e-7)


class SecondMomentTest(OpTestCase):
    def test_a_round_has_second_moments(self):
        units = "three_lc scale=mean rows=2 decay=0.5"
        variables = [tf.Variable(tf.zeros([2, 2])), tf.Variable(tf.zeros([4]))]
        cluster = Cluster(variables, push=units, pushes_per_round=2)
        worker = Worker(cluster)
        worker.follow()
        values = tf.constant([[4.0, 2.0], [2.0, 1.0]])
        for factor in 1, 2:
            push = worker.encode([factor * values, tf.zeros([4])])
            ops.accumulate_push(cluster.server, push)
        taken = ops.take_gradients(cluster.server, push, cluster.ids, cluster.shapes, [], [])
        # The worker's second push has a mean in which it counts twice: 3 times the first's.
        expected = np.array([[16, 4], [4, 1]]) * (1 + 3) / 2 / 2
        np.testing.assert_allclose(taken.second_moments[0], expected, rtol=1e-6)
        np.testing.assert_array_equal(taken.second_moments[1], tf.zeros([4]))
        exact = Cluster(variables)
        follower = Worker(exact)
        follower.follow()
        push = follower.encode([values, tf.zeros([4])])
        ops.accumulate_push(exact.server, push)
        taken = ops.take_gradients(exact.server, push, exact.ids, exact.shapes, [], [])
        self.assertEqual([m.shape for m in taken.second_moments], [[0], [0]])

    def test_statistics_are_written_and_read(self):
        model = ops.local_model(unique_name())
        np.testing.assert_array_equal(ops.read_second_moment(model, 3, [4]), np.zeros(4))
        ops.write_second_moment(model, [1.0, 2.0, 3.0, 4.0], 3)
        np.testing.assert_array_equal(ops.read_second_moment(model, 3, [4]), [1, 2, 3, 4])
        self.assert_invalid("variable 3 has 3 statistics", ops.read_second_moment, model, 3, [5])


class WaitingTest(OpTestCase):
    """Pulls that find nothing new; no test depends on how long anything takes."""

    def setUp(self):
        super().setUp()
        self.cluster = Cluster([tf.Variable([1.0, 2.0])])
        Worker(self.cluster).follow()

    def pull(self, version, patience):
        return ops.pull(self.cluster.server, tf.constant([version, patience], tf.int64), [0])

    def on_a_thread(self, function):
        """Calls it, and returns a function that returns what it has returned or raised."""
        results = []

        def call():
            try:
                results.append(function())
            except tf.errors.OpError as error:
                results.append(error)

        thread = threading.Thread(target=call)
        thread.start()

        def join():
            thread.join()
            return results[0]

        return join

    def test_a_pull_waits_for_the_next_version(self):
        joins = [self.on_a_thread(lambda: self.pull(1, _LONG)) for _ in range(2)]
        self.cluster.wait_until_parked(2)
        self.cluster.variables[0].assign([5.0, 6.0])
        self.cluster.end_update()
        for join in joins:
            self.assertGreater(len(join()), _HEADER)
        self.assertEqual(self.cluster.counters()["parked"], 0)

    def test_patience_ends(self):
        self.assertLen(self.pull(1, 1000), _HEADER)

    def test_who_has_no_patience_or_another_version_does_not_wait(self):
        self.assertLen(self.pull(1, 0), _HEADER)
        self.assertGreater(len(self.pull(9, _LONG)), _HEADER)

    def test_a_pull_is_cancelled_with_its_step(self):
        function = tf.function(lambda: self.pull(1, _LONG)).get_concrete_function()
        manager = cancellation.CancellationManager()
        join = self.on_a_thread(manager.get_cancelable_function(function))
        self.cluster.wait_until_parked(1)
        manager.start_cancel()
        self.assertIsInstance(join(), tf.errors.CancelledError)
        self.cluster.wait_until_parked(0)
        # The server goes on.
        self.assertEqual(self.cluster.end_update(), 2)

    def test_pulls_that_wake_while_the_server_encodes(self):
        # They must not take the threads that encoding needs, and wait there for the server.
        cluster = Cluster([tf.Variable(tf.zeros([1 << 20]))], pull="three_lc", synchronous=True)
        Worker(cluster).follow()
        stop = threading.Event()

        def pull():
            while not stop.is_set():
                version = cluster.counters()["version"]
                ops.pull(cluster.server, tf.constant([version, 500], tf.int64), [0])

        joins = [self.on_a_thread(pull) for _ in range(4 * os.cpu_count())]
        for i in range(40):
            cluster.variables[0].assign_add(testing.gaussian([1 << 20], i))
            self.assertEqual(cluster.end_update(), i + 2)
        stop.set()
        for join in joins:
            self.assertIsNone(join())


class VariablesTest(OpTestCase):
    def test_what_is_not_initialized_or_gone_is_left_out(self):
        server = ops.parameter_server(unique_name())
        later = tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=[2], shared_name=unique_name(), container=""
        )
        gone = tf.Variable([1.0])
        there = tf.Variable([3.0])
        ops.add_variable(server, later, 0, "later", [2])
        ops.add_variable(server, gone.handle, 1, "gone", [1])
        ops.add_variable(server, there.handle, 2, "there", [1])
        del gone
        model = ops.local_model(unique_name())

        def follow():
            ids, shapes = [0, 1, 2], [[2], [1], [1]]
            message = ops.pull(server, ops.pull_request(model, ids), ids)
            ops.apply_pull(model, message, ids, shapes)

        follow()
        self.assertEqual(ops.read_model(model, 2, [1]).numpy().tolist(), [3])
        for missing, shape in (0, [2]), (1, [1]):
            with self.assertRaisesRegex(
                tf.errors.FailedPreconditionError, f"variable {missing} was not pulled"
            ):
                ops.read_model(model, missing, shape)
        tf.raw_ops.AssignVariableOp(resource=later, value=[7.0, 8.0])
        follow()
        self.assertEqual(ops.read_model(model, 0, [2]).numpy().tolist(), [7, 8])

    def test_other_types_may_be_added_but_not_pulled(self):
        half = tf.Variable(tf.zeros([2], tf.float16))
        server = ops.parameter_server(unique_name())
        ops.add_variable(server, half.handle, 0, "half", [2])
        self.assert_invalid("variable half must be float32", ops.pull, server, [0, 0], [0])

    def test_variables_that_are_written_in_place_are_copied(self):
        table = tf.Variable(tf.zeros([3, 1]))
        table.scatter_update(tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0])))
        cluster = Cluster([table])
        worker = Worker(cluster)
        worker.follow()
        table.scatter_update(tf.IndexedSlices(tf.constant([[9.0]]), tf.constant([0])))
        self.assertEqual(worker.copies()[0].tolist(), [[1], [0], [0]])

    @unittest.skipIf("asan" in os.environ.get("LD_PRELOAD", ""), "it ends the program")
    def test_a_version_without_memory_is_an_error(self):
        table = tf.Variable(tf.zeros([1 << 24, 1]))
        table.scatter_update(tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0])))
        worker = Worker(Cluster([table]))
        with (
            testing.limited_memory(1 << 20),
            self.assertRaisesRegex(tf.errors.ResourceExhaustedError, "a version of the model"),
        ):
            worker.follow()
        worker.follow()
        self.assertEqual(worker.copies()[0][:2].tolist(), [[1], [0]])

    def test_who_reads_a_copy_keeps_it(self):
        cluster = Cluster([tf.Variable([1.0, 2.0])], pull="int8")
        worker = Worker(cluster)
        worker.follow()
        copy = ops.read_model(worker.model, 0, [2])
        worker.step([tf.constant([1.0, 1.0])])
        worker.follow()
        self.assertEqual(copy.numpy().tolist(), [1, 2])
        self.assertNotEqual(worker.copies()[0].tolist(), [1, 2])


class StatisticsTest(OpTestCase):
    def test_everything_is_counted(self):
        cluster = Cluster(
            [tf.Variable(testing.gaussian([100], 1)), tf.Variable(0.0)], push="int8", pull="int8"
        )
        worker = Worker(cluster)
        worker.follow()
        worker.step([tf.constant(testing.gaussian([100], 2)), tf.constant(0.0)])
        worker.follow()
        statistics = ops.server_statistics(cluster.server)
        pushed = _HEADER + (3 + 104) + (3 + 5)
        first = _HEADER + (2 + 2 + 400) + (3 + 4)
        self.assertEqual(
            cluster.counters(),
            {
                "version": 2,
                "step": 1,
                "updates": 1,
                "accepted": 1,
                "dropped": 0,
                "pulls": 2,
                "bytes_pushed": pushed,
                "bytes_pulled": first + _HEADER + (3 + 104),
                "encodings": 1,
                "log_bytes": 104,
                "pushes_in_round": 0,
                "leases": 0,
                "parked": 0,
            },
        )
        self.assertEqual(statistics.ids.numpy().tolist(), [0, 1])
        self.assertEqual(statistics.values_pushed.numpy().tolist(), [100, 1])
        self.assertEqual(statistics.bytes_pushed.numpy().tolist(), [107, 8])
        self.assertEqual(statistics.values_pulled.numpy().tolist(), [200, 2])
        self.assertEqual(statistics.bytes_pulled.numpy().tolist(), [404 + 107, 7])

    def test_the_library_names_itself(self):
        wire_version, version = ops.library_version().numpy().decode().split(" ")
        self.assertEqual(wire_version, "11")
        self.assertEqual(version.split(".")[:2], tf.__version__.split(".")[:2])


class ForgetTest(OpTestCase):
    def test_what_is_forgotten_is_gone_on_both_sides(self):
        cluster = Cluster([tf.Variable([1.0, 2.0]), tf.Variable([3.0])])
        worker = Worker(cluster)
        worker.follow()
        worker.step([tf.constant([1.0, 1.0]), tf.constant([1.0])])
        ops.forget_variables(cluster.server, [1], [])
        ops.forget_copies(worker.model, [1])
        worker.follow()  # names both
        self.assertEqual(ops.server_statistics(cluster.server).ids.numpy().tolist(), [0])
        np.testing.assert_array_equal(ops.read_model(worker.model, 0, [2]), [0.0, 1.0])
        with self.assertRaises(tf.errors.FailedPreconditionError):
            ops.read_model(worker.model, 1, [1])
        push = worker.encode([tf.constant([1.0, 1.0]), tf.constant([1.0])])
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "Join the coordinator"):
            ops.accumulate_push(cluster.server, push)
        self.assert_invalid("ids must be a vector", ops.forget_copies, worker.model, 1)


class ContainersTest(OpTestCase):
    def test_a_container_is_freed(self):
        first, second = (ops.local_model("model", container=f"program/{i}") for i in range(2))
        ops.clean_up("program/0")
        with self.assertRaises(tf.errors.NotFoundError):
            ops.pull_request(first, [0])
        ops.pull_request(second, [0])
        self.assert_invalid("container must not be empty", ops.clean_up, "")

    def test_a_program_ends_the_one_before(self):
        old = unique_name()
        model = ops.local_model("model", container=f"{old}/0")
        server = ops.parameter_server("server", container=f"{old}/1")
        other = ops.local_model(unique_name())
        ops.local_model("model", container=f"{unique_name()}/0")
        with self.assertRaises(tf.errors.NotFoundError):
            ops.pull_request(model, [0])
        with self.assertRaises(tf.errors.NotFoundError):
            ops.server_statistics(server)
        ops.pull_request(other, [0])  # of no container
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "another program"):
            ops.local_model("model", container=f"{old}/0")


class ShapesTest(OpTestCase):
    def test_shapes_are_as_exact_as_can_be(self):
        cluster = Cluster([tf.Variable([1.0, 2.0])])

        def all_ops(message):
            model = ops.local_model("shapes")
            server = cluster.server
            gradients = ops.take_gradients(server, message, [0], [[2]], [1, 2], [[4, 3], [5]])
            return {
                "request": ops.pull_request(model, [0]),
                "message": ops.pull(server, tf.zeros([2], tf.int64), [0]),
                "version": ops.apply_pull(model, message, [0], [[2]]).version,
                "copy": ops.read_model(model, 0, [2]),
                "accepted": ops.accumulate_push(server, message).accepted,
                "counted": ops.accumulate_push(server, message).counted,
                "is_open": ops.begin_update(server, 0),
                "dense": gradients.dense[0],
                "statistics": ops.read_second_moment(model, 0, [6]),
                "indices": gradients.sparse_indices[0],
                "rows": gradients.sparse_values[0],
                "scalars": gradients.sparse_values[1],
                "counters": ops.server_statistics(server).counters,
                "residual": ops.read_residual(model, 0, [7, 1]),
                "library": ops.library_version(),
            }

        shapes = {
            name: None if output.shape.rank is None else output.shape.as_list()
            for name, output in traced(all_ops, tf.TensorSpec([None], tf.uint8)).items()
        }
        self.assertEqual(
            shapes,
            {
                "request": [None],
                "message": [None],
                "version": [],
                "copy": [2],
                "accepted": [],
                "counted": [None],
                "is_open": [],
                "dense": [2],
                "statistics": [6],
                "indices": [None],
                "rows": [None, 3],
                "scalars": [None],
                "counters": [13],
                "residual": None,
                "library": [],
            },
        )


class ErrorsTest(OpTestCase):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster([tf.Variable([1.0, 2.0])], push="three_lc", pull="three_lc")
        self.worker = Worker(self.cluster)

    def assert_invalid(self, words, function, *args, **kwargs):
        with self.assertRaisesRegex((tf.errors.InvalidArgumentError, ValueError), words):
            function(*args, **kwargs)

    def test_wrong_servers(self):
        for words, kwargs in (
            ("pushes_per_round", {"pushes_per_round": 0}),
            ("updates_per_version", {"updates_per_version": -1}),
            ("lease_seconds", {"lease_seconds": -1.0}),
        ):
            self.assert_invalid(words, ops.parameter_server, unique_name(), **kwargs)
        name = unique_name()
        ops.parameter_server(name, pushes_per_round=2)
        ops.parameter_server(name, pushes_per_round=2)
        self.assert_invalid("shared_name", ops.parameter_server, name, pushes_per_round=3)

    def test_wrong_variables(self):
        def add(number=1, shape=(2,), push="float32", pull="float32"):
            handle = self.cluster.variables[0].handle
            ops.add_variable(self.cluster.server, handle, number, "v", shape, push, pull)

        self.assert_invalid(r"id must be in \[0, 2\^32\), got -1", add, number=-1)
        self.assert_invalid("id must be in", add, number=2**32)
        self.assert_invalid('codec "int9"', add, push="int9")
        self.assert_invalid("pull", add, pull=_THC)
        add()
        self.assert_invalid("id: 1", add, shape=[3])

    def test_wrong_pulls(self):
        server = self.cluster.server
        self.assert_invalid("no variable 9", ops.pull, server, [0, 0], [9])
        self.assert_invalid("request", ops.pull, server, [0], [0])
        self.assert_invalid("request", ops.pull, server, [-1, 0], [0])
        self.assert_invalid("ids", ops.pull, server, [0, 0], [-1])
        message = ops.pull(server, self.worker.request(), [0]).numpy()
        with self.assertRaisesRegex(tf.errors.DataLossError, "it was not asked for"):
            # The request of a model that has nothing, for no variables.
            ops.apply_pull(self.worker.model, ops.pull(server, [0, 0], [0]), [], [])
        for size in range(len(message)):
            with self.assertRaises(tf.errors.DataLossError):
                self.apply(message[:size])
        message[4] = 77
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "version 77"):
            self.apply(message)

    def apply(self, message):
        ops.apply_pull(self.worker.model, as_bytes(message), [0], [[2]])

    def test_wrong_pushes(self):
        def encode(multiplier=1.0, codec="three_lc"):
            gradient = tf.constant([1.0, 2.0])
            return ops.encode_push(
                self.worker.model, [gradient], [], [], [multiplier], [0], [codec], [0], [], []
            )

        self.assert_invalid("multipliers", encode, multiplier=2.0)
        self.assert_invalid('codec "three"', encode, codec="three")
        self.assert_invalid("3 rows", encode, codec="three_lc rows=3 decay=0.5")
        push = encode().numpy()
        other = Cluster([tf.Variable(tf.zeros([100]))], push="three_lc")
        push_of_other = Worker(other).encode([tf.constant(testing.gaussian([100]))])
        with self.assertRaisesRegex(tf.errors.DataLossError, "variable_0 of the push message"):
            ops.accumulate_push(self.cluster.server, push_of_other)
        for size in range(len(push)):
            with self.assertRaises(tf.errors.DataLossError):
                ops.accumulate_push(self.cluster.server, as_bytes(push[:size]))
            with self.assertRaises(tf.errors.DataLossError):
                ops.settle_push(self.worker.model, as_bytes(push[:size]), False, [])

    def test_lists_must_have_the_same_length(self):
        gradient = tf.constant([1.0])

        def encode(dense=(gradient,), multipliers=(1.0,), ids=(0,), codecs=("int8",), starts=(0,)):
            model = self.worker.model
            return ops.encode_push(
                model, list(dense), [], [], list(multipliers), ids, codecs, starts, [], []
            )

        self.assert_invalid("multipliers", encode, multipliers=[1.0, 1.0])
        self.assert_invalid("codecs", encode, codecs=["int8", "int8"])
        self.assert_invalid("start_steps", encode, starts=[])
        self.assert_invalid("dense", encode, dense=[gradient, gradient], multipliers=[1.0, 1.0])
        server = self.cluster.server
        self.assert_invalid("multipliers", ops.end_update, server, 0, [], [1.0], [])
        self.assert_invalid("shapes", ops.apply_pull, self.worker.model, as_bytes([]), [0], [])

    def test_wrong_shapes(self):
        self.worker.follow()
        self.assert_invalid("shape", ops.read_model, self.worker.model, 0, [3])
        push = self.worker.encode([tf.constant([1.0, 2.0])])
        server = self.cluster.server
        self.assert_invalid("shapes", ops.take_gradients, server, push, [0], [[3]], [], [])
        ops.write_residual(self.worker.model, [1.0, 2.0], 0)
        self.assert_invalid("shape", ops.read_residual, self.worker.model, 0, [3])

    def test_handles_of_other_resources_are_refused(self):
        with self.assertRaises(tf.errors.InvalidArgumentError):
            ops.pull(self.worker.model, [0, 0], [0])
        with self.assertRaises(tf.errors.InvalidArgumentError):
            ops.pull_request(self.cluster.server, [0])


if __name__ == "__main__":
    absltest.main()
