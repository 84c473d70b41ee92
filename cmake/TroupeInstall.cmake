# Installs the libraries, their headers and the package `troupe`. Another project then writes
#
#   find_package(troupe REQUIRED [COMPONENTS torch images trackers])
#   target_link_libraries(app PRIVATE troupe::troupe)     or troupe::trainers, without LibTorch and trackers
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)

set(libraries troupe_runtime troupe_callbacks troupe_actors troupe_trainers)
set(TROUPE_HAS_DOOR FALSE)
if(TARGET troupe_door) # Runs on several hosts; programs then need OpenSSL.
  list(APPEND libraries troupe_door)
  set(TROUPE_HAS_DOOR TRUE)
endif()
set(umbrella_headers train actors sweep)
install(TARGETS ${libraries} EXPORT troupeTargets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILE_SET headers_alone DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT troupeTargets NAMESPACE troupe:: DESTINATION ${package_dir})

# A separate set, so that a program without the library need not install what that needs.
macro(troupe_install_separately name set)
  list(APPEND libraries troupe_${name})
  list(APPEND umbrella_headers ${name})
  install(TARGETS troupe_${name} EXPORT ${set} FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILE_SET headers_alone DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT ${set} NAMESPACE troupe:: DESTINATION ${package_dir})
endmacro()
if(TROUPE_WITH_TRACKERS) # libcurl, OpenSSL and libzip
  troupe_install_separately(trackers troupeTrackersTargets)
endif()
if(TROUPE_WITH_TORCH)
  troupe_install_separately(torch troupeTorchTargets)
endif()
if(TARGET troupe_images) # decoders
  troupe_install_separately(images troupeImagesTargets)
endif()
if(TARGET troupe_nccl) # Loaded at run time, linked by nothing.
  list(APPEND libraries troupe_nccl)
  install(TARGETS troupe_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# In the build tree these headers are links, and a file set would install the links.
list(TRANSFORM umbrella_headers REPLACE "(.+)" ${PROJECT_SOURCE_DIR}/trainers/umbrella/\\1.hpp)
install(FILES ${umbrella_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/troupeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/troupeConfig.cmake INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/troupeConfig.cmake ${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake ${PROJECT_SOURCE_DIR}/cmake/FindLibZip.cmake
  ${PROJECT_SOURCE_DIR}/cmake/TroupePrecompile.cmake DESTINATION ${package_dir})

# All that `cmake --install` needs, without tests, examples and benchmarks.
add_custom_target(troupe_libraries DEPENDS ${libraries})

# Everything at once, for the programs of this tree and, in troupeConfig.cmake, for others.
add_library(troupe_troupe INTERFACE)
add_library(troupe::troupe ALIAS troupe_troupe)
target_link_libraries(troupe_troupe INTERFACE troupe::trainers $<TARGET_NAME_IF_EXISTS:troupe::trackers>)
if(TROUPE_WITH_TORCH)
  target_link_libraries(troupe_troupe INTERFACE troupe::torch $<TARGET_NAME_IF_EXISTS:troupe::images>)
endif()
