# SPDX-License-Identifier: Apache-2.0
# A thin front: every target is one command that also works alone. `make demo` and `make test` install what they need, once.
SHELL := /bin/bash
export PM_CACHE ?= $(HOME)/.cache/parallelmodel
preset ?= release
build := build/$(preset)

.PHONY: deps test-deps lint-deps build build-tests cluster image image-cuda image-cuda-test image-test assembled-image demo test test-one unit lint fmt cuda rehearsal fuzz parity hub browser clients \
  stress reliability chart release release-test manifests e2e integrations bench bench-op run-controller clean help
help:
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 26

deps:                     ## install compilers, libraries and LibTorch
	@tools/deps.sh build
test-deps:                ## also what the tests need: transformers, pytest, Prometheus
	@tools/deps.sh test
lint-deps:                ## formatters and linters, pinned in tools/lint.txt
	@tools/deps.sh lint

build: deps               ## worker, controller and kubectl plugin, in build/bin
	@tools/build.sh $(preset) parallelmodel-worker parallelmodel-controller kubectl-pm
build-tests: deps         ## the programs, their unit tests and the fake device
	@tools/build.sh $(preset) all

cluster:                  ## a real Kubernetes for one host, built once
	@tests/cluster/build.sh
	@tests/cluster/extras/build.sh kubescore
image:                    ## worker, controller and kubectl plugin of the Dockerfile by buildah, in build/images
	@tools/image/build.sh build/images worker controller kubectl-pm
image-cuda:               ## the worker for GPUs, 2.2 GB
	@tools/image/build.sh build/images worker-cuda
image-cuda-test: build image-cuda test-deps ## what it holds, and that it answers on a machine without a GPU
	@PM_IMAGE_TARGETS=worker-cuda $(PM_CACHE)/venv/bin/python -m pytest -q -s tests/image/test_images.py
image-test: build image test-deps ## what the images hold, how big they are, and that they answer without a shell
	@$(PM_CACHE)/venv/bin/python -m pytest -q -s tests/image
assembled-image: deps     ## the same images of this machine's build, within seconds; Kubernetes is built beside the programs
	@$(MAKE) -s cluster > $(PM_CACHE)/cluster-build.log 2>&1 & cluster=$$!; $(MAKE) -s build && wait $$cluster || \
	  { tail -30 $(PM_CACHE)/cluster-build.log; exit 1; }
	@tests/cluster/image.sh worker $(build) $(build)/worker.tar
	@tests/cluster/image.sh controller $(build) $(build)/controller.tar

demo: assembled-image     ## a model that is sharded over two ranks, served through a Kubernetes Service
	@tests/cluster/demo.sh $(build)

unit: build-tests test-deps ## GoogleTest through ctest
	@ctest --preset $(preset) -j2
lint: lint-deps test-deps ## formats, linters, and the rules of tests/structure
	@tools/lint.sh
fmt: lint-deps            ## format C++, Python and Rust in place
	@tools/lint.sh --fix
test-one: build-tests test-deps ## one test: T=Scheduler.*, a GoogleTest filter, or T=tests/parity/test_forward.py, arguments of pytest
	@tools/test-one.sh $(build) $(T)
run-controller: build     ## the controller outside the cluster, against the kubeconfig at hand
	@build/bin/parallelmodel-controller $(ARGS)
cuda: test-deps           ## the GPU's kernels by nvcc, and all tests that want a GPU, skipped by name without one
	@tools/deps.sh cuda
	@cmake --preset cuda > $(PM_CACHE)/configure-cuda.log || { cat $(PM_CACHE)/configure-cuda.log; exit 1; }
	@cmake --build --preset cuda
	@ctest --preset cuda --verbose
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/gpu/worker
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/gpu/kit
	@tools/gpu/pack.sh
gpu-kit: test-deps        ## build/kit.tar.xz: what a machine with a GPU needs to run tools/gpu/run.py; ARGS="--variant NAME=REVISION"
	@tools/gpu/pack.sh $(ARGS)
