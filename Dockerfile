# SPDX-License-Identifier: Apache-2.0
# The images of a release, one target each: worker, worker-cuda and controller; and kubectl-pm, of which a release
# takes the program. They hold a program, the libraries that
# it loads and a few files of /etc: no shell, no package manager. docs/tasks/images.md says how to build them.
#
# Secrets of a build are files that never reach a layer. All of them may be absent:
#   apt      sources of Debian packages in deb822 format
#   ca       authorities for TLS, one file of certificates
#   pip      pip.conf with the index of Python packages
#   cargo    config.toml with the registry of crates
# http_proxy, https_proxy and no_proxy are build arguments that every builder knows.

# Compilers and libraries, all of them from Debian.
FROM debian:trixie-slim AS tools
ENV DEBIAN_FRONTEND=noninteractive PM_CACHE=/cache
WORKDIR /src
COPY tools/deps.sh tools/
RUN --mount=type=secret,id=apt,target=/etc/apt/sources.list.d/debian.sources \
    apt-get update -qq && apt-get upgrade -y -qq && tools/deps.sh packages && \
    apt-get clean && rm -rf /var/lib/apt/lists/* /cache
# pip and cargo read the authorities of the system, which the secret `ca` replaces.
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt CARGO_HTTP_CAINFO=/etc/ssl/certs/ca-certificates.crt
# The cache of the compiler is kept between builds; a compiler is known by its contents, because layers change times.
ENV CCACHE_DIR=/cache/ccache CCACHE_COMPILERCHECK=content CCACHE_MAXSIZE=5G CARGO_HOME=/cache/crates

FROM tools AS build-controller
COPY . .
RUN --mount=type=cache,id=parallelmodel,target=/cache,sharing=locked \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=cargo,target=/src/.cargo/config.toml \
    tools/deps.sh build && \
    cmake --preset release -DBUILD_TESTING=OFF -DPM_BUILD_BENCH=OFF && \
    cmake --build --preset release --target parallelmodel-controller kubectl-pm && \
    tools/image/root.sh build/release/bin/parallelmodel-controller /out/controller && \
    tools/image/plugin.sh build/release/bin/kubectl-pm /out/plugin && \
    rm -rf build

# Cargo keeps its results in the cache and takes a file for unchanged that is older than they are, so that the files of
# the crate are touched first.
FROM tools AS build-worker
COPY . .
RUN --mount=type=cache,id=parallelmodel,target=/cache,sharing=locked \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=cargo,target=/src/.cargo/config.toml \
    find worker/tokenizer/ffi -type f -exec touch {} + && \
    tools/deps.sh build && \
    cmake --preset release -DBUILD_TESTING=OFF -DPM_BUILD_BENCH=OFF && \
    cmake --build --preset release --target parallelmodel-worker && \
    tools/image/root.sh build/release/bin/parallelmodel-worker /out/worker && \
    rm -rf build

# nvcc and CUDA's libraries come from the wheels that torch names; the driver, libcuda.so.1, comes from the node.
FROM tools AS build-cuda
COPY . .
RUN --mount=type=cache,id=parallelmodel,target=/cache,sharing=locked \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=cargo,target=/src/.cargo/config.toml \
    find worker/tokenizer/ffi -type f -exec touch {} + && \
    tools/deps.sh cuda && /cache/venv/bin/pip install -q -r tools/wheels.txt && \
    cmake --preset cuda -DBUILD_TESTING=OFF -DPM_BUILD_BENCH=OFF && \
    cmake --build build/cuda --target parallelmodel-worker && \
    tools/image/root.sh build/cuda/bin/parallelmodel-worker /out/worker && \
    rm -rf build

FROM scratch AS base
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.licenses=Apache-2.0
USER 65532
WORKDIR /

FROM base AS controller
LABEL org.opencontainers.image.title=parallelmodel-controller \
      org.opencontainers.image.description="Operator that shards Hugging Face transformers over devices"
COPY --from=build-controller /out/controller/system/ /
COPY --from=build-controller /out/controller/program/ /
ENTRYPOINT ["/usr/bin/parallelmodel-controller"]

FROM base AS kubectl-pm
LABEL org.opencontainers.image.title=kubectl-pm \
      org.opencontainers.image.description="Plugin of kubectl for ParallelModels"
COPY --from=build-controller /out/plugin/ /
ENTRYPOINT ["/usr/bin/kubectl-pm"]

FROM base AS worker-cuda
LABEL org.opencontainers.image.title=parallelmodel-worker-cuda \
      org.opencontainers.image.description="Worker of ParallelModel for NVIDIA GPUs"
# For the container runtime's hook, which puts the driver's libraries and tools into the container.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /out/worker/system/ /
COPY --from=build-cuda /out/worker/torch/ /
COPY --from=build-cuda /out/worker/program/ /
ENTRYPOINT ["/usr/bin/parallelmodel-worker"]

FROM base AS worker
LABEL org.opencontainers.image.title=parallelmodel-worker \
      org.opencontainers.image.description="Worker of ParallelModel for CPUs"
COPY --from=build-worker /out/worker/system/ /
COPY --from=build-worker /out/worker/torch/ /
COPY --from=build-worker /out/worker/program/ /
ENTRYPOINT ["/usr/bin/parallelmodel-worker"]
