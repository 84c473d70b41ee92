# A layer is one static library with listed sources and a header file set.
#
#   troupe_layer(runtime SOURCES a.cpp b.cpp HEADERS a.hpp INTERNAL_HEADERS b.hpp LINK Boost::filesystem [PRIVATE_LINK ...])
#
# makes troupe_runtime (troupe::runtime). Headers are found as "troupe/runtime/a.hpp" through one link per layer in
# the build tree. HEADERS are installed: those that the umbrella headers include, directly or not.
set(TROUPE_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${TROUPE_INCLUDE_DIR}/troupe)
foreach(folder runtime callbacks actors trainers)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${TROUPE_INCLUDE_DIR}/troupe/${folder} SYMBOLIC)
endforeach()
foreach(header train torch images actors trackers sweep)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/trainers/umbrella/${header}.hpp
    ${TROUPE_INCLUDE_DIR}/troupe/${header}.hpp SYMBOLIC)
endforeach()

# The options that our own headers depend on, in a file, so that a changed option recompiles only its users.
if(TROUPE_FAILPOINTS)
  set(with_failpoints 1)
else()
  set(with_failpoints 0)
endif()
file(CONFIGURE OUTPUT ${TROUPE_INCLUDE_DIR}/troupe/build_options.hpp CONTENT
"#pragma once

// How this build of Troupe was configured.
#define TROUPE_FAILPOINTS ${with_failpoints}
")

# What batches hide is a missing include. The target `sources_alone` checks each source by itself.
add_custom_target(sources_alone)
function(troupe_check_alone target)
  add_library(${target}_alone OBJECT EXCLUDE_FROM_ALL ${ARGN})
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS)
    set(${property} $<TARGET_PROPERTY:${target},${property}>)
  endforeach()
  target_include_directories(${target}_alone SYSTEM PRIVATE ${INCLUDE_DIRECTORIES})
  # With the definition, ccache cannot take these objects for others.
  target_compile_definitions(${target}_alone PRIVATE ${COMPILE_DEFINITIONS} TROUPE_CHECKED_ALONE)
  target_compile_options(${target}_alone PRIVATE ${COMPILE_OPTIONS})
  set(check ${PROJECT_SOURCE_DIR}/cmake/check_only)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    set(check ${CMAKE_COMMAND} -E env CCACHE_PREFIX=${check} ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  set_target_properties(${target}_alone PROPERTIES CXX_COMPILER_LAUNCHER "${check}")
  add_dependencies(sources_alone ${target}_alone)
endfunction()

function(troupe_layer name)
  cmake_parse_arguments(layer "" "FOLDER" "SOURCES;HEADERS;INTERNAL_HEADERS;LINK;PRIVATE_LINK" ${ARGN})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  # A source that includes its own header first proves that the header stands alone, if files are compiled one by one;
  # the other headers are compiled by themselves.
  set(layer_ALONE ${layer_HEADERS})
  list(TRANSFORM layer_SOURCES REPLACE "\\.cpp$" ".hpp" OUTPUT_VARIABLE proven)
  list(REMOVE_ITEM layer_ALONE ${proven})
  list(REMOVE_ITEM layer_HEADERS ${layer_ALONE})
  list(REMOVE_ITEM layer_INTERNAL_HEADERS ${proven})
  foreach(headers HEADERS ALONE INTERNAL_HEADERS)
    list(TRANSFORM layer_${headers} PREPEND ${TROUPE_INCLUDE_DIR}/troupe/${folder}/)
  endforeach()
  add_library(troupe_${name} STATIC ${layer_SOURCES})
  add_library(troupe::${name} ALIAS troupe_${name})
  set_target_properties(troupe_${name} PROPERTIES EXPORT_NAME ${name})
  troupe_in_batches(layers 16 troupe_${name})
  target_sources(troupe_${name} PUBLIC
    FILE_SET HEADERS BASE_DIRS ${TROUPE_INCLUDE_DIR} FILES ${layer_HEADERS}
    FILE_SET headers_alone TYPE HEADERS BASE_DIRS ${TROUPE_INCLUDE_DIR} FILES ${layer_ALONE})
  set_target_properties(troupe_${name} PROPERTIES INTERFACE_HEADER_SETS_TO_VERIFY headers_alone)
  # An exported target must install all its file sets: what is not installed belongs to a target of its own.
  add_library(troupe_${name}_internal INTERFACE)
  target_sources(troupe_${name}_internal INTERFACE
    FILE_SET HEADERS BASE_DIRS ${TROUPE_INCLUDE_DIR} FILES ${layer_INTERNAL_HEADERS})
  target_link_libraries(troupe_${name}_internal INTERFACE troupe_${name} ${layer_PRIVATE_LINK})
  target_compile_features(troupe_${name} PUBLIC cxx_std_20)
  # A rank finds a train loop by module and build id.
  target_link_options(troupe_${name} INTERFACE -Wl,--build-id)
  target_link_libraries(troupe_${name} PUBLIC ${layer_LINK}
    PRIVATE $<BUILD_INTERFACE:troupe_build_flags> ${layer_PRIVATE_LINK})
  troupe_check_alone(troupe_${name} ${layer_SOURCES})
endfunction()
