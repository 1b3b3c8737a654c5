# SPDX-License-Identifier: Apache-2.0
# LibTorch straight out of a PyPI torch wheel, or any LibTorch by -DTORCH_ROOT=...; own imported targets, so that
# neither find_package(Torch) nor a CUDA toolkit is needed. Links torch_cpu and c10, never libtorch (which needs CUDA).
#   TORCH_ROOT   .../site-packages/torch
#   NVIDIA_ROOT  .../site-packages/nvidia   (cudart and cupti, which the wheel's libtorch_cpu.so needs)
set(TORCH_ROOT "" CACHE PATH "torch folder of an unpacked wheel or LibTorch archive")
if(NOT TORCH_ROOT)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c
    "import importlib.util as u,os;print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE _root OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _failed)
  if(_failed)
    message(FATAL_ERROR "${Python3_EXECUTABLE} has no torch: run `make deps`, or set TORCH_ROOT to a LibTorch folder")
  endif()
  set(TORCH_ROOT "${_root}" CACHE PATH "" FORCE)
endif()
get_filename_component(_site "${TORCH_ROOT}" DIRECTORY)
set(NVIDIA_ROOT "${_site}/nvidia" CACHE PATH "nvidia folder beside torch")
if(NOT EXISTS "${TORCH_ROOT}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no libtorch_cpu.so under TORCH_ROOT=${TORCH_ROOT}")
endif()

function(_torch_library name)
  add_library(torch::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION "${TORCH_ROOT}/lib/lib${name}.so")
  target_include_directories(torch::${name} SYSTEM INTERFACE "${TORCH_ROOT}/include")
endfunction()
_torch_library(c10)
_torch_library(torch_cpu)

add_library(libtorch_cpu INTERFACE)
target_link_libraries(libtorch_cpu INTERFACE torch::torch_cpu torch::c10)
# cudart, cupti and gomp are looked up at link time through torch_cpu; the program itself does not need them
target_link_options(libtorch_cpu INTERFACE "LINKER:-rpath-link,${TORCH_ROOT}/lib")
if(EXISTS "${NVIDIA_ROOT}/cu13/lib")
  target_link_options(libtorch_cpu INTERFACE "LINKER:-rpath-link,${NVIDIA_ROOT}/cu13/lib")
endif()
add_library(LibTorch::cpu ALIAS libtorch_cpu)
# What torch_cuda itself needs (cuBLAS, cuDNN, ...) is looked up when a program starts, not when it is linked.
if(PM_CUDA)
  _torch_library(c10_cuda)
  _torch_library(torch_cuda)
  add_library(libtorch_cuda INTERFACE)
  target_link_libraries(libtorch_cuda INTERFACE torch::torch_cuda torch::c10_cuda libtorch_cpu)
  target_link_options(libtorch_cuda INTERFACE LINKER:--no-as-needed LINKER:--allow-shlib-undefined)
  add_library(LibTorch::cuda ALIAS libtorch_cuda)
endif()
message(STATUS "LibTorch at ${TORCH_ROOT}")