gpu-report:               ## results of tools/gpu/run.py below DIR become a page of docs/design/evidence and rows of the README
	@$(PM_CACHE)/venv/bin/python tools/gpu/report.py $(DIR)
rehearsal: build-tests test-deps ## the tests that want a GPU on the fake device; PM_GPU_REHEARSE=short for the first case of each
	@PM_GPU_REHEARSE=$${PM_GPU_REHEARSE:-1} $(PM_CACHE)/venv/bin/python -m pytest -q tests/gpu/worker
fuzz: test-deps           ## ten minutes for each parser of untrusted input
	@tests/fuzz/run.sh 0 600
parity: build-tests test-deps   ## against Hugging Face
	@$(PM_CACHE)/venv/bin/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile tests/parity
hub: build test-deps      ## downloads from a local hub that fails on purpose
	@$(PM_CACHE)/venv/bin/python -m pytest -q -n 2 tests/hub
browser: build test-deps  ## the API server's page in a headless Chromium; PM_SCREENSHOTS=FOLDER keeps pictures
	@tools/deps.sh browser
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/browser
clients: build test-deps  ## Node packages, agent frameworks and requests of coding clients against a server
	@tools/deps.sh clients
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/clients
stress: build-tests test-deps   ## 64 clients, leavers, lost ranks; PM_STRESS_SECONDS=120 for the thorough run
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/stress
reliability: build cluster test-deps ## the controller against a real API server that kills, errs and lags; KUBERNETES=oldest takes that of the oldest release
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/reliability
chart: cluster test-deps  ## the chart's templates and the files of its release, without a cluster
	@$(PM_CACHE)/venv/bin/python -m pytest -q tests/chart
release: image cluster    ## images, chart, install.yaml, bills of materials and checksums in one folder: OUT=DIR REGISTRY=HOST/PATH
	@[ -n "$(OUT)" ] && [ -n "$(REGISTRY)" ] || { echo "make release OUT=DIR REGISTRY=HOST/PATH" >&2; exit 1; }
	@tools/release/release.py "$(OUT)" --images build/images --registry "$(REGISTRY)" --helm "$$(tests/cluster/build.sh)/bin/helm"
release-test: image cluster test-deps ## the folder of a release, and what is installed and upgraded from it through a registry
	@$(PM_CACHE)/venv/bin/python -m pytest -q -s tests/release
manifests: build cluster test-deps ## kube-score and kube-linter on what the chart and the controller make
	@PM_KUBELINTER=1 $(PM_CACHE)/venv/bin/python -m pytest -q tests/reliability/test_manifests.py
e2e: build cluster test-deps ## on a real Kubernetes; PM_IMAGES=build/images for the images of the Dockerfile
	@$(PM_CACHE)/venv/bin/python -m pytest -q $(if $(PM_CLUSTER),,-n 2 --dist loadfile) tests/e2e
integrations: build cluster test-deps ## end-to-end tests with real gateways, an endpoint picker, autoscalers, cert-manager, External Secrets, Kueue, image volumes and a DRA driver, which it builds; PM_GATEWAY_REQUESTS=10000
	@PM_INTEGRATIONS=1 $(PM_CACHE)/venv/bin/python -m pytest -q -s tests/e2e/test_gateways.py tests/e2e/test_autoscaling.py tests/e2e/test_secrets.py \
	  tests/e2e/test_queues.py tests/e2e/test_model_images.py tests/e2e/test_dra.py
test:                     ## everything, with the time of each stage
	@tools/test.sh
bench: build-tests test-deps    ## every number of the README
	@bench/run.sh
bench-op: deps            ## check and time every operation on every device: ARGS="--op linear --json"; preset=cuda for GPUs
	@[ $(preset) != cuda ] || tools/deps.sh cuda
	@tools/build.sh $(preset) bench_ops
	@bench/ops.sh $(build) $(ARGS)
clean:                    ## what was built here; $(PM_CACHE) stays
	@rm -rf build
