#include "troupe/trainers/init.hpp"

#include <cstdio>

#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/trainers/rank_process.hpp"

namespace troupe {

void init(int, char**) {
  register_messages();
  if (auto ok = init_spawner(rank_process); !ok)
    std::fprintf(stderr, "troupe: %s\n", ok.error().message.c_str());
}

} // namespace troupe
