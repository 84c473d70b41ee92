#include "troupe/runtime/process/forked_process.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

void leave_if_forked(pid_t owner, std::string_view where,
                     const error& failure) {
  if (::getpid() == owner)
    return;
  try {
    std::cout.flush();
    std::clog.flush();
    std::fflush(nullptr);
    auto text = concat("troupe: process ", ::getpid(), ", which process ",
                       owner, " forked, left ", where, " and ends");
    if (failure)
      text += ": " + redacted(failure.message);
    text += '\n';
    std::fputs(text.c_str(), stderr);
  } catch (...) { // It ends in any case.
  }
  ::_exit(failure ? EXIT_FAILURE : EXIT_SUCCESS);
}

} // namespace troupe::internal
