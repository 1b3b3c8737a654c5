# SPDX-License-Identifier: Apache-2.0
# Worker and controller images, and the worker with CUDA, one target each:
#   docker build --target worker -t REGISTRY/parallelmodel-worker .      docker build --target controller -t REGISTRY/parallelmodel-controller .
#   docker build --target worker-cuda -t REGISTRY/parallelmodel-worker-cuda .
FROM debian:trixie-slim AS build
ENV DEBIAN_FRONTEND=noninteractive PM_CACHE=/cache
RUN apt-get update && apt-get install -y --no-install-recommends g++ cmake ninja-build ccache make python3 python3-venv ca-certificates \
    prometheus-cpp-dev libgoogle-glog-dev libgtest-dev libgmock-dev nlohmann-json3-dev libssl-dev libyaml-cpp-dev libcli11-dev \
    libpng-dev libjpeg62-turbo-dev libsndfile1-dev libsoxr-dev pkg-config \
    libcpp-httplib-dev dpkg-dev rustup && rustup toolchain install stable --profile minimal && rustup default stable
WORKDIR /src
COPY . .
RUN make build
# every program with the shared libraries that it loads, in one folder; torch's own are stripped of symbols nobody resolves at run time
RUN for program in worker controller; do \
      mkdir -p /out/$program/usr/bin /out/$program/usr/lib/parallelmodel && cp build/bin/parallelmodel-$program /out/$program/usr/bin/ && \
      ldd build/bin/parallelmodel-$program | grep -o '/[^ ]*' | grep -v ld-linux | sort -u | xargs -I{} cp -L {} /out/$program/usr/lib/parallelmodel/ && \
      find /out/$program -type f -exec strip --strip-unneeded {} +; done

# the worker with CUDA: nvcc and CUDA's libraries out of the wheels that torch names; beside what the program loads, what those load by name (cuDNN's parts, the run-time compiler).
# The driver, libcuda.so.1, comes from the node.
FROM build AS build-cuda
RUN tools/deps.sh cuda && /cache/venv/bin/pip install -q --disable-pip-version-check -r tools/wheels.txt && \
    cmake --preset cuda && cmake --build --preset cuda --target parallelmodel-worker
RUN out=/out/worker-cuda && wheels=$(echo /cache/venv/lib/python3*/site-packages/nvidia) && \
    mkdir -p $out/usr/bin $out/usr/lib/parallelmodel && cp build/cuda/bin/parallelmodel-worker $out/usr/bin/ && \
    ! ldd build/cuda/bin/parallelmodel-worker | grep "not found" && \
    ldd build/cuda/bin/parallelmodel-worker | grep -o '/[^ ]*' | grep -v ld-linux | sort -u | xargs -I{} cp -L {} $out/usr/lib/parallelmodel/ && \
    cp -L $wheels/cudnn/lib/*.so.* $wheels/cu13/lib/libnvrtc*.so.* $out/usr/lib/parallelmodel/ && \
    strip --strip-unneeded $out/usr/bin/parallelmodel-worker $out/usr/lib/parallelmodel/libtorch*.so

FROM debian:trixie-slim AS base
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* && \
    groupadd --gid 65532 nonroot && useradd --uid 65532 --gid 0 --no-create-home nonroot
ENV LD_LIBRARY_PATH=/usr/lib/parallelmodel
USER 65532

FROM base AS controller
COPY --from=build /out/controller/ /
ENTRYPOINT ["/usr/bin/parallelmodel-controller"]

FROM base AS worker-cuda
# of the container runtime's hook: it puts the driver's libraries and tools into the container
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /out/worker-cuda/ /
ENTRYPOINT ["/usr/bin/parallelmodel-worker"]

FROM base AS worker
COPY --from=build /out/worker/ /
ENTRYPOINT ["/usr/bin/parallelmodel-worker"]
