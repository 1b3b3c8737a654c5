# A thin front: every target is one command that also works alone. `make demo` and `make test` install what they need, once.
SHELL := /bin/bash
export PM_CACHE ?= $(HOME)/.cache/parallelmodel
preset ?= release
build := build/$(preset)

.PHONY: deps test-deps build demo test unit cuda rehearsal fuzz parity hub stress reliability manifests e2e bench image clean help
help:
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

deps:                     ## install compilers, libraries and LibTorch
	@tools/deps.sh build
test-deps:                ## also what the tests need: transformers, pytest, Prometheus
	@tools/deps.sh test

build: deps               ## the worker and the controller, in build/bin
	@cmake --preset $(preset) > $(PM_CACHE)/configure.log || { cat $(PM_CACHE)/configure.log; exit 1; }
	@cmake --build --preset $(preset)
	@ln -sfn $(preset)/bin build/bin

cluster:                  ## a real Kubernetes for one host, built once
	@tests/cluster/build.sh
	@tests/cluster/extras/build.sh kubescore
image: build cluster      ## both images as archives, without a builder
	@tests/cluster/image.sh worker $(build) $(build)/worker.tar
	@tests/cluster/image.sh controller $(build) $(build)/controller.tar

demo: image               ## a model cut over two ranks, asked over HTTP through a Kubernetes Service
	@tests/cluster/demo.sh $(build)

unit: build test-deps     ## GoogleTest through ctest, and the rules of the house
	@ctest --preset $(preset)
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/structure
cuda: test-deps           ## the GPU's kernels by nvcc, and all tests that want a GPU, skipped by name without one
	@tools/deps.sh cuda
	@cmake --preset cuda > $(PM_CACHE)/configure-cuda.log || { cat $(PM_CACHE)/configure-cuda.log; exit 1; }
	@cmake --build --preset cuda
	@ctest --preset cuda --verbose
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/gpu
rehearsal: build test-deps ## the tests that want a GPU on a pretended one; PM_GPU_REHEARSE=short for the first case of each
	@PM_GPU_REHEARSE=$${PM_GPU_REHEARSE:-1} $(PM_CACHE)/venv/bin/python -m pytest -q tests/gpu
fuzz: test-deps           ## ten minutes for each reader of strangers' files
	@tests/fuzz/run.sh 0 600
parity: build test-deps   ## against Hugging Face
	@$(PM_CACHE)/venv/bin/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile tests/parity
hub: build test-deps      ## downloads from a local hub that fails on purpose
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/hub
stress: build test-deps   ## 64 clients, leavers, lost ranks; PM_STRESS_SECONDS=120 for the thorough run
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/stress
reliability: build cluster test-deps ## the controller against a real API server that kills, errs and lags; KUBERNETES=oldest takes that of the oldest release
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/reliability
manifests: build cluster test-deps ## kube-score and kube-linter on what the chart and the controller make
	@PM_KUBELINTER=1 $(PM_CACHE)/venv/bin/python -m pytest -q tests/reliability/test_manifests.py
e2e: image test-deps      ## on a real Kubernetes
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/e2e
test:                     ## everything, with the time of each stage
	@tools/test.sh
bench: build test-deps    ## every number of the README
	@bench/run.sh
clean:                    ## what was built here; $(PM_CACHE) stays
	@rm -rf build
