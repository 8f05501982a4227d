"""Lines in the log for what a checkpoint lacks, for what nobody takes from it, and for names."""

from absl import logging


def is_restored(*variables):
    """Whether a checkpoint had one of these, which stand for the same variable."""
    return any(getattr(variable, "_update_uid", -1) >= 0 for variable in variables)


def report(fresh, count, unused):
    """Logs, in one line, if there is something to say.

    Args:
      fresh: names of residuals that the checkpoint has not got.
      count: how many residuals there are.
      unused: names of those that it has and no variable has taken.
    """
    found = []
    if fresh:
        names = ", ".join(fresh) if len(fresh) < count else "any variable"
        found.append(f"no residuals for {names}, which begin at 0")
    if unused:
        found.append(f"residuals that no variable has taken so far: {', '.join(sorted(unused))}")
    if found:
        logging.warning("tf_gc: the checkpoint has %s", "; and it has ".join(found))


def report_without_compression():
    """Logs that all residuals are left out."""
    logging.warning(
        "tf_gc: the checkpoint has residuals, gradients that were not delivered yet, and this "
        "program, which compresses nothing, leaves them out"
    )


def report_equal_names(names):
    """Logs which variables another order of reductions would mistake for each other."""
    logging.warning(
        "tf_gc: several variables are called %s: checkpoints tell them apart by the order in which "
        "they are first reduced; give them names of their own",
        ", ".join(sorted(names)),
    )
