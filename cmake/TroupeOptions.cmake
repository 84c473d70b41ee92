# What a build of Troupe contains, and how our own code is compiled.
option(TROUPE_WITH_TORCH "Build trainers/torch (needs LibTorch)" ON)
option(TROUPE_WITH_TRACKERS "Build troupe::trackers (needs libcurl, OpenSSL, libzip and protozero); tests and benchmarks use it" ON)
option(TROUPE_WITH_GLOO "Build the Gloo backend where its headers are found" ON)
option(TROUPE_WITH_NCCL "Build the troupe_nccl library where its headers are found" ON)
option(TROUPE_WITH_IMAGES "Build troupe::images where libjpeg-turbo and libpng are found" ON)
option(TROUPE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(TROUPE_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(TROUPE_BUILD_BENCH "Build troupe_bench" ${PROJECT_IS_TOP_LEVEL})
# In such a build, the variable TROUPE_FAILPOINT can end a process or make its writes fail.
option(TROUPE_FAILPOINTS "Let tests end the process or fail system calls at named points; not for installation" OFF)
option(TROUPE_WARNINGS_AS_ERRORS "Treat warnings in our own code as errors" OFF)
# Headers of other libraries cost more compile time than our own code (docs/decisions/compile_batches.md).
set(TROUPE_COMPILE_IN_BATCHES "" CACHE STRING "Compile several files at once, of: layers;programs;tests. Quicker as a whole, slower after an edit")
function(troupe_in_batches kind size target)
  if(kind IN_LIST TROUPE_COMPILE_IN_BATCHES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  endif()
endfunction()
set(TROUPE_SANITIZERS "" CACHE STRING "Comma-separated sanitizers, e.g. address,undefined")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# ccache makes a second build of the same sources free, even in another clone: no path of a clone gets into an object.
# (So __FILE__ cannot be used to find a file.) Precompiled headers need its sloppiness.
find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_SLOPPINESS=pch_defines,time_macros ${TROUPE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)

# GCC that collects no garbage below 1 GB compiles a tenth faster.
cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR memory_per_core "${memory} / ${cores}") # MiB
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND memory_per_core GREATER 4000)
  add_compile_options(--param=ggc-min-heapsize=1000000)
endif()

add_library(troupe_build_flags INTERFACE)
target_compile_options(troupe_build_flags INTERFACE -Wall -Wextra -Wpedantic
  -Wno-missing-field-initializers # designated initializers leave defaults on purpose
  -Wno-restrict # GCC 12 warns of its own std::string operator+ at -O3
  # At -O3, GCC 12.2 assumes that changed members are unchanged: commas were missing in JSON.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-fno-ipa-modref>
  $<$<BOOL:${TROUPE_WARNINGS_AS_ERRORS}>:-Werror>)
if(TROUPE_SANITIZERS)
  target_compile_options(troupe_build_flags INTERFACE
    -fsanitize=${TROUPE_SANITIZERS} -fno-omit-frame-pointer
    -Wno-maybe-uninitialized # GCC 12 reports some in the code that sanitizers add to std::regex
    -fno-sanitize-recover=all) # UBSan only prints otherwise; it also halves compile time.
  target_compile_definitions(troupe_build_flags INTERFACE XXH_NO_INLINE_HINTS=1) # xxHash, of -O0 and -Og
  target_link_options(troupe_build_flags INTERFACE -fsanitize=${TROUPE_SANITIZERS})
endif()
