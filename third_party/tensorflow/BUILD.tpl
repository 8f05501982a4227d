package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/" + directory + "/**" for directory in [
            "Eigen",
            "absl",
            "google",
            "ml_dtypes",
            "tensorflow",
            "third_party",
            "tsl",
            "unsupported",
            "xla",
        ]] + [
            "include/external/**/*.h",
            "include/external/**/*.inc",
        ],
        exclude = [
            "include/**/*.py",
            "include/external/boringssl/**",
            "include/external/com_github_grpc_grpc/**",
            "include/external/curl/**",
            "include/external/envoy_api/**",
            "include/external/icu/**",
            "include/external/jpegxl/**",
            "include/external/llvm-project/**",
            "include/external/local_config_python/**",
            "include/external/onednn/**",
            "include/external/python_*/**",
            "include/external/stablehlo/**",
            "include/tensorflow/compiler/xla/**",
            "include/tensorflow/lite/**",
            "include/tensorflow/tsl/**",
        ],
    ),
    defines = ["EIGEN_MAX_ALIGN_BYTES=64"],
    includes = ["include"],
)

cc_import(
    name = "framework",
    shared_library = "libtensorflow_framework.so.2",
)

cc_library(
    name = "tensorflow",
    deps = [
        ":framework",
        ":headers",
    ],
)
