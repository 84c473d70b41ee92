#pragma once

#include <thread>
#include <vector>

#include "messages.hpp"

/// `actor_learner environment`: the process plays games, and sends what
/// happens to the replay at a socket. Ends when that does.
int be_environment(int argc, char** argv);

/// Processes with environments. One that is killed is started again; the
/// destructor ends all.
class environment_processes {
public:
  environment_processes(int count, const troupe::fs::path& socket);

private:
  std::vector<std::jthread> keepers_;
};
