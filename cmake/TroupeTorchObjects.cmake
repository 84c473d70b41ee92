# troupe_torch_objects(target...): targets whose sources need all of LibTorch share the precompiled header of troupe_torch.
function(troupe_torch_objects)
  foreach(target IN LISTS ARGN)
    # GCC refuses the precompiled header of a library with -fPIE, which CMake gives programs, and GCC 14 at another level.
    target_compile_options(${target} PRIVATE -fPIC $<$<CONFIG:Release>:-O3>)
    target_precompile_headers(${target} REUSE_FROM troupe_torch)
  endforeach()
endfunction()
