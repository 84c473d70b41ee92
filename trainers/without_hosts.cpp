// What stands in for runs on several hosts in a build without OpenSSL.

#include <cstdio>
#include <string_view>

#include "troupe/trainers/host_door.hpp"
#include "troupe/trainers/node_agent.hpp"
#include "troupe/trainers/ring/link_security.hpp"
#include "troupe/trainers/ticket_folder.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view needs_openssl =
  "a run on several hosts needs OpenSSL, which this build of Troupe does not "
  "have";

} // namespace

struct host_door::parts {
  std::string address;
};

host_door::host_door(std::unique_ptr<parts> x) : parts_(std::move(x)) {}

host_door::~host_door() = default;

const std::string& host_door::address() const noexcept {
  return parts_->address;
}

expected<std::unique_ptr<host_door>>
host_door::open(const std::string&, const fs::path&, std::chrono::milliseconds,
                note_function, time_function, std::size_t) {
  return failure(ec::unsupported, std::string{needs_openssl});
}

expected<bool> host_door::has_place_for_ticket(const fs::path&) {
  return true;
}

std::string host_door::ticket_text() const {
  return {};
}

void host_door::end_connections(std::chrono::milliseconds) {}

expected<void> host_door::admit(private_endpoint&, const fs::path&) {
  return {};
}

expected<void> make_ticket_folder(const fs::path&, std::string_view) {
  return failure(ec::unsupported, std::string{needs_openssl});
}

expected<link_credentials> make_link_credentials(std::string_view) {
  return failure(ec::unsupported, std::string{needs_openssl});
}

expected<std::shared_ptr<link_security>>
encrypted_links(const link_credentials&, std::string_view) {
  return failure(ec::unsupported, std::string{needs_openssl});
}

agent_outcome run_node_agent(const agent_orders&) {
  std::fprintf(stderr, "troupe: %.*s\n", static_cast<int>(needs_openssl.size()),
               needs_openssl.data());
  return {agent_exit::never};
}

} // namespace troupe::internal
