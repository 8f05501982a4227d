# make train    sets up, then trains an example with and without compression
# make test     sets up, then runs the tests; ends with "N passed, N failed"
# CONTRIBUTING.md says what the other targets are for.

PYTHON := .venv/bin/python

.PHONY: setup train test test-long lint format fuzz sanitize cuda benchmark soak tutorials clusters \
  evaluate wheel wheels matrix clean

setup:
	@./setup.sh

train: setup
	@$(PYTHON) examples/compare.py

test: setup
	@$(PYTHON) build_tools/run_tests.py

# All tests, with the settings of systems and the variants of long tests that make test leaves out.
test-long: setup
	@bazel test --test_env=TF_GC_ALL_CASES=1 --test_env=TF_GC_FUZZ_EXAMPLES=150 //tests/... //tests:conformance_variants_test

lint: setup
	@build_tools/lint.sh

format: setup
	@build_tools/lint.sh --fix

fuzz: setup
	@tests/fuzz/run.sh 60

# ThreadSanitizer comes first: it is GCC's, as the tests before it; AddressSanitizer is clang's, as
# the fuzzers after it.
sanitize: setup
	@bazel test --config=tsan //tests/...
	@bazel test --config=asan //tests/...
	@bazel test --config=asan_python \
	  --test_env=LD_PRELOAD="$$(clang -print-file-name=libclang_rt.asan-x86_64.so):libstdc++.so.6" \
	  //tests/ops/... //tests/fuzz:gathered_fuzz_test

cuda: setup
	@build_tools/cuda.sh

benchmark: setup
	@build_tools/benchmark.sh

soak: setup
	@$(PYTHON) tests/soak.py

tutorials: setup
	@$(PYTHON) tests/tutorials/tutorials_test.py

clusters: setup
	@tests/cluster_guides/run.sh

evaluate: setup
	@$(PYTHON) examples/evaluate.py --docs docs
	@$(PYTHON) examples/evaluate_servers.py --docs docs
	@$(PYTHON) examples/study_adam.py --docs docs
	@$(PYTHON) examples/evaluate_adam.py --docs docs
	@$(PYTHON) examples/evaluate_adaptive.py --docs docs

wheel: setup
	@$(PYTHON) -m pip wheel -q --no-deps --no-build-isolation --wheel-dir dist .

# PAIRS="2.17-3.10 2.21-3.13" takes these pairs of a TensorFlow and a Python alone.
wheels: setup
	@$(PYTHON) build_tools/wheels.py $(PAIRS)

matrix: setup
	@$(PYTHON) build_tools/matrix.py $(PAIRS)

clean:
	rm -rf build dist results
	bazel clean
