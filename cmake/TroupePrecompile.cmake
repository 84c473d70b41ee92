# troupe_precompile(target...): compiles Troupe's header, with all of LibTorch if the first target links it, once, in front of
# each source of these targets. They must have the same compile options and the same kind (programs, or libraries).
#
#   target_link_libraries(app PRIVATE troupe::torch)
#   troupe_precompile(app)
function(troupe_precompile first)
  get_target_property(libraries ${first} LINK_LIBRARIES)
  if(libraries MATCHES "troupe::(torch|images)|troupe::troupe" AND TARGET troupe::torch)
    target_precompile_headers(${first} PRIVATE <torch/torch.h> <troupe/torch.hpp>)
  else()
    target_precompile_headers(${first} PRIVATE <troupe/train.hpp>)
  endif()
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM ${first})
  endforeach()
endfunction()
