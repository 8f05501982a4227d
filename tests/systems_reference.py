"""The five systems written slowly from their papers, for tests to compare with.

Each class holds the state of all workers, and does one step on all of them:

    total, residuals = system.step(gradients)

`gradients` are float32 [workers, n]: of one bucket's variables, one after the
other. Random numbers are those of the ops: the streams and what is drawn from
them are part of the contract.
"""

import hashlib
import itertools

import numpy as np

from tests import philox_reference, signs_reference

_F = np.float32


def seed(number, purpose, rank, names, step):
    """The Philox key and stream; `rank` is None for what all workers share."""
    who = "all workers" if rank is None else f"worker {rank}"
    text = "\0".join([str(number), purpose, who, *names])
    key = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(key, "little") % 2**63, step


class System:
    """Workers with residuals of zero, of whose last sum a part, `prediction`, is predicted."""

    def __init__(self, workers, sizes, names, prediction=0.0):
        self.workers = workers
        self.prediction = prediction
        self.sizes = sizes
        self.names = names
        self.size = sum(sizes)
        self.residuals = np.zeros([workers, self.size], _F)
        self.last = np.zeros(self.size, _F)
        self.steps = 0

    def step(self, gradients):
        predicted = self.prediction * self.last
        self.last, self.residuals = self.reduce(
            gradients + self.residuals + predicted / self.workers
        )
        self.steps += 1
        return self.last - predicted, self.residuals


