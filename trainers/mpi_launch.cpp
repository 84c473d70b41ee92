#include "troupe/trainers/mpi_launch.hpp"

#include <sys/prctl.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "troupe/runtime/hosts/pmix_session.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How long an agent that was dropped leaves the driver alone.
constexpr auto pause = std::chrono::seconds{1};

/// What a driver publishes first.
constexpr auto driver_name = "troupe.driver";

/// How long an agent waits for the driver's `troupe::init`, and how often it
/// looks for that. A lookup that waits has no limit: Open MPI 4.1 ignores
/// `PMIX_TIMEOUT`, also where it is required (5 s became 20, until the entry
/// came).
constexpr auto init_patience = std::chrono::seconds{120};
constexpr auto probe_interval = std::chrono::milliseconds{100};

/// What the *number*-th run publishes: its ticket, or an empty text instead of
/// a run.
std::string ticket_name(int number) {
  return concat("troupe.ticket.", number);
}

/// The session of a driver, until the process ends.
struct driver_session {
  std::unique_ptr<pmix_session> session;
  owner_process owner;
  int runs = 0;

  ~driver_session() {
    if (session && owner.is_here())
      (void) session->publish(ticket_name(runs), {});
  }
};

driver_session& own_session() {
  static driver_session result;
  return result;
}

agent_exit failed(const error& reason) {
  print_agent_end(reason.message);
  return agent_exit::never;
}

/// The driver may end in good order before it has a session, which the server
/// shows no one. Later it publishes its end, and the server ends all processes
/// if it fails.
expected<void> await_driver(const pmix_session& session) {
  auto deadline = std::chrono::steady_clock::now() + init_patience;
  for (;;) {
    TROUPE_TRY(auto found, session.find(driver_name));
    if (found)
      return {};
    if (std::chrono::steady_clock::now() >= deadline)
      return failure(ec::timeout,
                     concat("rank 0 has not called troupe::init within ",
                            duration_text(init_patience)));
    std::this_thread::sleep_for(probe_interval);
  }
}

/// Takes part in the run of *orders*, again if the driver drops this host,
/// until the run called *next* is published. Nothing if the agent can serve
/// other runs.
std::optional<agent_exit> serve_run(const pmix_session& session,
                                    agent_orders orders,
                                    const std::string& next) {
  for (;;) {
    auto end = run_node_agent(orders);
    if (end.code == agent_exit::done)
      return std::nullopt;
    if (end.code == agent_exit::never || end.has_to_leave)
      return end.code;
    auto other = session.find(next);
    if (!other)
      return failed(other.error());
    if (*other)
      return std::nullopt;
    orders.looks_again = true;
    std::this_thread::sleep_for(pause);
  }
}

} // namespace

expected<void> lead_mpi() {
  auto& own = own_session();
  // Once mpirun is gone, so are its agents, and nothing ends this process.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  TROUPE_TRY(own.session, pmix_session::open());
  own.owner = {};
  return own.session->publish(driver_name, {});
}

expected<int> mpi_host_count() {
  return own_session().session->host_count();
}

expected<void> publish_mpi_ticket(const std::string& text) {
  auto& own = own_session();
  TROUPE_TRY_VOID(own.session->publish(ticket_name(own.runs), text));
  ++own.runs; // Not before: agents wait for this number until it is published.
  return {};
}

expected<void> leave_mpi() {
  TROUPE_TRY(auto session, pmix_session::open());
  return {};
}

agent_exit serve_mpi() {
  auto session = pmix_session::open();
  if (!session)
    return failed(session.error());
  // Not every launcher has it in the environment.
  if ((*session)->local_rank() > 0) {
    std::fprintf(stderr, "troupe: mpirun: this process ends: its host has a "
                         "task already\n");
    return agent_exit::done;
  }
  if (auto ok = await_driver(**session); !ok)
    return failed(ok.error());
  for (int run = 0;; ++run) {
    auto ticket = (*session)->wait_for(ticket_name(run));
    if (!ticket)
      return failed(ticket.error());
    if (ticket->empty())
      return agent_exit::done;
    agent_orders orders;
    orders.ticket_text = std::move(*ticket);
    if (auto end =
          serve_run(**session, std::move(orders), ticket_name(run + 1)))
      return *end;
  }
}

} // namespace troupe::internal
