"""Which system each bucket has in a step, where systems are chosen while an optimizer trains."""

from tf_gc.ops.library import library

__all__ = ["change_plan", "follow_plan", "plan", "read_plan", "timeline"]


def timeline(size, name=None):
    """Makes what the plans of one optimizer have in common.

    Args:
      size: int, of how many steps it knows when they have begun.
      name: Name of the op.

    Returns:
      A scalar resource handle.
    """
    return library.tf_gc_timeline(size=size, name=name)


def plan(
    timeline,
    keeps_residuals,
    has_units,
    delivers_late,
    buckets,
    start_step=0,
    squares=False,
    name=None,
):
    """Makes a plan: which of several systems each bucket has.

    At first it is the first one, and systems are being tried. The plan lives as long as its
    handle.

    Args:
      timeline: handle from `timeline`.
      keeps_residuals: list of bools, of each system whether something may wait after a step.
      has_units: list of bools, whether it compresses in units of the second moment.
      delivers_late: list of bools, whether values wait for several steps, and come in spikes.
      buckets: int, their number.
      start_step: int, before which nothing is chosen, and no report is due.
      squares: bool, whether the optimizer squares gradients.
      name: Name of the op.

    Returns:
      A scalar resource handle.

    Raises:
      tf.errors.InvalidArgumentError: the lists differ in length.
    """
    return library.tf_gc_plan(
        timeline,
        keeps_residuals=keeps_residuals,
        has_units=has_units,
        delivers_late=delivers_late,
        buckets=buckets,
        start_step=start_step,
        squares=squares,
        name=name,
    )


def follow_plan(plan, step, clean_versions, name=None):
    """Begins a step: notes when, and says what the plan is.

    Args:
      plan: handle from `plan`.
      step: int64 scalar, 0 before the optimizer's first; the same on all workers.
      clean_versions: list of int64 scalars, of each bucket that of the `residuals_versions` of
        which it is known that nothing waits on any worker; 0 for none.
      name: Name of the op.

    Returns:
      A named tuple. Lists of scalars, one for each bucket: int32 `choices`, the indices of
      systems; bool `has_units`, whether the system compresses in units; `shares_second_moment`,
      whether optimizers should not square what is delivered; `has_fresh_units`, whether units
      follow the gradients soon; `delivers_all`, whether it is not compressed, and residuals may
      wait; int64 `residuals_versions`, another number after each step that
      may have left something in residuals, never 0. Scalars: int64 `second_moments_age`, how
      many of the plan's steps ago they were used last, 1 if it is not known; float32 `ratio`, of
      systems without one of their own; bool `measures_links`, `reports` and `wants_gain`: what is
      to be done in this step.

    Raises:
      tf.errors.InvalidArgumentError: the plan is of another number of buckets.
    """
    return library.tf_gc_follow_plan(plan, step, clean_versions, name=name)


def change_plan(plan, step, decision, name=None):
    """Changes a plan from the next step on.

    Args:
      plan: handle from `plan`.
      step: int64 scalar, that of the reports which brought the decision.
      decision: float64 vector of a `tf_gc.adaptive.leader.Decision`, and the choices.
      name: Name of the op.

    Returns:
      The op (None when executing eagerly).

    Raises:
      tf.errors.InvalidArgumentError: a choice is of no system, or they are not as many as buckets.
    """
    return library.tf_gc_change_plan(plan, step, decision, name=name)


def read_plan(plan, name=None):
    """Reads a plan.

    Args:
      plan: handle from `plan`.
      name: Name of the op.

    Returns:
      A named tuple of vectors: int32 `choices`, of each bucket; float64 `times`, when steps with
      this plan have begun, in seconds, that of step s at s mod size, 0 for unknown; and
      `optimizer_times`, the same with all plans of the timeline.
    """
    return library.tf_gc_read_plan(plan, name=name)
