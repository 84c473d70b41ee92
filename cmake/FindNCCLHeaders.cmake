# Finds what troupe_nccl is compiled against: the header of the NCCL that LibTorch's CUDA part loads, and the headers of
# the CUDA runtime. Both come from wheels; a system's CUDA toolkit is ignored.
#   NCCLHeaders::NCCLHeaders   imported target, include folders only
cmake_path(GET LibTorch_ROOT_DIR PARENT_PATH site_packages)
set(bootstrapped ${TROUPE_CACHE_DIR}/nccl-headers-2.30.7-13.2/include)
find_path(NCCLHeaders_NCCL_DIR nccl.h
  HINTS ${site_packages}/nvidia/nccl/include ${bootstrapped} NO_DEFAULT_PATH)
find_path(NCCLHeaders_CUDA_DIR cuda_runtime_api.h
  HINTS ${site_packages}/nvidia/cu13/include NO_DEFAULT_PATH)
find_path(NCCLHeaders_CRT_DIR crt/host_config.h
  HINTS ${site_packages}/nvidia/cu13/include ${bootstrapped} NO_DEFAULT_PATH)
find_path(NCCLHeaders_CCCL_DIR nv/target
  HINTS ${site_packages}/nvidia/cu13/include ${bootstrapped} NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCLHeaders
  REQUIRED_VARS NCCLHeaders_NCCL_DIR NCCLHeaders_CUDA_DIR NCCLHeaders_CRT_DIR NCCLHeaders_CCCL_DIR)

if(NCCLHeaders_FOUND AND NOT TARGET NCCLHeaders::NCCLHeaders)
  add_library(NCCLHeaders::NCCLHeaders INTERFACE IMPORTED)
  target_include_directories(NCCLHeaders::NCCLHeaders SYSTEM INTERFACE
    ${NCCLHeaders_NCCL_DIR} ${NCCLHeaders_CUDA_DIR} ${NCCLHeaders_CRT_DIR} ${NCCLHeaders_CCCL_DIR})
endif()
