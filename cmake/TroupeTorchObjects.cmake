# troupe_torch_objects(target...): for targets whose sources need all of LibTorch.
#
# An object that includes torch/torch.h costs the compiler about 10 s for LibTorch's own templates, whatever else is in the
# file. So these targets share the precompiled header of troupe_torch and are compiled in batches.
function(troupe_torch_objects)
  foreach(target IN LISTS ARGN)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    if(target STREQUAL troupe_torch)
      target_precompile_headers(${target} PRIVATE <torch/torch.h>)
    else()
      # CMake gives programs -fPIE, with which GCC refuses the precompiled header of a library.
      target_compile_options(${target} PRIVATE -fPIC)
      target_precompile_headers(${target} REUSE_FROM troupe_torch)
    endif()
  endforeach()
endfunction()
