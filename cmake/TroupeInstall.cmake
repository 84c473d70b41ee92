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

# A separate set: programs without trackers need not install libcurl, OpenSSL and libzip.
if(TROUPE_WITH_TRACKERS)
  list(APPEND libraries troupe_trackers)
  list(APPEND umbrella_headers trackers)
  install(TARGETS troupe_trackers EXPORT troupeTrackersTargets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILE_SET headers_alone DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT troupeTrackersTargets NAMESPACE troupe:: DESTINATION ${package_dir})
endif()

# Likewise: programs that train without LibTorch need not install it.
if(TROUPE_WITH_TORCH)
  list(APPEND libraries troupe_torch)
  list(APPEND umbrella_headers torch)
  install(TARGETS troupe_torch EXPORT troupeTorchTargets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILE_SET headers_alone DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT troupeTorchTargets NAMESPACE troupe:: DESTINATION ${package_dir})
endif()
# Likewise: programs that read no image files need no decoders.
if(TARGET troupe_images)
  list(APPEND libraries troupe_images)
  list(APPEND umbrella_headers images)
  install(TARGETS troupe_images EXPORT troupeImagesTargets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILE_SET headers_alone DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT troupeImagesTargets NAMESPACE troupe:: DESTINATION ${package_dir})
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
  ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake ${PROJECT_SOURCE_DIR}/cmake/TroupePrecompile.cmake DESTINATION ${package_dir})

# All that `cmake --install` needs, without tests, examples and benchmarks.
add_custom_target(troupe_libraries DEPENDS ${libraries})

# Everything at once, for the programs of this tree and, in troupeConfig.cmake, for others.
add_library(troupe_troupe INTERFACE)
add_library(troupe::troupe ALIAS troupe_troupe)
target_link_libraries(troupe_troupe INTERFACE troupe::trainers $<TARGET_NAME_IF_EXISTS:troupe::trackers>)
if(TROUPE_WITH_TORCH)
  target_link_libraries(troupe_troupe INTERFACE troupe::torch $<TARGET_NAME_IF_EXISTS:troupe::images>)
endif()
