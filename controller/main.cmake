add_executable(parallelmodel-controller main.cpp flags.cpp)
target_compile_definitions(parallelmodel-controller PRIVATE PM_VERSION="${PROJECT_VERSION}")
target_link_libraries(parallelmodel-controller PRIVATE pm_options parallelmodel_operator k8s_runtime k8s_client k8s_core)
