"""Auto: the system, collective and ratio that suit the network, the machine and the model."""

import dataclasses
import functools
import importlib.util
import os
from types import NoneType

import tensorflow as tf

from tf_gc import checks
from tf_gc.adaptive.ratio_search import CANDIDATES
from tf_gc.compressors import companions
from tf_gc.compressors.ar_top_k import ARTopK
from tf_gc.compressors.compressor import Compressor
from tf_gc.compressors.fused import FusedCompressor
from tf_gc.compressors.scale_com import ScaleCom
from tf_gc.compressors.thc import THC
from tf_gc.compressors.three_lc import ThreeLC
from tf_gc.compressors.uncompressed import Uncompressed

__all__ = ["Auto"]


@dataclasses.dataclass(frozen=True)
class Auto(Compressor):
    """Chooses among systems, for each bucket, by the network, and goes on choosing.

    Workers measure their links and what systems compute; a model of what each system takes ranks
    them; those that may be the best are used for some steps each, which train as all others do,
    and are measured. The fastest is taken, or one that changes gradients less, where this takes
    no longer. It begins anew when the network changes. All workers choose the same in the same
    step, without tracing anything again. AR-Topk's collective follows from the model (Tyagi, Swany:
    "Flexible Communication for Optimal Distributed Learning over Unpredictable Networks", IEEE
    Big Data 2023, equation 5): a ring or a tree, as there, or a sharded server, which has two hops
    for any number of workers. Its ratio is the knee between what compression takes, what
    communication takes, and the compression gain (equation 6).

    All systems share the residuals, so that what one has not delivered the next one does:

        gradients + old residuals = delivered + new residuals

    but for what rounding takes from uncompressed float16 and bfloat16, as without tf_gc. Which
    steps have which system depends on times, and so do the bits of the results.

    Attributes:
      systems: what to choose from: compressors that keep nothing but a residual, and None for no
        compression. By default None, `THC()` and `ThreeLC()`, which train well with every
        optimizer.
      ratios: what AR-Topk may send, in (0, 1], in descending order; () for no AR-Topk. By default
        the paper's 0.1 ... 0.001 for optimizers that do not square gradients, where pymoo is
        installed (the extra `adaptive`), which finds the ratio, and no `systems` are given; else
        ().
      record: a file to which worker 0 writes what was measured and chosen, for `tf_gc-launch
        report`, in a folder that exists; None for none. Where variables are chosen for separately,
        as those of two optimizers, the others' files have numbers: run.json, run-1.json. Not on
        parameter servers, where it chooses once.

    Raises:
      ValueError: an attribute is out of range, or `ratios` are given and pymoo is not installed;
        or, when a training begins, op determinism is enabled, which choices by time cannot give.
      OSError, ImportError: when it begins, on worker 0: the record cannot be written, or pymoo not
        be imported. On all others it is a `RuntimeError` that says so.
    """

    systems: tuple[Compressor | None, ...] | None = None
    ratios: tuple[float, ...] | None = None
    # Not in the repr, by which workers compare what they were given: worker 0 alone writes.
    record: str | os.PathLike | None = dataclasses.field(default=None, repr=False)

    shares_second_moment = True
    spreads_errors = True  # as THC does
    units = "second_moment"

    def __post_init__(self):
        super().__post_init__()
        for name in ("systems", "ratios"):
            _make_tuple(self, name)
        for system in self.systems or ():
            _check_system(system)
        for ratio in self.ratios or ():
            checks.number("ratios", ratio, "in (0, 1]", lambda r: 0 < r <= 1)
        for name in ("systems", "ratios"):
            values = getattr(self, name) or ()
            if len(set(values)) != len(values):
                raise ValueError(f"{name} must differ, got {values!r}")
        if self.ratios and not importlib.util.find_spec("pymoo"):
            raise ValueError("ratios: the search needs pymoo: pip install 'tf-gc[adaptive]'")
        if list(self.ratios or ()) != sorted(self.ratios or (), reverse=True):
            raise ValueError(f"ratios must be in descending order, got {self.ratios!r}")
        if not isinstance(self.record, (str, os.PathLike, NoneType)):
            raise ValueError(f"record must be a path or None, got {self.record!r}")
        if self.systems == () and not self.ratios:
            raise ValueError("systems must name at least one, or None for no compression, got ()")

    def candidates(self, squares: bool) -> tuple[Compressor, ...]:
        """Returns the systems, and AR-Topk with each collective, to choose from.

        Args:
          squares: whether the optimizer squares gradients.
        """
        systems = (None, THC(), ThreeLC()) if self.systems is None else self.systems
        fixed = (Uncompressed() if system is None else system for system in systems)
        topologies = ("ring", "tree", "sharded") if self.searched(squares) else ()
        return (*fixed, *(AnyRatio(topology=topology) for topology in topologies))

    def searched(self, squares: bool) -> tuple[float, ...]:
        """Returns the ratios to choose from."""
        if self.ratios is not None:
            return self.ratios
        leaves_out = squares or self.systems is not None or not importlib.util.find_spec("pymoo")
        return () if leaves_out else CANDIDATES

    def all_reduce(self, gradients, exchange):
        index, systems = exchange.choice.index, list(exchange.choice.systems)
        if Uncompressed() in systems:
            index = tf.where(exchange.choice.delivers_all, len(systems), index)
            systems.append(_Remainder())
        branches = [
            functools.partial(_all_reduce, system, gradients, exchange) for system in systems
        ]
        return tf.switch_case(index, branches, name="system")


@dataclasses.dataclass(frozen=True)
class AnyRatio(ARTopK):
    """AR-Topk of one bucket, at the ratio that was chosen."""

    whole_model = False

    def __str__(self):
        return f"AR-Topk on a {self.topology}"

    def reduce(self, values, exchange):
        at_ratio = dataclasses.replace(self, ratio=lambda _: exchange.choice.ratio)
        return super(AnyRatio, at_ratio).reduce(values, exchange)

    def root(self, exchange):
        # In a step buckets have different ones: no link has the indices of all.
        return (exchange.take_turn() + exchange.choice.place) % exchange.workers


@dataclasses.dataclass(frozen=True)
class _Remainder(FusedCompressor):
    """Sums of all that there is, residuals too: the first uncompressed step."""

    carries_agreement = True

    def reduce(self, values, exchange):
        total = exchange.sum(values)
        exchange.choice.note_clean(tf.reduce_all(exchange.after(total).finite))
        return total, tf.zeros_like(values)


def _all_reduce(system, gradients, exchange):
    units = exchange.units if system.units == "second_moment" else None
    in_units = dataclasses.replace(exchange, units=units)
    return companions.all_reduce(system, gradients, in_units)


def _make_tuple(auto, name):
    value = getattr(auto, name)
    if isinstance(value, list):
        object.__setattr__(auto, name, tuple(value))
    elif not isinstance(value, (tuple, NoneType)):
        raise ValueError(f"{name} must be a tuple or None, got {value!r}")


def _check_system(system):
    if system is None:
        return
    if isinstance(system, ScaleCom) and system.beta != 1.0:
        raise ValueError(
            "systems must leave to each other what they have not sent, and tf_gc.ScaleCom keeps it "
            f"times beta, which must be 1.0, got {system!r}"
        )
    if (
        not isinstance(system, Compressor)
        or isinstance(system, Auto)
        or set(system.slot_shapes((2, 2))) != {"residual"}
        or system.start_step
    ):
        raise ValueError(
            "systems must be compressors with residuals and no other state or start_step, such as "
            f"tf_gc.ThreeLC(), and None, got {system!r}"
        )