class ThreeLC(System):
    """Section 3 of the paper, or the scale of the mean; every worker is the server of a shard."""

    def __init__(self, *arguments, sparsity_multiplier=None, mean_multiplier=3.0):
        super().__init__(*arguments)
        self.sparsity_multiplier = sparsity_multiplier
        self.mean_multiplier = mean_multiplier

    def reduce(self, values):
        bounds = [self.size // self.workers * r // 16 * 16 for r in range(self.workers)]
        bounds.append(self.size)
        total, residuals = np.zeros(self.size, _F), values.copy()
        # What a worker sends of a variable has one scale.
        sums = [np.zeros(bounds[r + 1] - bounds[r], _F) for r in range(self.workers)]
        begins = np.cumsum([0, *self.sizes])
        for worker in range(self.workers):
            own = slice(bounds[worker], bounds[worker + 1])
            remote = np.ones(self.size, bool)
            remote[own] = False
            for begin, end in itertools.pairwise(begins):
                sent = np.zeros(self.size, bool)
                sent[begin:end] = remote[begin:end]
                if sent.any():
                    decoded = self._quantize(values[worker, sent])
                    residuals[worker, sent] -= decoded
                    values[worker, sent] = decoded
        for server, sum_ in enumerate(sums):
            shard = slice(bounds[server], bounds[server + 1])
            for d in range(self.workers):
                sum_ += values[(server + d) % self.workers, shard]
            for begin, end in itertools.pairwise(begins):
                low, high = max(begin, shard.start), min(end, shard.stop)
                if low < high:
                    part = sum_[low - shard.start : high - shard.start]
                    total[low:high] = self._quantize(part)
                    residuals[server, low:high] = part - total[low:high]
        return total, residuals

    def _quantize(self, values):
        magnitudes = np.abs(values)
        if self.sparsity_multiplier is None:
            scale = min(_F(self.mean_multiplier) * magnitudes.mean(), magnitudes.max())
        else:
            scale = _F(self.sparsity_multiplier) * magnitudes.max()
        return scale * np.sign(values) * (np.abs(values) > scale / 2).astype(_F)


class THC(System):
    """Algorithm 3, in blocks of `block` values, with a table from elsewhere."""

    def __init__(self, *arguments, bits, table, t_p, block, rounding="stochastic"):
        super().__init__(*arguments)
        self.bits, self.t_p, self.block = bits, t_p, block
        self.rounding = rounding
        self.table = np.array(table)

    def reduce(self, values):
        granularity = self.table[-1]
        padded = np.pad(values, [(0, 0), (0, -self.size % self.block)])
        blocks = padded.reshape(self.workers, -1, self.block)
        norms = np.sqrt((blocks.astype(np.float64) ** 2).sum(axis=2)).max(axis=0)
        scales = (norms * self.t_p / np.sqrt(self.block))[:, np.newaxis]
        signs = self._signs(blocks[0].shape)
        levels = 2 * self.table / granularity - 1
        indices = np.stack(
            [
                self._quantize(hadamard(signs * x) / scales, levels, worker)
                for worker, x in enumerate(blocks)
            ]
        )
        lanes = self.table[indices].sum(axis=0)

        def decode(rotated):
            return (signs * hadamard(rotated)).ravel()[: self.size].astype(_F)

        total = decode(scales * (2 * lanes / granularity - self.workers))
        own = [decode(scales * levels[z]) for z in indices]
        return total, values - np.stack(own)

    def _signs(self, shape):
        words = philox_reference.words(
            seed(0, "signs", None, self.names, self.steps), -(-np.prod(shape) // 128)
        )
        bits = np.unpackbits(words.view(np.uint8).ravel(), bitorder="little")
        return 1.0 - 2.0 * bits[: np.prod(shape)].reshape(shape)

    def _quantize(self, values, levels, worker):
        stream = seed(0, "rounding", worker, self.names, self.steps)
        halves = philox_reference.halves(philox_reference.words(stream, -(-values.size // 8)))
        random = (halves[: values.size].reshape(values.shape) + 0.5) / 2**16
        if self.rounding == "nearest":
            random = 0.5
        clamped = np.clip(values, levels[0], levels[-1])
        lower = np.clip(np.searchsorted(levels, clamped, side="right") - 1, 0, len(levels) - 2)
        gaps = levels[lower + 1] - levels[lower]
        return lower + (clamped - levels[lower] > random * gaps)


def hadamard(rows):
    """The orthonormal Walsh-Hadamard transform of every row."""
    rows = np.array(rows, np.float64)
    half = 1
    while half < rows.shape[-1]:
        pairs = rows.reshape(len(rows), -1, 2, half)
        upper, lower = pairs[:, :, 0].copy(), pairs[:, :, 1].copy()
        pairs[:, :, 0], pairs[:, :, 1] = upper + lower, upper - lower
        half *= 2
    return rows / np.sqrt(rows.shape[-1])


def ahead(selected, overshoot):
    """What is delivered of each value beyond what has gathered."""
    magnitudes = np.abs(selected)
    return overshoot * np.minimum(magnitudes, magnitudes.mean()) * np.sign(selected)


class ARTopK(System):
    """Algorithm 1: one worker's top-k, for all."""

    def __init__(self, *arguments, count, selection, overshoot=0):
        super().__init__(*arguments)
        self.count, self.selection, self.overshoot = count, selection, overshoot

    def reduce(self, values):
        chosen = [np.argsort(-np.abs(v), kind="stable")[: self.count] for v in values]
        root = self.steps % self.workers
        if self.selection == "variance":
            root = np.argmax([(v[i] ** 2).sum() for v, i in zip(values, chosen, strict=True)])
        total, residuals = np.zeros(self.size, _F), values.copy()
        sums = values[:, chosen[root]].sum(axis=0)
        more = ahead(sums, self.overshoot)
        total[chosen[root]] = sums + more
        residuals[:, chosen[root]] = -more / self.workers
        return total, residuals


class TopK(System):
    """Every worker's own top-k; `counts` has one k for all, or one for each variable."""

    def __init__(self, *arguments, counts, overshoot=0):
        super().__init__(*arguments)
        self.counts, self.overshoot = counts, overshoot

    def reduce(self, values):
        total, residuals = np.zeros(self.size, _F), values.copy()
        sizes = self.sizes if len(self.counts) > 1 else [self.size]
        for worker, value in enumerate(values):
            begin, sent = 0, []
            for size, count in zip(sizes, self.counts, strict=True):
                part = value[begin : begin + size]
                sent.extend(begin + np.argsort(-np.abs(part), kind="stable")[:count])
                begin += size
            more = ahead(value[sent], self.overshoot)
            total[sent] += value[sent] + more
            residuals[worker, sent] = -more
        return total, residuals


class ScaleCom(System):
    """Algorithm 1: the leader's largest value of every chunk; low-pass filtered memory."""

    def __init__(self, *arguments, chunk, beta, overshoot=0, strided=False):
        super().__init__(*arguments)
        self.beta, self.overshoot = _F(beta), overshoot
        places, count = np.arange(self.size), -(-self.size // chunk)
        self.chunks = [
            places[i::count] if strided else places[i * chunk :][:chunk] for i in range(count)
        ]

    def reduce(self, values):
        leader = np.abs(values[self.steps % self.workers])
        chosen = [chunk[np.argmax(leader[chunk])] for chunk in self.chunks]
        total, sent = np.zeros(self.size, _F), np.zeros_like(values)
        sums = values[:, chosen].sum(axis=0)
        more = ahead(sums, self.overshoot)
        total[chosen] = sums + more
        sent[:, chosen] = values[:, chosen] + more / self.workers
        gradients = values - self.residuals
        return total, self.residuals + self.beta * (gradients - sent)


class Marsit(System):
    """Algorithm 1, on a torus of workers; one row is a ring."""

    def __init__(
        self,
        *arguments,
        rows=1,
        step_size="mean_abs",
        full_precision_every=100,
        mean_multiplier=1.0,
        prediction=0.0,
    ):
        super().__init__(*arguments, prediction)
        self.mean_multiplier = mean_multiplier
        self.rows, self.columns = rows, self.workers // rows
        self.step_size, self.full_precision_every = step_size, full_precision_every

    def reduce(self, values):
        if self.full_precision_every and self.steps % self.full_precision_every == 0:
            return values.sum(axis=0), np.zeros_like(values)
        bounds = [self.size // self.workers * r // 128 * 128 for r in range(self.workers)]
        bounds.append(self.size)
        bits = np.empty(self.size, np.uint8)
        for shard, (begin, end) in enumerate(itertools.pairwise(bounds)):
            bits[begin:end] = self._around((values >= 0).astype(np.uint8), shard, begin, end)
        share = self._step_sizes(values) * (2 * bits.astype(_F) - 1)
        return self.workers * share, values - share

    def _around(self, signs, shard, begin, end):
        """Merges a shard along every row, up to its column, then along that up to its row."""
        last_column, last_row = divmod(shard, self.rows)
        of_rows = []
        for row in range(self.rows):
            ranks = [
                row * self.columns + (last_column + i) % self.columns
                for i in range(1, self.columns + 1)
            ]
            merged = signs[ranks[0], begin:end]
            for count, rank in enumerate(ranks[1:], start=1):
                merged = self._merge(merged, signs[rank, begin:end], count, 1, rank, begin)
            of_rows.append(merged)
        rows = [(last_row + i) % self.rows for i in range(1, self.rows + 1)]
        merged = of_rows[rows[0]]
        for count, row in enumerate(rows[1:], start=1):
            rank = row * self.columns + last_column
            counts = count * self.columns, self.columns
            merged = self._merge(merged, of_rows[row], *counts, rank, begin)
        return merged

    def _merge(self, incoming, own, incoming_count, own_count, rank, begin):
        """Keeps the incoming bit where the transient vector is 1; equation 2."""
        key, stream = seed(0, "", None, self.names, self.steps)
        key = _mix(key ^ _mix(rank << 32 | incoming_count))
        size = -(-(begin + len(own)) // 8)
        words = philox_reference.words((key, stream), signs_reference.blocks(size))
        ones, zeros = np.full(size, 255, np.uint8), np.zeros(size, np.uint8)
        kept = signs_reference.merge(ones, zeros, incoming_count, own_count, words)
        kept = signs_reference.bits(kept)[begin : begin + len(own)]
        return np.where(kept == 1, incoming, own)

    def _step_sizes(self, values):
        if self.step_size != "mean_abs":
            return _F(self.step_size) / self.workers  # the reduction is a sum
        ends = np.cumsum(self.sizes)[:-1]
        means = [np.abs(part).mean() for part in np.split(values, ends, axis=1)]
        return self.mean_multiplier * np.repeat(np.array(means, _F), self.sizes)


def _mix(bits):
    """SplitMix64's finaliser."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return bits ^ bits >> 31
