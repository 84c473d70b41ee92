#include "troupe/trainers/torch/loop/loop_callback.hpp"

#include <typeinfo>

#include <c10/util/Type.h>

namespace troupe {

std::string loop_callback::state_key() const {
  return c10::demangle(typeid(*this).name());
}

} // namespace troupe
