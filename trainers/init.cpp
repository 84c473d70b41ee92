#include "troupe/trainers/init.hpp"

#include <csignal>
#include <cstdio>

#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/trainers/launch.hpp"
#include "troupe/trainers/rank_runner.hpp"

namespace troupe {

using namespace internal;

void init(int argc, char** argv) {
  static_cast<void>(had_stdout()); // before anything is opened
  register_messages();
  // Exceeding a file size limit is an error of the write, not a signal.
  struct sigaction now {};
  if (sigaction(SIGXFSZ, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    std::signal(SIGXFSZ, SIG_IGN);
  if (auto ok = init_spawner(rank_process); !ok)
    std::fprintf(stderr, "troupe: %s\n", ok.error().message.c_str());
  find_launch(argc, argv);
}

} // namespace troupe
