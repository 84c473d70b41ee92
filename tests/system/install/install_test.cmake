# Installs the build tree BUILD below FOLDER, then builds CONSUMER against that alone and runs it.
#   cmake -DBUILD=... -DCONSUMER=... -DFOLDER=... -DGENERATOR=... -DCOMPILER=... -DWITH_TORCH=ON|OFF -P install_test.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output
    WORKING_DIRECTORY ${FOLDER})
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    file(REMOVE_RECURSE ${FOLDER})
    message(FATAL_ERROR "${command} ended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/prefix)

file(GLOB_RECURSE installed LIST_DIRECTORIES false ${FOLDER}/prefix/*)
foreach(path IN LISTS installed)
  if(IS_SYMLINK ${path})
    file(REMOVE_RECURSE ${FOLDER})
    message(FATAL_ERROR "${path} is a link into the source tree")
  endif()
endforeach()

# No path of the build tree goes into the package: it may be renamed or removed.
file(GLOB libraries ${FOLDER}/prefix/lib*/*.a)
foreach(library IN LISTS libraries)
  file(STRINGS ${library} found REGEX "${BUILD}" LIMIT_COUNT 1)
  if(found)
    file(REMOVE_RECURSE ${FOLDER})
    message(FATAL_ERROR "${library} has a path of the build tree: ${found}")
  endif()
endforeach()

set(configure ${CMAKE_COMMAND} -S ${CONSUMER} -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${FOLDER}/prefix
  -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release)
set(bare -DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON)

# Component NAME is refused for a reason that matches WORDS.
function(refuse name words)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=LIBTORCH_ROOT ${configure} ${bare} -DCOMPONENTS=${name} ${ARGN}
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE reason)
  if(status EQUAL 0 OR NOT reason MATCHES "${words}")
    file(REMOVE_RECURSE ${FOLDER})
    message(FATAL_ERROR "component ${name} was not refused, or for another reason than '${words}':\n${reason}")
  endif()
endfunction()

# Without the libraries of trackers there is no component of that name.
refuse(trackers "component trackers needs libcurl" -B ${FOLDER}/refused)
refuse(tracker "there is no component tracker," -B ${FOLDER}/refused)

# A program that only trains does without them.
run(${configure} ${bare} -B ${FOLDER}/bare)
run(${CMAKE_COMMAND} --build ${FOLDER}/bare --target two_ranks again) # with one precompiled header
run(${FOLDER}/bare/two_ranks)
set(said "${output}")

if(WITH_TORCH)
  # In a build folder that has found LibTorch elsewhere, too.
  refuse(torch "component torch needs LibTorch.*/no/libtorch" -B ${FOLDER}/bare -DLIBTORCH_ROOT=/no/libtorch)
else()
  refuse(torch "built without LibTorch" -B ${FOLDER}/refused)
endif()

set(programs with_trackers)
if(WITH_TORCH)
  list(APPEND programs with_torch troupe_nccl)
endif()
run(${configure} -B ${FOLDER}/build -DCOMPONENTS=trackers)
run(${CMAKE_COMMAND} --build ${FOLDER}/build --target ${programs})
run(${FOLDER}/build/with_trackers)
string(APPEND said "${output}")
if(WITH_TORCH)
  # In the place of the library that is loaded for NCCL, which only a host with GPUs can load.
  file(GLOB nccl ${FOLDER}/prefix/lib*/libtroupe_torch.a)
  cmake_path(GET nccl PARENT_PATH libraries)
  file(REMOVE ${libraries}/libtroupe_nccl.so)
  file(RENAME ${FOLDER}/build/libtroupe_nccl.so ${libraries}/libtroupe_nccl.so)
  run(${FOLDER}/build/with_torch)
  string(APPEND said "${output}")
endif()
file(REMOVE_RECURSE ${FOLDER})
if(NOT said MATCHES "trained on 2 ranks.*tracked" OR (WITH_TORCH AND NOT said MATCHES
    "gradients over automatic.*the library of the package was asked"))
  message(FATAL_ERROR "the consumer said: ${said}")
endif()
