#include "troupe/trainers/host_door.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "troupe/actors/door/door.hpp"
#include "troupe/actors/door/ticket.hpp"
#include "troupe/actors/door/tls_link.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"
#include "troupe/actors/transport/resumable_link.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/internet_socket.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/ticket_folder.hpp"

namespace troupe::internal {

namespace {

/// The first, the second, the fourth, ...: a flood must not fill the console.
bool is_shown(std::uint64_t count) {
  return (count & (count - 1)) == 0;
}

/// For the next connection of an agent. Short if the agent was heard a moment
/// ago, because that is also the time until the death of an agent is noticed
/// whose end broke its connection instead of closing it; twice as long as an
/// agent that hears nothing takes to notice. After a longer silence, of three
/// ticks, the network was in trouble, and the agent dials again.
resume_options driver_patience(std::chrono::milliseconds lost_after) {
  resume_options result;
  result.patience = lost_after;
  result.least_patience = std::chrono::seconds{2};
  result.sudden = std::chrono::seconds{3};
  return result;
}

/// The driver's kernel does not give up a connection before the run gives up
/// the host. That of an agent does after the usual limit: it dials again while
/// TCP would wait longer and longer.
link_limits driver_limits(std::chrono::milliseconds lost_after) {
  link_limits result;
  result.dead_after = std::max(
    result.dead_after, std::chrono::ceil<std::chrono::seconds>(lost_after));
  return result;
}

/// The link over *client*. An agent that still lives after its connection was
/// closed dials again, and its driver waits for that; but not if nothing is
/// between them that closes connections: then its end is known at once. What
/// is, a proxy or the translation of addresses, mostly shows another end.
std::unique_ptr<byte_link> link_over(std::unique_ptr<tls_channel> client,
                                     const door_greeting& x) {
  auto seen = endpoint::remote(client->socket());
  auto is_direct = seen && seen->bytes() == x.sent_from;
  return make_link(std::move(client), is_direct);
}

std::string address_text(const std::vector<std::string>& addresses,
                         std::uint16_t port) {
  return concat(joined(addresses), " port ", port);
}

} // namespace

/// Where the connections of the door go, once there is an endpoint for them.
/// Any thread.
class host_door::receiver {
public:
  receiver(std::chrono::milliseconds lost_after, time_function now,
           std::size_t most_early)
    : lost_after_(lost_after), now_(std::move(now)), most_early_(most_early) {}

  /// Connections that came before go there now.
  void admit(private_endpoint& endpoint) {
    std::lock_guard guard{mutex_};
    endpoint_ = &endpoint;
    drop_abandoned();
    for (auto& [id, early] : std::exchange(early_, {}))
      begin_link(id, std::move(early.first));
  }

  bool has_link(const link_id& id) {
    std::lock_guard guard{mutex_};
    auto found = links_.find(id);
    return early_.contains(id)
           || (found != links_.end() && !found->second.expired());
  }

  /// Takes a connection of a new link, or the next one of a link that is here.
  void add(std::unique_ptr<tls_channel> client, const door_greeting& x) {
    std::unique_lock lock{mutex_};
    std::erase_if(links_, [](auto& link) { return link.second.expired(); });
    drop_abandoned();
    auto found = links_.find(x.link);
    auto link = found == links_.end() ? nullptr : found->second.lock();
    if (x.resumes && link) {
      lock.unlock();
      link->connect(link_over(std::move(client), x));
    } else if (auto early = early_.find(x.link);
               x.resumes && early != early_.end()) {
      early->second.first = link_over(std::move(client), x);
      // Nothing was sent over the one before.
    } else if (x.resumes || link || is_over_) {
      return; // Closes it.
    } else if (endpoint_) {
      begin_link(x.link, link_over(std::move(client), x));
    } else {
      make_room();
      early_.emplace(x.link,
                     early_link{link_over(std::move(client), x), now_()});
    }
  }

  /// From now on takes no other links.
  void end_links(std::chrono::milliseconds limit) {
    {
      std::lock_guard guard{mutex_};
      is_over_ = true;
    }
    auto deadline = std::chrono::steady_clock::now() + limit;
    for (auto ended = wait_outcome::ready; ended == wait_outcome::ready;) {
      link_ended_->clear();
      if (links().empty()) // Holds none of them while it waits.
        break;
      ended = wait_until_ready(link_ended_->fd(), POLLIN, deadline);
    }
    for (auto& x : links())
      x->connect(nullptr);
  }

private:
  std::vector<std::shared_ptr<link_switch>> links() {
    std::lock_guard guard{mutex_};
    std::vector<std::shared_ptr<link_switch>> result;
    for (auto& [id, link] : links_)
      if (auto strong = link.lock())
        result.push_back(std::move(strong));
    return result;
  }

  /// A connection that waits for the endpoint.
  struct early_link {
    std::unique_ptr<byte_link> first;
    std::chrono::steady_clock::time_point since;
  };

