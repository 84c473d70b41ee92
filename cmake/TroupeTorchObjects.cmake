# troupe_torch_objects(target...): targets whose sources need all of LibTorch share the precompiled header of troupe_torch.
function(troupe_torch_objects)
  foreach(target IN LISTS ARGN)
    # CMake gives programs -fPIE, with which GCC refuses the precompiled header of a library.
    target_compile_options(${target} PRIVATE -fPIC)
    target_precompile_headers(${target} REUSE_FROM troupe_torch)
  endforeach()
endfunction()
