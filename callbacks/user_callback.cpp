#include "troupe/callbacks/user_callback.hpp"

#include <cstdlib>
#include <memory>
#include <typeinfo>

#include <cxxabi.h>

namespace troupe {

using namespace internal;

std::string user_callback::name() const {
  auto* mangled = typeid(*this).name();
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> text{
    abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free};
  return status == 0 ? text.get() : mangled;
}

} // namespace troupe
