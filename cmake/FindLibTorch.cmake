# Finds LibTorch in a PyPI wheel (its own CMake package fails without a CUDA toolkit) and defines
#   LibTorch::c10, LibTorch::torch_cpu   imported targets, CPU part only
#   LibTorch_ROOT_DIR, LibTorch_HAS_CUDA the wheel's torch/ folder; whether its CUDA part lies there
file(GLOB bootstrapped ${TROUPE_CACHE_DIR}/libtorch-2.15.0-*/lib/python3*/site-packages/torch)
find_path(LibTorch_ROOT_DIR NAMES lib/libtorch_cpu.so
  HINTS ${LIBTORCH_ROOT} $ENV{LIBTORCH_ROOT} ${bootstrapped} NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REASON_FAILURE_MESSAGE "give LIBTORCH_ROOT (the folder with lib/libtorch_cpu.so) or run tools/bootstrap.sh"
  REQUIRED_VARS LibTorch_ROOT_DIR)

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch_cpu)
  set(includes ${LibTorch_ROOT_DIR}/include ${LibTorch_ROOT_DIR}/include/torch/csrc/api/include)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES
    IMPORTED_LOCATION ${LibTorch_ROOT_DIR}/lib/libc10.so
    INTERFACE_INCLUDE_DIRECTORIES "${includes}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${includes}"
    INTERFACE_COMPILE_FEATURES cxx_std_20)
  add_library(LibTorch::torch_cpu SHARED IMPORTED)
  set_target_properties(LibTorch::torch_cpu PROPERTIES
    IMPORTED_LOCATION ${LibTorch_ROOT_DIR}/lib/libtorch_cpu.so
    INTERFACE_LINK_LIBRARIES LibTorch::c10
    # A RUNPATH would not apply to the dependencies of the wheel's own libraries.
    INTERFACE_LINK_OPTIONS "-Wl,--no-as-needed;-Wl,--disable-new-dtags;-Wl,-rpath,${LibTorch_ROOT_DIR}/lib;-Wl,--allow-shlib-undefined")
  if(EXISTS ${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so)
    set(LibTorch_HAS_CUDA TRUE)
  endif()
endif()
