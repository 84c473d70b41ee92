#include "troupe/trainers/ticket_folder.hpp"

#include "troupe/runtime/hosts/launch_environment.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Of the certificates. Tickets of another folder have another authority.
constexpr auto run_name = "tickets";

} // namespace

expected<void> make_ticket_folder(const fs::path& folder,
                                  std::string_view address) {
  TROUPE_TRY(auto driver, parse_driver_address(address));
  TROUPE_TRY(auto path, absolute_path(folder));
  for (auto name : {driver_ticket_file, agent_ticket_file}) {
    TROUPE_TRY(auto found, look_up(path / name));
    if (found.exists())
      return failure(ec::conflict, concat(path.string(), " has a ", name,
                                          " already: name another folder"));
  }
  TROUPE_TRY(auto certificates, make_certificates(run_name));
  ticket x;
  x.addresses = {driver.host};
  x.port = driver.port;
  x.run = run_name;
  x.own = std::move(certificates.driver);
  TROUPE_TRY_VOID(make_folders(path));
  TROUPE_TRY_VOID(write_new_file(path / driver_ticket_file, encode(x).view()));
  x.own = std::move(certificates.agent);
  return write_new_file(path / agent_ticket_file, encode(x).view());
}

expected<ticket> read_ticket_of(const fs::path& path, host_role role) {
  TROUPE_TRY(auto found, look_up(path));
  if (!found.is_folder())
    return read_ticket_file(path, role);
  return read_ticket_file(
    path / (role == host_role::driver ? driver_ticket_file : agent_ticket_file),
    role);
}

} // namespace troupe::internal
