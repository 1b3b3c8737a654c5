add_executable(parallelmodel-worker ${CMAKE_CURRENT_LIST_DIR}/main.cpp)
target_link_libraries(parallelmodel-worker PRIVATE worker_cli)
target_precompile_headers(parallelmodel-worker REUSE_FROM pm_torch)
target_compile_definitions(parallelmodel-worker PRIVATE PM_VERSION="${PROJECT_VERSION}")
