#include "troupe/runtime/checkpoint/checkpoint_name.hpp"

#include <algorithm>

namespace troupe {

expected<void> validate_checkpoint_name(const std::string& name) {
  auto bad = [](unsigned char c) { return c == '/' || c < 0x20 || c == 0x7f; };
  if (name.empty())
    return failure(ec::invalid_argument, "a checkpoint's name is empty");
  if (name[0] == '.' || name.size() > 200 || std::ranges::any_of(name, bad))
    return failure(ec::invalid_argument,
                   "the checkpoint name '" + name.substr(0, 200)
                     + "' is not one path component: no '/', no control "
                       "characters, no dot in front, at most 200 bytes");
  return {};
}

tl::unexpected<error> name_is_taken(const std::string& name) {
  return failure(ec::conflict,
                 "the checkpoint name '" + name
                   + "' is taken: the run has a checkpoint of that name, or "
                     "something else lies in checkpoints/"
                   + name);
}

} // namespace troupe
