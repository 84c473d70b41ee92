# Finds what troupe_nccl is compiled against: the header of the NCCL that LibTorch's CUDA part loads, and the headers of
# the CUDA runtime. They come from wheels, those of CUDA 13 or 12 beside LibTorch's own and those that the bootstrap
# fetched; a system's CUDA toolkit is ignored.
#   NCCLHeaders::NCCLHeaders   imported target, include folders only
#   NCCLHeaders_MISSING        the headers that were not found
cmake_path(GET LibTorch_ROOT_DIR PARENT_PATH site_packages)
set(nvidia ${site_packages}/nvidia)
set(bootstrapped ${TROUPE_CACHE_DIR}/nccl-headers-2.30.7-13.2/include)
find_path(NCCLHeaders_NCCL_DIR nccl.h
  HINTS ${nvidia}/nccl/include ${bootstrapped} NO_DEFAULT_PATH)
find_path(NCCLHeaders_CUDA_DIR cuda_runtime_api.h
  HINTS ${nvidia}/cu13/include ${nvidia}/cuda_runtime/include NO_DEFAULT_PATH)
if(NCCLHeaders_CUDA_DIR MATCHES "/cuda_runtime/") # What the bootstrap fetched is of CUDA 13.
  unset(bootstrapped)
endif()
find_path(NCCLHeaders_CRT_DIR crt/host_config.h
  HINTS ${nvidia}/cu13/include ${nvidia}/cuda_nvcc/include ${bootstrapped} NO_DEFAULT_PATH)
find_path(NCCLHeaders_CCCL_DIR nv/target
  HINTS ${nvidia}/cu13/include ${nvidia}/cuda_cccl/include ${bootstrapped} NO_DEFAULT_PATH)

set(parts NCCL CUDA CRT CCCL)
set(headers nccl.h cuda_runtime_api.h crt/host_config.h nv/target)
set(NCCLHeaders_MISSING)
foreach(part header IN ZIP_LISTS parts headers)
  if(NOT NCCLHeaders_${part}_DIR)
    list(APPEND NCCLHeaders_MISSING ${header})
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCLHeaders
  REQUIRED_VARS NCCLHeaders_NCCL_DIR NCCLHeaders_CUDA_DIR NCCLHeaders_CRT_DIR NCCLHeaders_CCCL_DIR)

if(NCCLHeaders_FOUND AND NOT TARGET NCCLHeaders::NCCLHeaders)
  add_library(NCCLHeaders::NCCLHeaders INTERFACE IMPORTED)
  target_include_directories(NCCLHeaders::NCCLHeaders SYSTEM INTERFACE
    ${NCCLHeaders_NCCL_DIR} ${NCCLHeaders_CUDA_DIR} ${NCCLHeaders_CRT_DIR} ${NCCLHeaders_CCCL_DIR})
endif()
