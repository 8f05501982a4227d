"""Finds nvcc and the static CUDA runtime under --config=cuda; empty without."""

_TOOLKITS = ["/usr/local/cuda", "/usr/local/cuda-13.0", "/usr/local/cuda-12.9", "/usr/lib/cuda"]

def _find_toolkit(repository_ctx):
    toolkit = repository_ctx.os.environ.get("CUDA_TOOLKIT_PATH", "")
    for directory in [toolkit] if toolkit else _TOOLKITS:
        if repository_ctx.path(directory + "/bin/nvcc").exists:
            return directory
    fail("--config=cuda, but no bin/nvcc in %s: set CUDA_TOOLKIT_PATH" % (toolkit or _TOOLKITS))

def _cuda_configure_impl(repository_ctx):
    environ = repository_ctx.os.environ
    enabled = environ.get("TF_GC_CUDA", "0") == "1"
    toolkit = _find_toolkit(repository_ctx) if enabled else ""
    architectures = environ.get("TF_GC_CUDA_ARCHITECTURES", "80,90").split(",")
    code = ["-gencode arch=compute_%s,code=sm_%s" % (a, a) for a in architectures]
    code.append("-gencode arch=compute_{0},code=compute_{0}".format(architectures[-1]))
    repository_ctx.file("defs.bzl", """
CUDA_ENABLED = {enabled}
NVCC = "{toolkit}/bin/nvcc"
NVCC_CODE = "{code}"

def if_cuda(yes, no = []):
    return yes if CUDA_ENABLED else no
""".format(enabled = enabled, toolkit = toolkit, code = " ".join(code)))
    if not enabled:
        repository_ctx.file("BUILD", """
cc_library(
    name = "cudart_static",
    visibility = ["//visibility:public"],
)
""")
        return
    repository_ctx.symlink(toolkit + "/lib64/libcudart_static.a", "libcudart_static.a")
    repository_ctx.file("BUILD", """
cc_library(
    name = "cudart_static",
    srcs = ["libcudart_static.a"],
    linkopts = ["-ldl", "-lrt", "-pthread"],
    visibility = ["//visibility:public"],
)
""")

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_TOOLKIT_PATH", "TF_GC_CUDA", "TF_GC_CUDA_ARCHITECTURES"],
    local = True,
)
