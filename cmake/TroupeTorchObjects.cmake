# troupe_torch_objects(target...): targets whose sources need all of LibTorch share the precompiled header of troupe_torch.
function(troupe_torch_objects)
  foreach(target IN LISTS ARGN)
    # GCC refuses the precompiled header of a library with -fPIE, which CMake gives programs. GCC 14 refuses it at another
    # level; before, tests stay at their own, which compiles a quarter faster.
    target_compile_options(${target} PRIVATE -fPIC
      $<$<AND:$<CONFIG:Release>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,14>>:-O3>)
    target_precompile_headers(${target} REUSE_FROM troupe_torch)
  endforeach()
endfunction()
