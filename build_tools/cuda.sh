#!/usr/bin/env bash
# Compiles the GPU kernels into libtf_gc_ops.so, where there is nvcc, and checks
# that the library loads: that needs no GPU. What is compiled here serves the
# build without CUDA too, but for a few files.
set -euo pipefail
cd "$(dirname "$0")/.."

toolkit="${CUDA_TOOLKIT_PATH:-}"
for nvcc in /usr/local/cuda/bin/nvcc /usr/local/cuda*/bin/nvcc; do
  [ -n "$toolkit" ] || [ ! -x "$nvcc" ] || toolkit="$(dirname "$(dirname "$nvcc")")"
done
if [ -z "$toolkit" ] && command -v nvcc >/dev/null; then
  # nvcc may be a link or a script elsewhere: it knows its toolkit itself.
  toolkit="$(nvcc -dryrun -x cu -c /dev/null -o /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')"
fi
if [ -z "$toolkit" ]; then
  echo "No nvcc in /usr/local/cuda*/bin or PATH: the GPU kernels are not compiled."
  exit
fi

build() {
  bazel build --config=cuda --repo_env=CUDA_TOOLKIT_PATH="$toolkit" //ops:libtf_gc_ops.so
}
# nvcc 13.0 was seen to end at once, with "Host compiler targets unsupported OS", for a command that
# succeeded when it was repeated.
build || build
.venv/bin/python - <<'END'
import tensorflow as tf
from tensorflow.python.framework import kernels

tf.load_op_library("bazel-bin/ops/libtf_gc_ops.so")
on_gpu = {
    kernel.op
    for kernel in kernels.get_all_registered_kernels().kernel
    if kernel.op.startswith("TfGc>") and kernel.device_type == "GPU"
}
print(f"{len(on_gpu)} ops have a GPU kernel: {', '.join(sorted(on_gpu))}")
assert on_gpu
END
