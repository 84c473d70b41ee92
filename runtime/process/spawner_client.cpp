#include "troupe/runtime/process/spawner_client.hpp"

#include <csignal>

#include <unistd.h>

#include "troupe/runtime/process/spawner_connection.hpp"

namespace troupe {

spawner_client::spawner_client(spawner_link link)
  : impl_{std::make_unique<spawner_connection>(std::move(link))} {}

spawner_client::~spawner_client() {
  // A fork of the user's process has the object, but neither its thread nor
  // the right to end its spawner.
  if (impl_->owner() != ::getpid())
    static_cast<void>(impl_.release());
}

spawner_client::process_id spawner_client::spawn(spawn_request request,
                                                 started_callback started,
                                                 ended_callback ended) {
  return impl_->spawn(std::move(request), std::move(started), std::move(ended));
}

void spawner_client::kill(process_id id, int signal) {
  impl_->kill(id, signal);
}

bool spawner_client::has_ended(process_id id) const {
  return impl_->has_ended(id);
}

pid_t spawner_client::spawner_pid() const {
  return impl_->spawner_pid();
}

} // namespace troupe
