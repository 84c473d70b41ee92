// Tickets that agents find, and that a run cannot write; agents whose driver
// does not answer.

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <caf/io/middleman.hpp>
#include <caf/typed_response_promise.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <troupe/actors.hpp>

#include "tests/actors/door/door_fixture.hpp"
#include "tests/integration/hosts/hosts_fixture.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/door/ticket.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/trainers/driver_link.hpp"
#include "troupe/trainers/host_door.hpp"
#include "troupe/trainers/node_agent.hpp"

namespace troupe::internal::test {

namespace {

/// An agent, and the door of a driver that ends as soon as it has let it in, or
/// `begins_late`: then it does so with the second connection.
class agent_ticket_test : public testing::Test {
protected:
  agent_ticket_test() {
    door_args args{certificates_.driver_identity(), {}, {}};
    args.on_client = [this](std::unique_ptr<tls_channel> client,
                            const door_greeting&) {
      if (clients_++ == 0 && begins_late_)
        silent_ = std::move(client);
    };
    door_ = *door::open(std::move(args));
  }

  std::string ticket_text() const {
    return std::string{
      encode(
        ticket{{"127.0.0.1"}, (*door_)->port(), "run1", certificates_.agent})
        .view()};
  }

  /// Writes the ticket at once, as a driver does.
  void write_ticket(const std::string& text) {
    ASSERT_TRUE(replace_file(file_, text));
  }

  /// *errors* is what it has as standard error.
  program start_agent(int errors = 2) {
    auto self = fs::canonical("/proc/self/exe").string();
    auto made = start_program(
      {"/usr/bin/env",
       {"env", "TROUPE_TICKET=" + file_.string(), self, "--node-agent"},
       std::nullopt,
       {{0, 0}, {1, 1}, {errors, 2}}},
      "an agent");
    EXPECT_TRUE(made) << made.error().message;
    return {made ? made->pid : -1};
  }

  temporary_folder folder_;
  fs::path file_ = folder_ / "ticket";
  door_certificates certificates_;
  std::atomic<int> clients_ = 0;
  std::atomic<bool> begins_late_ = false;
  std::unique_ptr<tls_channel> silent_; ///< Of the door's thread.
  std::optional<owned_ptr<door>> door_;
};

TEST_F(agent_ticket_test, an_agent_whose_driver_ends_then_is_to_come_again) {
  write_ticket(ticket_text());
  EXPECT_EQ(start_agent().wait(), 75);
  EXPECT_EQ(clients_, 1);
}

// The port of a driver with tickets of its own is open before the run begins.
TEST_F(agent_ticket_test, an_agent_that_gets_no_answer_calls_again) {
  begins_late_ = true;
  write_ticket(ticket_text());
  EXPECT_EQ(start_agent().wait(), 75);
  EXPECT_EQ(clients_, 2);
}

/// A worker group that answers no hello, as if a signal had stopped its driver.
struct silent_group {
  explicit silent_group(std::promise<void>& asked) {
    auto unanswered = std::make_shared<std::vector<promise>>();
    group_ = caf::actor_cast<worker_group_actor>(
      system_.spawn([unanswered, &asked](caf::event_based_actor* self) {
        return caf::behavior{
          [=, &asked](const agent_hello&, const caf::strong_actor_ptr&) {
            unanswered->push_back(self->make_response_promise<host_accepted>());
            asked.set_value();
            return unanswered->back();
          }};
      }));
    endpoint_.emplace(*open_private_endpoint(system_, group_, {}));
  }

  ~silent_group() { caf::anon_send_exit(group_, caf::exit_reason::kill); }

  /// Nothing that comes is read until *end*.
  void stand_still(std::shared_future<void> end) {
    auto begun = std::make_shared<std::promise<void>>();
    system_.middleman().backend().post([begun, end] {
      begun->set_value();
      end.wait();
    });
    begun->get_future().wait();
  }

  using promise = caf::typed_response_promise<host_accepted>;

