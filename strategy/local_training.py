"""Inner steps of every worker by itself, and outer steps of all workers together (DiLoCo)."""

import contextlib
import functools
import zlib

import tensorflow as tf
from absl import logging
from tf_gc.strategy import second_moments
from tf_gc.strategy.gradients import times
from tf_gc.strategy.residuals import OUTER_RESIDUAL, OUTER_STEPS
from tf_gc.strategy.variables import GRADIENT_DTYPES, unwrap

_OTHER_PERIOD = (
    "within a period of tf_gc.DiLoCo an optimizer has got other variables, or a checkpoint from "
    "within one was restored with another inner_steps, fragments or start_step: call "
    "strategy.synchronize with the variables of that period first"
)
_NO_OUTER_STEP = (
    "with tf_gc.DiLoCo, call strategy.outer_step(variables) inside strategy.run after each update "
    "with gradients of strategy.reduce_gradients: without it workers would never exchange anything"
)
_BETWEEN = -1  # of periods


class LocalTraining:
    """What a strategy does for `tf_gc.DiLoCo`.

    A step of an optimizer is `begin_step`, the update of the variables, `end_step`, all
    with the same list of variables; the first one's slot "inner_steps" counts them, with one
    fragment from the last outer step on. Before `start_step` of them all workers have the same
    gradients, and no period begins. "outer_variable" is what a variable was when its period
    began, the same on all workers; "period_of" tells which list began it, or 0 before the first
    period and `_BETWEEN` after others; "outer_momentum" is the outer optimizer's.
    """

    def __init__(self, strategy, diloco, residuals, start_reducer, reducer, device):
        self._strategy = strategy
        self._diloco = diloco
        self._residuals = residuals
        self._start_reducer = start_reducer  # of gradients
        self._reducer = reducer  # of outer gradients
        self._device = device
        self._workers = strategy.extended._num_workers
        # ids of the variables of a step, in the order of tracing -> whether it had no count yet
        self._lists = {}
        self._run = []  # lists of the steps of this run
        self._begun = {}  # id of a variable in a step that has begun -> the first of its list
        self._reduced = set()  # ids of variables whose gradients are given out
        self._has_warned = False

    @contextlib.contextmanager
    def checked(self):
        """Runs a function on the replicas.

        Where it runs eagerly, and has reduced gradients without an outer step, the first time is
        logged: the program may have left out this update.

        Raises:
          RuntimeError: a function that is traced has reduced gradients, but taken no outer step.
        """
        self._begun.clear()
        self._reduced.clear()
        self._run.clear()
        yield
        if self._reduced and not tf.executing_eagerly():
            raise RuntimeError(_NO_OUTER_STEP)
        if self._reduced and not self._has_warned:
            self._has_warned = True
            logging.warning("%s. Ignore this if the step has left out its update", _NO_OUTER_STEP)

    def begin_step(self, variables):
        """Remembers variables whose period begins with this step, unless that is done.

        Raises:
          ValueError: two optimizers of a run share variables.
          tf.errors.InvalidArgumentError: in the step, if a variable is within a period of others.
        """
        self._once_for_each_worker(self._begin_step, list(variables))

    def may_leave_out(self, variables):
        """Expects no end of a step that has reduced these variables' gradients."""
        self._reduced.difference_update(_ids(variables))

    def begun(self, variables):
        """Returns those of the variables that are in a step which has begun, but not ended."""
        return [v for v in variables if unwrap(v)._unique_id in self._begun]

    def end_step(self, variables):
        """Counts the step, and takes the outer steps that are due.

        Raises:
          ValueError: these are not the variables with which the step has begun.
        """
        self._once_for_each_worker(self._end_step, list(variables))

    def synchronize(self, variables):
        """Takes the outer step of all variables that have had inner steps since their last.

        Raises:
          ValueError: no step has had variables of these alone, in their order.
          tf.errors.InvalidArgumentError: one is within a period of others.
        """
        lists = self._lists_of(variables)
        if not lists:
            raise ValueError(
                "variables must be those of an optimizer that has taken steps, all of them and in "
                "its order, such as model.trainable_variables"
            )
        self._once_for_each_worker(self._synchronize, list(variables), lists)

    def handles(self, gradient):
        """Whether a gradient stays on its worker after `start_step`."""
        return gradient.dtype in GRADIENT_DTYPES

    def reduce(self, gradients, variables, reduce_op, counter, **of_optimizer):
        """Returns this worker's gradients; before `start_step`, reduced ones, all dense tensors.

        The arguments are those of `GradientReducer.reduce`.
        """
        self._reduced.update(_ids(variables))

        def own():
            return [g if reduce_op == "MEAN" else times(g, self._workers) for g in gradients]

        if self._diloco.start_step == 0:
            return own()
        shared = []  # which gradients have a second moment

        def reduced():
            results = self._start_reducer.reduce(
                gradients, variables, reduce_op, counter, **of_optimizer
            )
            moments = list(map(second_moments.of, results))
            shared.extend(i for i, moment in enumerate(moments) if moment is not None)
            return _dense(results), [moments[i] for i in shared]

        def own_with_squares():
            results = _dense(own())
            return results, [tf.square(tf.cast(results[i], tf.float32)) for i in shared]

        is_common = self._is_first_step(variables)
        # TensorFlow traces them in this order; eagerly, nothing is shared by own gradients.
        results, moments = tf.cond(is_common, reduced, own_with_squares)
        for i, moment in zip(shared, moments, strict=True):
            second_moments.attach(results[i], moment)
        return results

    def deliver_restored(self, pairs, reduce_op):
        """Returns the pairs of a worker without others, in first steps with what waits for them."""
        if not pairs or self._diloco.start_step == 0 or self._diloco.start_compression is None:
            return pairs
        is_first = self._is_first_step([variable for _, variable in pairs])
        return self._residuals.deliver_restored(pairs, reduce_op, is_due=is_first)

    def _is_first_step(self, variables):
        # Keras leaves out variables that have no gradient, and so perhaps the first.
        first = self._begun[_ids(variables)[0]]
        return self._counter([first]).read_value() < self._diloco.start_step

    def _once_for_each_worker(self, function, *args):
        if len(self._strategy.extended.worker_devices) == 1:
            function(*args)
        else:
            tf.distribute.get_replica_context().merge_call(lambda _: function(*args))

    def _begin_step(self, variables):
        ids = _ids(variables)
        if self._begun.keys() >= set(ids):
            return
        if any(ids != others and not set(ids).isdisjoint(others) for others in self._run):
            raise ValueError(
                "two optimizers of a step share variables: with tf_gc.DiLoCo each variable must "
                "have one optimizer"
            )
        self._begun.update(dict.fromkeys(ids, variables[0]))
        self._run.append(ids)
        is_new = not self._residuals.has_shared(variables[0], "inner_steps")
        if self._lists.setdefault(ids, is_new) and self._diloco.start_step > 0:
            self._leave_out_first_steps(variables)
        steps = self._inner_steps(variables)
        period = self._period(variables)
        for offset, fragment in self._fragments(variables):
            tf.cond(
                self._period_begins(steps, offset),
                functools.partial(self._remember, fragment, period, steps),
                lambda: (),
            )
        tf.debugging.Assert(self._may_step(variables, steps), [_OTHER_PERIOD])

    def _leave_out_first_steps(self, variables):
        """Where variables of a new list have had inner steps, as when layers are frozen.

        An optimizer's own variables are each worker's then: first steps would no more be the same.
        """
        counter = self._counter(variables)
        steps = counter.read_value()
        exchanged = [v for _, fragment in self._fragments(variables) for v in fragment]
        markers = [self._period_of(variable).read_value() for variable in exchanged]
        is_new = tf.equal(steps, 0) & tf.reduce_any(tf.not_equal(markers, 0))
        with tf.device(self._device):
            counter.assign(tf.where(is_new, tf.cast(self._diloco.start_step, tf.int64), steps))

    def _may_step(self, variables, steps):
        """Whether all are in a period of theirs, or, before `start_step`, in none.

        First steps would take the same from copies that differ.
        """
        period = self._period(variables)
        return self._are_in(variables, tf.where(steps < 0, tf.zeros_like(period), period))

    def _are_in(self, variables, period):
        """Whether all are in this period, 0 for none."""
        fragments = [fragment for _, fragment in self._fragments(variables)]
        are_in = [tf.equal(self._periods_of(fragment), period) for fragment in fragments]
        return tf.reduce_all(tf.concat(are_in, 0)) if fragments else tf.constant(True)

    def _period(self, variables):
        """Returns what "period_of" is in the periods of a list of variables."""
        names = "\n".join(self._residuals.names(variables))
        return tf.constant(1 + zlib.crc32(names.encode()), tf.int64)

    def _period_of(self, variable):
        return self._residuals.shared(variable, "period_of", (), tf.int64)

    def _periods_of(self, variables):
        """Returns "period_of" of variables, 0 for those in none."""
        return tf.maximum([self._period_of(v).read_value() for v in variables], 0)

    def _end_step(self, variables):
        ids = _ids(variables)
        if not ids:
            return
        if ids[0] not in self._begun or ids not in self._run:
            raise ValueError(
                "outer_step must get the variables whose gradients reduce_gradients was given in "
                "this step, all of them and in that order"
            )
        for id_ in ids:
            self._begun.pop(id_, None)
        self._reduced.difference_update(ids)
        counter = self._counter(variables)
        # A graph goes on beside the check at the step's beginning.
        may_step = self._may_step(variables, self._inner_steps(variables))
        with tf.device(self._device):
            steps = counter.assign_add(tf.cast(may_step, tf.int64)) - self._diloco.start_step
        for offset, fragment in self._fragments(variables):
            is_due = (steps > 0) & tf.equal(steps % self._diloco.inner_steps, offset)
            tf.cond(
                may_step & is_due,
                functools.partial(self._outer_step, fragment),
                lambda: (),
            )
        if self._diloco.fragments == 1:
            # From an outer step of all on, a program may have periods of another length.
            in_period = tf.where(steps > 0, steps % self._diloco.inner_steps, steps)
            counter.assign(in_period + self._diloco.start_step)

    def _synchronize(self, variables, lists):
        for trained in lists:
            self._end_period(trained)
        check = tf.debugging.Assert(self._are_in(variables, 0), [_OTHER_PERIOD])
        with tf.control_dependencies([check]):
            for trained in lists:
                left = tf.minimum(self._inner_steps(trained), 0)
                self._counter(trained).assign(left + self._diloco.start_step)

    def _end_period(self, variables):
        """Takes the outer steps of a list, but for fragments within a period of others, or none."""
        steps = self._inner_steps(variables)
        period = self._period(variables)
        for _, fragment in self._fragments(variables):
            are_own = tf.reduce_all(tf.equal(self._periods_of(fragment), period))
            is_due = are_own & tf.not_equal(steps, 0)
            tf.cond(is_due, functools.partial(self._outer_step, fragment), lambda: ())
            # Also where its first step was left out.
            for marker in map(self._period_of, fragment):
                marker.assign(tf.where(are_own, tf.cast(_BETWEEN, tf.int64), marker.read_value()))

    def _counter(self, variables):
        return self._residuals.shared(variables[0], "inner_steps", (), tf.int64)

    def _inner_steps(self, variables):
        """Returns how many inner steps are counted; before `start_step` less than 0."""
        return self._counter(variables).read_value() - self._diloco.start_step

    def _lists_of(self, variables):
        """Returns those of the steps so far that have none but these variables, in this order.

        Keras may leave out variables that have no gradient. A period that was restored was of all
        of them, unless a step since then has had others.
        """
        by_id = dict(zip(_ids(variables), variables, strict=True))
        lists = [
            [by_id[id_] for id_ in ids]
            for ids in self._lists
            if ids == tuple(id_ for id_ in by_id if id_ in ids)
        ]
        return [*lists, list(variables)] if self._are_restored(variables) else lists

    def _are_restored(self, variables):
        """Whether all have what they were when a period began, in an earlier program."""
        ids = set(_ids(variables))
        if not ids or any(not (ids.isdisjoint(o) or ids > set(o)) for o in self._lists):
            return False
        return all(
            self._residuals.has_shared(v, "outer_variable")
            for v in variables
            if unwrap(v).dtype.base_dtype in GRADIENT_DTYPES
        )

    def _period_begins(self, steps, offset):
        """Whether the variables of a fragment have had no inner step since their outer one."""
        at_an_outer_step = (steps > 0) & tf.equal(steps % self._diloco.inner_steps, offset)
        return tf.equal(steps, 0) | at_an_outer_step

    def _fragments(self, variables):
        """Returns pairs of the step in the period with which a fragment ends it, and the fragment.

        TensorFlow reduces the gradients of variables of other types in each step.
        """
        variables = [v for v in variables if unwrap(v).dtype.base_dtype in GRADIENT_DTYPES]
        sizes = [unwrap(v).shape.num_elements() for v in variables]
        count, total = self._diloco.fragments, max(1, sum(sizes))
        fragments = [[] for _ in range(count)]
        before = 0
        for variable, size in zip(variables, sizes, strict=True):
            middle = before + size / 2
            fragments[min(count - 1, int(count * middle / total))].append(variable)
            before += size
        steps = self._diloco.inner_steps
        offsets = [steps * (i + 1) // count % steps for i in range(count)]
        return [(o, f) for o, f in zip(offsets, fragments, strict=True) if f]

    def _remember(self, variables, period, steps):
        begun = self._periods_of(variables)
        # A step that was left out, as loss scaling does, has begun its period, and ended nothing.
        again = tf.equal(steps, 0) | (self._diloco.fragments > 1)
        is_free = tf.equal(begun, 0) | (again & tf.equal(begun, period))
        check = tf.debugging.Assert(tf.reduce_all(is_free), [_OTHER_PERIOD])
        with tf.control_dependencies([check]):
            for variable in variables:
                value = _copies(variable)[0].read_value()
                with tf.device(self._device):
                    self._slot(variable, "outer_variable").assign(tf.cast(value, tf.float32))
                    self._period_of(variable).assign(period)
        return ()

    def _outer_step(self, variables):
        with tf.device(self._device):
            before = [self._slot(v, "outer_variable").read_value() for v in variables]
            # Keras 3 applies constraints behind the step's end.
            gradients = [
                value - tf.cast(_constrained(v, _copies(v)[0].read_value()), tf.float32)
                for value, v in zip(before, variables, strict=True)
            ]
            if self._workers > 1:
                counter = self._outer_counter(variables)
                gradients = self._reducer.reduce(gradients, variables, "MEAN", counter)
            else:
                pairs = zip(gradients, variables, strict=True)
                restored = self._residuals.deliver_restored(list(pairs), "MEAN", OUTER_RESIDUAL)
                gradients = [gradient for gradient, _ in restored]
            for variable, value, gradient in zip(variables, before, gradients, strict=True):
                self._update(variable, value, gradient)
        return ()

    def _outer_counter(self, variables):
        # A fragment may begin with variables that are counted with those of another one.
        def has_none(variable):
            return not self._residuals.has_shared(variable, OUTER_STEPS)

        return self._residuals.counter(sorted(variables, key=has_none), OUTER_STEPS)

    def _update(self, variable, value, gradient):
        slot = self._slot(variable, "outer_momentum")
        momentum = slot.read_value()
        new, new_momentum = self._diloco.outer_optimizer.update(value, gradient, momentum)
        # The same on all workers, as all have the same bits.
        finite = tf.reduce_all(tf.math.is_finite(new))
        slot.assign(tf.where(finite, new_momentum, momentum))
        new = _constrained(variable, tf.where(finite, new, value))
        for copy in _copies(variable):
            copy.assign(tf.cast(new, copy.dtype))
        self._period_of(variable).assign(_BETWEEN)

    def _slot(self, variable, slot):
        return self._residuals.shared(variable, slot, unwrap(variable).shape)


def _constrained(variable, value):
    constraint = getattr(variable, "constraint", None)
    return constraint(value) if constraint else value


def _dense(gradients):
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _ids(variables):
    return tuple(unwrap(v)._unique_id for v in variables)


def _copies(variable):
    """Returns the variables of this worker's devices that a variable stands for."""
    container = unwrap(variable)
    return getattr(container, "values", (container,))
