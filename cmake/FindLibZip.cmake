# Finds libzip (its own CMake package fails on Debian without the programs of `ziptool`) and defines
#   LibZip::LibZip   imported target
find_path(LibZip_INCLUDE_DIR zip.h)
find_library(LibZip_LIBRARY zip)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibZip
  REASON_FAILURE_MESSAGE "install libzip-dev (docs/decisions/dependencies.md)"
  REQUIRED_VARS LibZip_LIBRARY LibZip_INCLUDE_DIR)

if(LibZip_FOUND AND NOT TARGET LibZip::LibZip)
  add_library(LibZip::LibZip UNKNOWN IMPORTED)
  set_target_properties(LibZip::LibZip PROPERTIES
    IMPORTED_LOCATION ${LibZip_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${LibZip_INCLUDE_DIR})
endif()
