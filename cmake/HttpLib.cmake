# SPDX-License-Identifier: Apache-2.0
# cpp-httplib >= 0.18.7: Debian 13's package where the host has it, else the one-file header that tools/httplib.sh
# took from Debian 13's source package. Only the three files that include it (worker/server, worker/hub,
# controller/client) link this target.
find_path(HTTPLIB_INCLUDE httplib.h HINTS ${PM_CACHE}/httplib NO_DEFAULT_PATH)
find_path(HTTPLIB_INCLUDE httplib.h)
if(NOT HTTPLIB_INCLUDE)
  message(FATAL_ERROR "no httplib.h: run `make deps`")
endif()
file(STRINGS ${HTTPLIB_INCLUDE}/httplib.h _line REGEX "define CPPHTTPLIB_VERSION \"")
string(REGEX MATCH "[0-9.]+" HTTPLIB_VERSION "${_line}")
if(HTTPLIB_VERSION VERSION_LESS 0.18.7)
  message(FATAL_ERROR "cpp-httplib ${HTTPLIB_VERSION} at ${HTTPLIB_INCLUDE}, need >= 0.18.7: run `make deps`")
endif()
find_package(OpenSSL REQUIRED)
add_library(pm_httplib INTERFACE)
target_include_directories(pm_httplib SYSTEM INTERFACE ${HTTPLIB_INCLUDE})
# select() cannot wait for descriptors from 1024 up.
target_compile_definitions(pm_httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_USE_POLL)
target_link_libraries(pm_httplib INTERFACE OpenSSL::SSL OpenSSL::Crypto)
find_library(HTTPLIB_LIBRARY cpp-httplib)
if(HTTPLIB_LIBRARY AND NOT HTTPLIB_INCLUDE STREQUAL "${PM_CACHE}/httplib")
  target_link_libraries(pm_httplib INTERFACE ${HTTPLIB_LIBRARY})
endif()
