"""cuda_library: .cu files compiled by nvcc under --config=cuda, else nothing."""

load("@local_config_cuda//:defs.bzl", "CUDA_ENABLED", "NVCC", "NVCC_CODE")

_FLAGS = [
    "-O3",
    "-std=c++17",
    # A fused multiply-add would round differently from the kernels on the CPU.
    "-fmad=false",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra",
    "-I.",
]

def _cuda_objects_impl(ctx):
    headers = depset(
        ctx.files.hdrs,
        transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
    )
    objects = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file(source.basename[:-len(".cu")] + ".pic.o")
        ctx.actions.run(
            executable = NVCC,
            arguments = _FLAGS + NVCC_CODE.split(" ") + ["-c", source.path, "-o", object.path],
            inputs = depset([source], transitive = [headers]),
            outputs = [object],
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s with nvcc" % source.short_path,
            # nvcc names its temporary files by its process, which has the same number in each
            # sandbox. Only the working directory is not shared between sandboxes.
            env = dict(ctx.configuration.default_shell_env, TMPDIR = "."),
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
)

def cuda_library(name, srcs, hdrs, deps = []):
    """A cc_library of CUDA kernels and their headers, and another for tests.

    Without --config=cuda it has its headers alone, and needs no CUDA. The
    library `name`_emulated has the same kernels, compiled for the CPU with
    tests/cuda/emulator.

    Args:
      name: the library's name.
      srcs: .cu files.
      hdrs: headers, for the .cu files and for those who call them.
      deps: cc_libraries whose headers the .cu files include.
    """
    if CUDA_ENABLED:
        _cuda_objects(
            name = name + "_objects",
            srcs = srcs,
            hdrs = hdrs,
            deps = deps,
            visibility = ["//visibility:private"],
        )
    native.cc_library(
        name = name,
        srcs = [name + "_objects"] if CUDA_ENABLED else [],
        hdrs = hdrs,
        linkstatic = True,
        deps = deps + ["@local_config_cuda//:cudart_static"],
    )

    # cc_library takes no .cu files: each is included by a file of its own.
    for source in srcs:
        native.genrule(
            name = source + "_emulated",
            testonly = True,
            srcs = [source],
            outs = [source[:-len(".cu")] + "_emulated.cc"],
            cmd = "echo '#include \"$<\"' > $@",
            visibility = ["//visibility:private"],
        )
    native.cc_library(
        name = name + "_emulated",
        testonly = True,
        srcs = [source + "_emulated" for source in srcs],
        hdrs = hdrs,
        copts = [
            # As nvcc has it: no fused multiply-add.
            "-ffp-contract=off",
            # "#pragma unroll" is nvcc's.
            "-Wno-unknown-pragmas",
        ],
        linkstatic = True,
        textual_hdrs = srcs,
        deps = deps + ["//tests/cuda/emulator"],
    )
