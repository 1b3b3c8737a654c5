# SPDX-License-Identifier: Apache-2.0
# Compiles through ccache where it is installed. Results are shared between clones of the repository: paths below its
# root are hashed relative to it, and the working folder is not hashed at all.
get_filename_component(_root ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_BASEDIR=${_root}
    CCACHE_NOHASHDIR=1
    sh
    ${CMAKE_CURRENT_LIST_DIR}/compile.sh
    ${CCACHE})
endif()
