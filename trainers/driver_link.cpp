#include "troupe/trainers/driver_link.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "troupe/actors/door/tls_link.hpp"
#include "troupe/runtime/hosts/host_list.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/ticket_folder.hpp"

namespace troupe::internal {

namespace {

/// How long it tries a ticket of a driver that may have ended meanwhile, or one
/// with a name, which resolvers answer after 5 s and more if their first server
/// is gone; how often it looks for one in a file.
constexpr auto ticket_age = std::chrono::seconds{5};
constexpr auto named_ticket_age = std::chrono::seconds{15};
constexpr auto look_interval = std::chrono::milliseconds{100};

/// How long a file may be no ticket: it may be under way here (`scp`), or its
/// driver removes it at this moment.
constexpr auto ticket_arrival = std::chrono::seconds{1};

/// The file that is to have the ticket: *path*, or the one in this folder.
fs::path ticket_file_at(const fs::path& path) {
  struct stat found {};
  auto is_folder = ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  return is_folder ? path / agent_ticket_file : path;
}

/// The ticket of *file*; nothing if there is none.
expected<std::optional<ticket>> look_for_ticket(const fs::path& file) {
  struct stat found {};
  auto is_found = ::stat(file.c_str(), &found) == 0;
  if (!is_found && (errno == ENOENT || errno == ENOTDIR))
    return std::nullopt;
  if (!is_found)
    return system_failure(may_pass(errno) ? ec::storage : ec::invalid_config,
                          "the ticket " + file.string());
  TROUPE_TRY(auto result, read_ticket_file(file));
  return result;
}

/// The agent may start before its driver, which writes the file, and while it
/// still has the ticket of an earlier start.
expected<found_driver> find_by_file(const fs::path& path, int stop,
                                    std::chrono::milliseconds patience) {
  using clock = std::chrono::steady_clock;
  auto deadline = clock::now() + patience;
  std::optional<clock::time_point> bad_since;
  fs::path file;
  error last; // None: there is no ticket.
  pollfd asked{stop, POLLIN, 0};
  while (clock::now() < deadline) {
    file = ticket_file_at(path);
    auto found = look_for_ticket(file);
    if (found && *found) {
      auto& ticket = **found;
      bad_since.reset();
      // Even the last try is long enough to say why each address fails.
      auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now());
      auto limit = std::clamp<std::chrono::milliseconds>(left, ticket_age,
                                                         ticket_age_of(ticket));
      auto dialed = dial(ticket, {.limit = limit, .stop = stop});
      if (dialed)
        return found_driver{std::move(ticket), std::move(*dialed)};
      last = dialed.error();
      if (last.code != ec::timeout)
        break;
    } else if (!found) {
      last = found.error();
      bad_since = bad_since.value_or(clock::now());
      if (clock::now() - *bad_since >= ticket_arrival)
        break;
    } else if (std::exchange(bad_since, std::nullopt)) {
      last = {};
    }
    if (::poll(&asked, 1, static_cast<int>(look_interval.count())) > 0)
      return failure(ec::stopped, "a signal asked it to leave");
  }
  if (last)
    return tl::unexpected{std::move(last)};
  return failure(ec::timeout, concat("there is no ticket ", file.string()));
}

expected<ticket> read_standard_input(int stop) {
  TROUPE_TRY(auto text, read_ticket_text(STDIN_FILENO, ticket_patience, stop));
  if (text.view().empty())
    return failure(
      ec::corrupt,
      "no ticket came by standard input; TROUPE_TICKET is not set");
  return parse_ticket(text.view());
}

} // namespace

std::chrono::milliseconds ticket_age_of(const ticket& x) {
  return std::ranges::all_of(x.addresses, is_host_address) ? ticket_age
                                                           : named_ticket_age;
}

expected<found_driver> find_driver(const fs::path& path, std::string_view text,
                                   int stop,
                                   std::chrono::milliseconds patience) {
  if (!path.empty())
    return find_by_file(path, stop, patience);
  TROUPE_TRY(auto ticket,
             text.empty() ? read_standard_input(stop) : parse_ticket(text));
  auto limit = text.empty() ? patience : ticket_age;
  TROUPE_TRY(auto dialed, dial(ticket, {.limit = limit, .stop = stop}));
  return found_driver{std::move(ticket), std::move(dialed)};
}

driver_redialer::driver_redialer(found_driver& x)
  : to_(std::move(x.own)), link_(x.channel.link) {
  to_.addresses = {x.channel.other_end};
}

std::unique_ptr<byte_link>
driver_redialer::make_link(std::unique_ptr<tls_channel> first) {
  resume_options options;
  options.on_break = [self = shared_from_this()] { self->dial_again(); };
  return std::make_unique<resumable_link>(internal::make_link(std::move(first)),
                                          next_, std::move(options));
}

void driver_redialer::wait_for(std::chrono::milliseconds lost_after) {
  next_->wait_for(std::max(lost_after, resume_options{}.patience));
}

void driver_redialer::stop() {
  std::lock_guard guard{mutex_};
  is_over_ = true;
  stop_.notify();
  if (thread_.joinable())
    thread_.join();
}

void driver_redialer::dial_again() {
  std::lock_guard guard{mutex_};
  if (is_over_)
    return;
  if (thread_.joinable())
    thread_.join(); // It has brought the connection that broke now.
  auto started = start_thread([this] {
    auto limit = next_->patience().value_or(resume_options{}.patience);
    auto found =
      dial(to_, {.limit = limit, .stop = stop_.fd(), .resumes = link_});
    next_->connect(found ? internal::make_link(std::move(found->channel))
                         : nullptr);
  });
  if (started)
    thread_ = std::move(*started);
  else
    next_->connect(nullptr);
}

} // namespace troupe::internal
