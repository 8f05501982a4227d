#!/usr/bin/env python3
"""Checks and times the CUDA kernels on a GPU; needs nvcc, g++ and NumPy only.

Compiles ops/cuda and ops/kernels, runs every CUDA kernel on fresh random inputs
of many sizes, compares its outputs bit for bit with the CPU's kernels, and then
times it on a large input. The table says for each kernel

  bytes     what must move at least: inputs read once, outputs written once
  time      median of the runs, by the GPU's clock
  GB/s      bytes / time
  of copy   GB/s as a fraction of what a copy from device memory to device
            memory moves, reads and writes counted, measured in the same run

tools/gpu_checks holds the checks: for each family of kernels a Python file, with
a function `checks`, and a C++ file that gives the CPU's kernels C names.
"""

import argparse
import concurrent.futures
import ctypes
import glob
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKS = ROOT / "tools" / "gpu_checks"

# As ops/kernels/BUILD compiles the files of each instruction set.
INSTRUCTION_SETS = {
    "baseline": ["-march=x86-64-v2"],
    "avx2": ["-march=x86-64-v3"],
    "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}

SMALL_SIZES = [*range(0, 70), 127, 128, 129, 255, 256, 300, 1000, 4095, 4096, 4097]
MEDIUM_SIZES = [10239, 10240, 10241, 65536, 100003, 1 << 20, 3_000_017]


def main():
    arguments = parse_arguments()
    libraries = build(arguments)
    if arguments.build_only:
        print("compiled and loaded: run without --build-only where there is a GPU")
        return 0
    device = Device(libraries.cudart)
    print(f"{device.name()}, seed {arguments.seed}", flush=True)
    session = Session(libraries, device, arguments.seed)
    families = [importlib.import_module(f"gpu_checks.{name}") for name in arguments.families]
    wrong = sum(
        check_family(session, family, size)
        for family in families
        for size in ([] if arguments.time_only else SMALL_SIZES + MEDIUM_SIZES)
    )
    print(f"{session.compared} outputs compared, {wrong} differ", flush=True)
    if not arguments.check_only:
        wrong += time_families(session, families, arguments.values, arguments.repeats)
    return 1 if wrong else 0


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--architecture", default="90", help="of the GPU, as in sm_90 (default: %(default)s)"
    )
    parser.add_argument("--nvcc", default=None, help="default: that of PATH or /usr/local/cuda*")
    parser.add_argument(
        "--build-only", action="store_true", help="compile and load the libraries: needs no GPU"
    )
    parser.add_argument(
        "--families",
        nargs="+",
        choices=family_names(),
        default=family_names(),
        help="files of tools/gpu_checks (default: all)",
    )
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--check-only", action="store_true", help="do not time the kernels")
    parts.add_argument(
        "--time-only",
        action="store_true",
        help="check the outputs of the large input alone, as under a profiler",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=int.from_bytes(os.urandom(4), "little"),
        help="of the random inputs, to repeat a run (default: a fresh one, which is printed)",
    )
    parser.add_argument(
        "--values",
        type=int,
        default=(1 << 27) + 4,
        help="in the tensors that are timed (default: %(default)s)",
    )
    parser.add_argument(
        "--repeats", type=int, default=20, help="timed runs of a kernel (default: %(default)s)"
    )
    return parser.parse_args()


# ---- Building ----------------------------------------------------------------


class Libraries:
    """The compiled kernels, and the CUDA runtime that they use."""

    def __init__(self, cpu, cuda, cudart):
        self.cudart = ctypes.CDLL(str(cudart), mode=ctypes.RTLD_GLOBAL)
        # The functions that queue CUDA kernels call some of the CPU's.
        self.cpu = ctypes.CDLL(str(cpu), mode=ctypes.RTLD_GLOBAL)
        self.cuda = ctypes.CDLL(str(cuda))