  /// An agent gives a connection up that was not answered on, and calls again.
  /// What it leaves must not keep others out, nor take all descriptors.
  void drop_abandoned() {
    std::erase_if(early_, [limit = now_() - 2 * connect_timeout](auto& x) {
      return x.second.since < limit;
    });
  }

  /// The oldest has probably been given up: an agent waits for less time than
  /// `drop_abandoned` does.
  void make_room() {
    if (early_.size() >= most_early_)
      early_.erase(std::ranges::min_element(
        early_, {}, [](const auto& x) { return x.second.since; }));
  }

  void begin_link(const link_id& id, std::unique_ptr<byte_link> first) {
    std::shared_ptr<link_switch> next{new link_switch,
                                      [ended = link_ended_](link_switch* x) {
                                        delete x;
                                        ended->notify();
                                      }};
    links_[id] = next;
    endpoint_->add(std::make_unique<resumable_link>(
      std::move(first), std::move(next), driver_patience(lost_after_)));
  }

  const std::chrono::milliseconds lost_after_;
  const time_function now_;
  const std::size_t most_early_;
  std::mutex mutex_;
  bool is_over_ = false;
  private_endpoint* endpoint_ = nullptr;
  std::map<link_id, early_link> early_;
  std::map<link_id, std::weak_ptr<link_switch>> links_;
  std::shared_ptr<const wake_event> link_ended_ =
    std::make_shared<const wake_event>();
};

struct host_door::parts {
  ticket own;
  std::string address;
  std::shared_ptr<receiver> to;
  owned_ptr<door> port; ///< Its functions use `to`.
  fs::path file;        ///< With the ticket; empty: there is none.
  struct stat written {};
  owner_process owner;
};

host_door::host_door(std::unique_ptr<parts> x) : parts_(std::move(x)) {}

host_door::~host_door() {
  auto& x = *parts_;
  if (x.file.empty() || !x.owner.is_here())
    return;
  // Not that of a later run.
  struct stat found {};
  if (::stat(x.file.c_str(), &found) == 0 && found.st_ino == x.written.st_ino
      && found.st_dev == x.written.st_dev)
    ::unlink(x.file.c_str());
}

const std::string& host_door::address() const noexcept {
  return parts_->address;
}

expected<std::unique_ptr<host_door>>
host_door::open(const std::string& run_id, const fs::path& tickets,
                std::chrono::milliseconds lost_after, note_function note,
                time_function now, std::size_t most_early) {
  auto x = std::make_unique<parts>();
  x->to = std::make_shared<receiver>(lost_after, std::move(now), most_early);
  door_args args;
  args.link = driver_limits(lost_after);
  if (tickets.empty()) {
    TROUPE_TRY(auto certificates, make_certificates(run_id));
    TROUPE_TRY(args.own, tls_identity::make(certificates.driver,
                                            host_role::driver, run_id));
    x->own.run = run_id;
    x->own.own = std::move(certificates.agent);
    TROUPE_TRY(x->own.addresses, host_addresses());
  } else {
    TROUPE_TRY(x->own, read_ticket_of(tickets, host_role::driver));
    TROUPE_TRY(args.own,
               tls_identity::make(x->own.own, host_role::driver, x->own.run));
    args.port = x->own.port;
  }
  args.on_client = [to = x->to](std::unique_ptr<tls_channel> client,
                                const door_greeting& greeting) {
    to->add(std::move(client), greeting);
  };
  args.has_link = [to = x->to](const link_id& id) { return to->has_link(id); };
  args.on_refusal = [note = std::move(note)](const door_refusal& refusal) {
    if (!refusal.has_left && is_shown(refusal.count))
      note(concat("a connection was refused (", refusal.count,
                  " so far): ", refusal.address, ": ", refusal.text));
  };
  TROUPE_TRY(x->port, door::open(std::move(args)));
  x->own.port = x->port->port();
  x->address = address_text(x->own.addresses, x->own.port);
  return std::unique_ptr<host_door>{new host_door{std::move(x)}};
}

expected<bool> host_door::has_place_for_ticket(const fs::path& path) {
  return is_place_for_ticket(path);
}

std::string host_door::ticket_text() const {
  return std::string{encode(parts_->own).view()};
}

void host_door::end_connections(std::chrono::milliseconds limit) {
  parts_->to->end_links(limit);
}

expected<void> host_door::admit(private_endpoint& endpoint,
                                const fs::path& ticket) {
  auto& x = *parts_;
  x.to->admit(endpoint);
  if (ticket.empty())
    return {};
  TROUPE_TRY(auto path, absolute_path(ticket));
  TROUPE_TRY_VOID(replace_file(path, encode(x.own).view()));
  if (::stat(path.c_str(), &x.written) == 0)
    x.file = std::move(path);
  return {};
}

} // namespace troupe::internal