  own_system system_;
  worker_group_actor group_;
  std::optional<private_endpoint> endpoint_;
};

TEST_F(agent_ticket_test, an_agent_waits_for_its_driver_until_it_is_to_leave) {
  std::promise<void> asked;
  std::promise<void> end_of_standstill;
  silent_group driver{asked};
  auto entrance =
    *host_door::open("run1", {}, std::chrono::seconds{10}, [](auto) {});
  ASSERT_TRUE(entrance->admit(*driver.endpoint_, {}));
  auto own = *parse_ticket(entrance->ticket_text(), host_role::agent);
  own.addresses = {"127.0.0.1"};
  write_ticket(std::string{encode(own).view()});
  auto said = folder_ / "said";
  unique_fd out{::open(said.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  ASSERT_TRUE(out);
  auto agent = start_agent(out.get());
  asked.get_future().wait();
  driver.stand_still(end_of_standstill.get_future().share());
  ::kill(agent.pid, SIGTERM);
  EXPECT_EQ(agent.wait(), 75);
  end_of_standstill.set_value();
  EXPECT_THAT(bytes_of(said),
              testing::HasSubstr("it was to end before it had a place"));
  entrance->end_connections(std::chrono::milliseconds{10});
}

/// An agent that has said what it waits for.
class waiting_agent_test : public agent_ticket_test {
protected:
  waiting_agent_test() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reads_.reset(ends[0]);
    unique_fd writes{ends[1]};
    agent_ = start_agent(writes.get());
    writes.reset();
    auto wanted =
      concat("the agent of this host waits up to 120 s for the ticket ",
             file_.string(), " and the driver that it names\n");
    std::string said;
    for (char c = 0; said.find(wanted) == said.npos; said += c)
      if (::read(reads_.get(), &c, 1) != 1) {
        ADD_FAILURE() << said;
        return;
      }
  }

  unique_fd reads_; ///< What it says.
  program agent_;
};

TEST_F(waiting_agent_test, finds_the_ticket_that_comes) {
  write_ticket(ticket_text());
  EXPECT_EQ(agent_.wait(), 75);
}

// As of a job with --signal=USR2@120.
TEST_F(waiting_agent_test, is_to_come_again_after_a_signal_of_a_scheduler) {
  ::kill(agent_.pid, SIGUSR2);
  EXPECT_EQ(agent_.wait(), 75);
}

// Copied by scp, for example.
TEST_F(agent_ticket_test, an_agent_waits_for_the_rest_of_its_ticket) {
  auto whole = ticket_text();
  ASSERT_TRUE(replace_file(folder_ / "whole", whole));
  write_ticket(whole.substr(0, whole.size() / 2));
  unique_fd reads{::inotify_init1(IN_CLOEXEC)};
  ASSERT_GE(::inotify_add_watch(reads.get(), file_.c_str(), IN_CLOSE_NOWRITE),
            0);
  auto agent = start_agent();
  pollfd has_read{reads.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&has_read, 1, 30'000), 1);
  fs::rename(folder_ / "whole", file_);
  EXPECT_EQ(agent.wait(), 75);
  EXPECT_EQ(clients_, 1);
}

TEST_F(agent_ticket_test, an_agent_without_a_ticket_in_its_file_ends) {
  write_ticket("none\n");
  EXPECT_EQ(start_agent().wait(), 78);
}

TEST_F(agent_ticket_test, an_agent_without_a_ticket_says_where_it_looked) {
  auto said = folder_ / "said";
  unique_fd out{::open(said.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  ASSERT_TRUE(out);
  auto self = fs::canonical("/proc/self/exe").string();
  auto made =
    start_program({"/usr/bin/env",
                   {"env", "-u", "TROUPE_TICKET", self, "--node-agent"},
                   std::nullopt,
                   {{-1, 0}, {1, 1}, {out.get(), 2}}},
                  "an agent");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(program{made->pid}.wait(), 78);
  EXPECT_THAT(bytes_of(said),
              testing::HasSubstr("no ticket came by standard input; "
                                 "TROUPE_TICKET is not set"));
}

// A lookup begins with each reading of the ticket, and may take 5 s if the
// first server of names is gone.
TEST(ticket_age_test, is_longer_than_the_lookup_of_a_name) {
  ticket numbers;
  numbers.addresses = {"10.0.0.1", "fd00::1"};
  ticket names;
  names.addresses = {"10.0.0.1", "train-0.train"};
  EXPECT_GT(ticket_age_of(names), 2 * ticket_age_of(numbers));
}

// As between two runs of mpirun.
TEST_F(agent_ticket_test,
       an_agent_that_looks_again_says_nothing_without_driver) {
  agent_orders orders;
  orders.ticket_text = ticket_text();
  orders.looks_again = true;
  door_.reset();
  testing::internal::CaptureStderr();
  auto end = run_node_agent(orders);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(end.code, agent_exit::try_again);
  EXPECT_FALSE(end.has_to_leave);
}

TEST_F(agent_ticket_test, an_agent_that_cannot_look_for_a_ticket_ends) {
  fs::create_symlink(file_, file_); // More links than the system follows.
  EXPECT_EQ(start_agent().wait(), 78);
}

/// Starts a run in *folder* that is to be refused for its *ticket*.
void expect_refusal(const temporary_folder& folder, const fs::path& ticket) {
  run_config config;
  config.name = "run";
  config.storage_path = folder / "storage";
  config.quiet = true;
  scaling_config scaling{.num_workers = 2, .agents = 1};
  config.agent_ticket = ticket;
  auto outcome =
    data_parallel_trainer{[](train_context&) {},
                          train_options{.scaling = scaling, .run = config}}
      .fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::invalid_config);
  EXPECT_FALSE(fs::exists(folder / "storage"));
}

TEST(run_ticket_test, is_refused_before_a_run_begins_if_it_cannot_be_written) {
  temporary_folder folder;
  expect_refusal(folder, folder / "missing" / "ticket");
}

TEST(run_ticket_test, leads_agents_to_one_run_of_a_program_at_a_time) {
  temporary_folder folder;
  own_system system;
  auto start = [&](const char* name, const char* ticket) {
    train_options options;
    options.scaling = {.num_workers = 2, .agents = 1};
    options.run = run_with_agents(folder.path().string());
    options.run.name = name;
    options.run.agent_ticket = folder / ticket;
    return data_parallel_trainer{[](train_context&) {}, options}.start(system);
  };
  auto first = start("first", "ticket");
  ASSERT_TRUE(first) << first.error().message;
  auto second = start("second", "ticket");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ec::conflict);
  EXPECT_THAT(
    second.error().message,
    testing::HasSubstr("leads agents to another run of this program"));
  EXPECT_FALSE(fs::exists(folder / "storage/second"));
  EXPECT_TRUE(start("third", "another_ticket"));
  first->abort();
  first->wait();
  EXPECT_TRUE(start("second", "ticket")) << "a handle keeps nothing";
}

TEST(run_ticket_test, does_not_replace_another_file) {
  temporary_folder folder;
  auto notes = folder / "notes.txt";
  write_bytes(notes, "my notes\n");
  expect_refusal(folder, notes);
  EXPECT_EQ(bytes_of(notes), "my notes\n");
  expect_refusal(folder, folder.path());
}

} // namespace

} // namespace troupe::internal::test