def build(arguments):
    nvcc = find_nvcc(arguments.nvcc)
    cudart = find_cudart(nvcc)
    directory = ROOT / "build" / "gpu_check"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    architecture = arguments.architecture
    commands = []  # (object, command)
    for source in sorted((ROOT / "ops" / "cuda").glob("*.cu")):
        code = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
        commands.append(
            (
                directory / f"cuda_{source.stem}.o",
                [nvcc, "-O3", "-std=c++17", "-fmad=false", "-Xcompiler=-fPIC", code, "-I."],
                source,
            )
        )
    flags = ["g++", "-O3", "-std=c++17", "-fPIC", "-ffp-contract=off", "-Wno-psabi", "-I."]
    for source in sorted((ROOT / "ops" / "kernels").glob("*.cc")):
        if not source.stem.endswith("_simd"):
            commands.append((directory / f"cpu_{source.stem}.o", flags, source))
            continue
        for name, options in INSTRUCTION_SETS.items():
            commands.append(
                (
                    directory / f"cpu_{source.stem}_{name}.o",
                    [*flags, *options, f"-DTF_GC_INSTRUCTION_SET={name}"],
                    source,
                )
            )
    for source in sorted(CHECKS.glob("*.cc")):
        commands.append((directory / f"cpu_check_{source.stem}.o", flags, source))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: run([*job[1], "-c", str(job[2]), "-o", str(job[0])]), commands))
    cuda = directory / "libcuda_kernels.so"
    objects = sorted(glob.glob(f"{directory}/cuda_*.o"))
    run([nvcc, "-shared", "-cudart=shared", "-o", str(cuda), *objects])
    cpu = directory / "libcpu_kernels.so"
    objects = sorted(glob.glob(f"{directory}/cpu_*.o"))
    run(["g++", "-shared", "-pthread", "-o", str(cpu), *objects])
    return Libraries(cpu, cuda, cudart)


def run(command):
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")


def find_nvcc(nvcc):
    for candidate in [nvcc] if nvcc else ["nvcc", *sorted(glob.glob("/usr/local/cuda*/bin/nvcc"))]:
        path = shutil.which(candidate)
        if path:
            return path
    sys.exit("no nvcc in PATH or /usr/local/cuda*/bin: pass --nvcc")


def find_cudart(nvcc):
    # nvcc may be a script or a link somewhere else: it knows its toolkit itself.
    command = [nvcc, "-dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull]
    dryrun = subprocess.run(command, capture_output=True, text=True).stderr
    toolkit = re.search(r"^#\$ TOP=(.*)$", dryrun, re.MULTILINE)
    if toolkit is None:
        sys.exit(f"{' '.join(command)} does not name its toolkit:\n{dryrun}")
    libraries = [
        pathlib.Path(toolkit[1].strip(), directory, "libcudart.so")
        for directory in ("lib64", "lib", "targets/x86_64-linux/lib")
    ]
    for library in libraries:
        if library.exists():
            return library.resolve()
    sys.exit(f"there is none of {', '.join(map(str, libraries))}")


# ---- The GPU -----------------------------------------------------------------


class Device:
    """The CUDA runtime, through ctypes. All work goes to the default stream."""

    def __init__(self, cudart):
        self._cudart = cudart
        cudart.cudaGetErrorString.restype = ctypes.c_char_p
        count = ctypes.c_int(0)
        error = cudart.cudaGetDeviceCount(ctypes.byref(count))
        if error or count.value == 0:
            reason = cudart.cudaGetErrorString(error).decode() if error else "none found"
            sys.exit(f"no GPU to run on: {reason} (--build-only needs none)")

    def call(self, name, *arguments):
        self.check(name, getattr(self._cudart, name)(*arguments))

    def check(self, name, error):
        if error:
            sys.exit(f"{name}: {self._cudart.cudaGetErrorString(error).decode()}")

    def name(self):
        properties = ctypes.create_string_buffer(16384)  # begins with the name
        self.call("cudaGetDeviceProperties", properties, 0)
        return properties.value.decode()

    def allocate(self, size):
        pointer = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer):
        self.call("cudaFree", pointer)

    def copy(self, to, source, size):
        """Between any two addresses of the host and the device."""
        kind = 4  # cudaMemcpyDefault
        self.call("cudaMemcpy", to, source, ctypes.c_size_t(size), kind)

    def synchronize(self):
        self.call("cudaDeviceSynchronize")

    def milliseconds(self, work, repeats):
        """The median time that the GPU takes for work()."""
        events = [ctypes.c_void_p() for _ in range(2)]
        for event in events:
            self.call("cudaEventCreate", ctypes.byref(event))
        times = []
        for turn in range(repeats + 3):
            self.call("cudaEventRecord", events[0], None)
            work()
            self.call("cudaEventRecord", events[1], None)
            self.call("cudaEventSynchronize", events[1])
            elapsed = ctypes.c_float()
            self.call("cudaEventElapsedTime", ctypes.byref(elapsed), *events)
            if turn >= 3:  # after warming up
                times.append(elapsed.value)
        for event in events:
            self.call("cudaEventDestroy", event)
        return float(np.median(times))

    def copy_rate(self, repeats, size=1 << 30):
        """Bytes read and written in a second by a copy inside device memory."""
        source, to = self.allocate(size), self.allocate(size)
        kind = 3  # cudaMemcpyDeviceToDevice
        milliseconds = self.milliseconds(
            lambda: self.call("cudaMemcpyAsync", to, source, ctypes.c_size_t(size), kind, None),
            repeats,
        )
        self.free(source)
        self.free(to)
        return 2 * size / (milliseconds / 1e3)


