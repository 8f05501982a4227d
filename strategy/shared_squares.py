"""The mean squares that workers share in a step, and what becomes of them: units, second moments.

Units are what compressors quantise in. They come from the steps before, so that all workers know
them. Second moments take the place of the squares of what was delivered, in optimizers.
"""

import tensorflow as tf
from tf_gc.strategy import second_moments
from tf_gc.strategy.entries import Entry
from tf_gc.strategy.statistics import Statistics, mean_squares, mean_squares_or_0

from tf_gc.branches import cond
from tf_gc.compressors import Uncompressed
from tf_gc.second_moments import DECAY, QUICK_DECAY


class SharedSquares:
    """Those of some entries' gradients.

    Attributes:
      entry: the one that is reduced with all others: the statistics of all, joined.
    """

    def __init__(self, entries, step, residuals, exchange):
        """Gives the entries their squares, and units to those whose compressors have them."""
        self._measured = [e for e in entries if e.compressor.units == "second_moment"]
        self._entries = [*self._measured, *(e for e in entries if e not in self._measured)]
        self._step = step
        self._workers = exchange.workers
        self._are_used = _are_used(self._entries, step.squares)
        variables = [entry.variable for entry in self._entries]
        first_others = len(self._measured)
        self._statistics = Statistics(variables[:first_others], variables[first_others:], residuals)
        gradients = [entry.gradient for entry in self._entries]
        wanted = True if self._are_used is None else self._are_used
        squares = mean_squares(gradients, variables, wanted)
        for entry, own in zip(self._entries, squares, strict=True):
            entry.squares = own
        for entry, units in zip(self._measured, self._statistics.units(), strict=True):
            entry.units = units
        self.entry = Entry(tf.concat(squares, 0), self._statistics, Uncompressed())

    def update(self, of_squares):
        """Lets units follow what was reduced of the squares."""
        corrected = list(map(_corrects, self._measured))
        self._statistics.update(
            of_squares, 1 / self._workers, _decay(self._measured), corrected, _age(self._measured)
        )

    def attach_moments(self, of_squares, reduced):
        """Gives sums the second moments that an optimizer takes in place of their squares.

        Args:
          of_squares: what was reduced of the squares.
          reduced: by entry what was reduced of the gradient.
        """
        sums = [reduced[entry] for entry in self._entries]
        # Where noise dominates, the sum of N gradients has the sum of their second moments.
        factor = 1.0 if self._step.reduce_op == "SUM" else 1 / self._workers**2
        agreed = _where(
            self._are_used,
            lambda: self._agreed(factor),
            lambda: tf.zeros(self._statistics.shape),
        )

        def shared_moments():
            moments = self._statistics.second_moments(of_squares, factor, agreed)
            is_new = tf.less(self._step.new_weight, 1)
            takes_squares = tf.reduce_any(tf.equal(of_squares, 0)) | is_new
            return [
                _second_moment(*of_variable, self._step, takes_squares)
                for of_variable in zip(self._entries, moments, sums, strict=True)
            ]

        # Not a branch that waits for the sums of all buckets: some are updated meanwhile.
        moments = _where(
            self._are_used, shared_moments, lambda: list(map(_square, sums)), branch=tf.cond
        )
        for entry, total, moment in zip(self._entries, sums, moments, strict=True):
            is_wanted = entry.compressor.shares_second_moment
            if is_wanted and second_moments.of(total) is None:
                second_moments.attach(total, moment)

    def _agreed(self, factor):
        """Returns what to add for what the workers agree in, which the optimizer's momentum has."""
        share = second_moments.share_of_first_moments(self._workers, self._step.weight) / factor
        firsts = [e.first_moment if _uses_first_moment(e) else None for e in self._entries]
        return share * mean_squares_or_0(firsts, [entry.variable for entry in self._entries])


def _second_moment(entry, moment, reduced, step, takes_squares):
    """Returns the second moment; that of what was not compressed is the square."""
    moment = tf.cond(
        takes_squares, lambda: _with_squares(moment, reduced, step.new_weight), lambda: moment
    )
    is_compressed = []
    if entry.compressor.start_step > 0:
        is_compressed.append(step.number >= entry.compressor.start_step)
    if entry.choice is not None:
        is_compressed.append(entry.choice.shares_second_moment)
    if not is_compressed:
        return moment
    return tf.cond(tf.reduce_all(is_compressed), lambda: moment, lambda: _square(reduced))


def _with_squares(moment, reduced, new_weight):
    """Returns a second moment that is positive, and large enough for a new optimizer.

    What was delivered has waited, or come in steps as large as its units, and may be far above the
    root of this step's moment, which in an optimizer's first steps is all that it has.
    """
    least = (1 - new_weight) * _square(reduced)
    return tf.maximum(second_moments.positive(moment, reduced), least)


def _square(reduced):
    return tf.square(tf.cast(reduced, tf.float32))


def _are_used(entries, squares):
    """Whether any entry's statistics are used in this step; None for always."""
    if any(entry.choice is None for entry in entries):
        return None
    choices = _choices(entries)
    used = [choice.has_units for choice in choices]
    if squares:
        used += [choice.shares_second_moment for choice in choices]
    return used[0] if len(used) == 1 else tf.reduce_any(used)


def _decay(entries):
    """Returns how much is kept in this step of what units come from, the same for all variables."""
    choices = _choices(entries)
    is_named = any(e.choice is None and e.compressor.units == "second_moment" for e in entries)
    if is_named or not choices:
        return DECAY
    are_fresh = tf.reduce_all([choice.has_fresh_units for choice in choices])
    return tf.where(are_fresh, QUICK_DECAY, DECAY)


def _age(entries):
    """Returns how many steps ago units were updated last."""
    if not entries or any(entry.choice is None for entry in entries):
        return 1  # in each step
    return tf.reduce_min([choice.second_moments_age for choice in _choices(entries)])


def _choices(entries):
    """Returns the `Choice`s of all buckets, each once."""
    known = {id(entry.choice): entry.choice for entry in entries if entry.choice is not None}
    return list(known.values())


def _uses_first_moment(entry):
    """Whether a variable's second moment has what the optimizer's momentum tells."""
    sharing = [system for system in entry.systems if system.shares_second_moment]
    return all(system.uses_first_moment for system in sharing)


def _corrects(entry):
    """Whether a variable's units are corrected for their bias."""
    return any(system.corrects_units for system in entry.systems)


def _where(condition, then, otherwise, branch=cond):
    return then() if condition is None else branch(condition, then, otherwise)
