add_executable(parallelmodel-worker ${CMAKE_CURRENT_LIST_DIR}/main.cpp)
target_link_libraries(parallelmodel-worker PRIVATE worker_cli)
target_precompile_headers(parallelmodel-worker REUSE_FROM pm_torch)
target_compile_definitions(parallelmodel-worker PRIVATE PM_VERSION="${PROJECT_VERSION}")
if(PM_CUDA)   # the files that register the kernels, the driver and NCCL are named here, as a linker drops what nobody calls
  target_sources(parallelmodel-worker PRIVATE ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/register.cpp ${CMAKE_CURRENT_LIST_DIR}/ops/cuda/driver.cpp ${CMAKE_CURRENT_LIST_DIR}/comm/nccl/register.cpp)
  target_link_libraries(parallelmodel-worker PRIVATE worker_ops_cuda_backend worker_comm_nccl)
endif()
add_subdirectory(${CMAKE_SOURCE_DIR}/bench/overhead ${CMAKE_BINARY_DIR}/bench/overhead EXCLUDE_FROM_ALL)
