# SPDX-License-Identifier: Apache-2.0
# nvcc out of PyPI wheels (tools/cuda.txt), or any by -DCMAKE_CUDA_COMPILER=...; made for CMake 3.25, whose own
# search does not know the wheels' folders.
#   CUDA_ROOT                   .../site-packages/nvidia/cu13
#   CMAKE_CUDA_ARCHITECTURES    machine code for each named generation, PTX of the last for those to come
set(CUDA_ROOT "${NVIDIA_ROOT}/cu13" CACHE PATH "folder with bin/nvcc, include and lib")
if(NOT CMAKE_CUDA_COMPILER)
  if(NOT EXISTS "${CUDA_ROOT}/bin/nvcc")
    message(FATAL_ERROR "no nvcc under CUDA_ROOT=${CUDA_ROOT}: run `tools/deps.sh cuda`, or set CMAKE_CUDA_COMPILER")
  endif()
  set(CMAKE_CUDA_COMPILER "${CUDA_ROOT}/bin/nvcc")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120-real 120-virtual)
endif()
set(CMAKE_CUDA_FLAGS_INIT "-L${CUDA_ROOT}/lib")   # nvcc.profile looks in lib64
set(CMAKE_CUDA_STANDARD 20)
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)   # CMake 3.25 does not know C++20 for nvcc
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
# what ptxas says of registers and spills lies beside each object, for tests/gpu/kernels/resources.py
set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_SOURCE_DIR}/cmake/ptxas.sh;${CMAKE_CXX_COMPILER_LAUNCHER}")

add_library(cudart SHARED IMPORTED GLOBAL)
set_target_properties(cudart PROPERTIES IMPORTED_LOCATION "${CUDA_ROOT}/lib/libcudart.so.13")
target_include_directories(cudart SYSTEM INTERFACE "${CUDA_ROOT}/include")
message(STATUS "CUDA at ${CMAKE_CUDA_COMPILER}, ${CMAKE_CUDA_ARCHITECTURES}")