class Array:
    """An array in device memory, `misalignment` bytes behind an aligned address.

    Bytes before and behind it are guards: a kernel must leave them alone.
    """

    GUARD = 0xA5
    GUARD_SIZE = 256

    def __init__(self, device, host, misalignment=0):
        self._device = device
        self._dtype, self._size = host.dtype, host.size
        self._begin = self.GUARD_SIZE + misalignment
        self._base = device.allocate(self._begin + host.nbytes + self.GUARD_SIZE)
        self.pointer = ctypes.c_void_p(self._base.value + self._begin)
        self.assign(host)

    def assign(self, host):
        data = np.full(self._begin + host.nbytes + self.GUARD_SIZE, self.GUARD, np.uint8)
        data[self._begin : self._begin + host.nbytes] = host.reshape(-1).view(np.uint8)
        self._device.copy(self._base, data.ctypes.data_as(ctypes.c_void_p), data.nbytes)

    def read(self):
        """The values; exits if a guard has changed."""
        nbytes = self._size * self._dtype.itemsize
        data = np.empty(self._begin + nbytes + self.GUARD_SIZE, np.uint8)
        self._device.copy(data.ctypes.data_as(ctypes.c_void_p), self._base, data.nbytes)
        guards = np.concatenate([data[: self._begin], data[self._begin + nbytes :]])
        if (guards != self.GUARD).any():
            sys.exit("a kernel wrote outside its output")
        return data[self._begin : self._begin + nbytes].view(self._dtype)

    def __del__(self):
        self._device.free(self._base)


# ---- Checks ------------------------------------------------------------------


class Session:
    """What the checks of the families use."""

    def __init__(self, libraries, device, seed):
        self.random = np.random.default_rng(seed)
        self.device = device
        self.compared = 0
        self._libraries = libraries

    def upload(self, host, misalignment=0):
        return Array(self.device, np.ascontiguousarray(host), misalignment)

    def room_for(self, host, misalignment=0):
        """Device memory for an output like `host`, filled with something else."""
        return self.upload(np.full(host.nbytes, 0x5A, np.uint8).view(host.dtype), misalignment)

    def result(self, dtype=np.int64):
        return self.upload(np.full(1, 77, dtype))

    def workspace(self, name, *arguments):
        """That of tf_gc_cuda_`name`_workspace_size(*arguments)."""
        function = getattr(self._libraries.cuda, f"tf_gc_cuda_{name}_workspace_size")
        function.restype = ctypes.c_int64
        return self.upload(np.zeros(function(*map(_argument, arguments)), np.uint8))

    def cuda(self, name, *arguments):
        """Queues tf_gc_cuda_`name`, on the default stream."""
        function = getattr(self._libraries.cuda, f"tf_gc_cuda_{name}")
        self.device.check(name, function(*map(_argument, arguments), None))

    def cpu(self, name, *arguments):
        """Calls tf_gc_cpu_`name`, and returns its 64-bit result, if it has one."""
        function = getattr(self._libraries.cpu, f"tf_gc_cpu_{name}")
        function.restype = ctypes.c_int64
        return function(*map(_argument, arguments))


def _argument(value):
    """A ctypes argument: arrays are pointers, integers have 64 bits, floats 32."""
    if isinstance(value, Array):
        return value.pointer
    if isinstance(value, np.ndarray):
        return value.ctypes.data_as(ctypes.c_void_p)
    if isinstance(value, float | np.floating):
        return ctypes.c_float(value)
    if isinstance(value, int | np.integer):
        return ctypes.c_uint64(int(value) & (2**64 - 1))
    return value


class Check:
    """One kernel on one input.

    kernel, arguments: of tf_gc_cuda_`kernel`, without the stream; after the first
      call others may change the outputs further.
    expected: pairs of an output's Array and what it must hold after the first
      call: all of it, or its first values.
    moves: the bytes that must move; without them the kernel is not timed.
    note: what tells this check from others of the kernel.
    """

    def __init__(self, kernel, arguments, expected, moves=None, note=""):
        self.kernel = kernel
        self.arguments = arguments
        self.expected = expected
        self.moves = moves
        self.name = f"{kernel}, {note}" if note else kernel

    def differences(self):
        """What is wrong after the first call of work()."""
        for k, (array, expected) in enumerate(self.expected):
            expected = np.asarray(expected)
            got = array.read()[: expected.size]
            different = np.flatnonzero(_bits(got) != _bits(expected.reshape(-1)))
            if different.size:
                i = different[0]
                yield (
                    f"output {k}: {different.size} of {expected.size} differ, first at {i}: "
                    f"{got[i]!r} instead of {expected.reshape(-1)[i]!r}"
                )


def _bits(values):
    return values.view(f"u{values.dtype.itemsize}")


def check_family(session, family, size):
    """Compares the outputs of all kernels for one size; returns how many differ."""
    wrong = 0
    for check in family.checks(session, size):
        wrong += _run_check(session, check, size)
    return wrong


def _run_check(session, check, size):
    session.cuda(check.kernel, *check.arguments)
    session.device.synchronize()
    session.compared += len(check.expected)
    differences = list(check.differences())
    for difference in differences:
        print(f"{check.name} of {size}: {difference}", flush=True)
    return len(differences)


def time_families(session, families, size, repeats):
    """Prints the table; returns how many outputs differ."""
    wrong = 0
    copy_rate = session.device.copy_rate(repeats)
    print(f"copy in device memory: {copy_rate / 1e9:.0f} GB/s, tensors of {size} values")
    print(f"{'kernel':<44}{'MB':>9}{'ms':>10}{'GB/s':>8}{'of copy':>9}", flush=True)
    for family in families:
        for check in family.checks(session, size):
            wrong += _run_check(session, check, size)
            if check.moves is None:
                continue
            milliseconds = session.device.milliseconds(
                lambda c=check: session.cuda(c.kernel, *c.arguments), repeats
            )
            rate = check.moves / (milliseconds / 1e3)
            print(
                f"{check.name:<44}{check.moves / 1e6:>9.1f}{milliseconds:>10.4f}"
                f"{rate / 1e9:>8.0f}{rate / copy_rate:>9.2f}",
                flush=True,
            )
    return wrong


def family_names():
    return sorted(path.stem for path in CHECKS.glob("*.py") if path.stem != "__init__")


if __name__ == "__main__":
    # The families import this file's classes.
    sys.modules["gpu_check"] = sys.modules["__main__"]
    sys.path.insert(0, str(ROOT / "tools"))
    sys.exit(main())
