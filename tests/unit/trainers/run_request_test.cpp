#include "troupe/trainers/run_request.hpp"

#include <functional>
#include <limits>
#include <map>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/environment_guard.hpp"
#include "troupe/trainers/launch.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

run_request request_of(train_loop loop) {
  return {{.num_workers = 2}, {}, std::move(loop)};
}

run_request plain_request() {
  return request_of(
    train_loop::make([](train_context&) {}, no_backend{}, no_config{}));
}

struct local_case {
  std::string name;
  std::function<run_request()> make;
  std::string says;
};

class run_request_test : public testing::TestWithParam<local_case> {};

} // namespace

TEST_P(run_request_test, is_refused_in_processes_and_runs_in_this_one) {
  auto request = GetParam().make();
  auto ok = validate(request);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code, ec::invalid_config);
  EXPECT_THAT(ok.error().message, HasSubstr(GetParam().says));
  request.scaling.where = placement::in_process;
  EXPECT_TRUE(validate(request));
  request.scaling = {.num_workers = 0};
  EXPECT_TRUE(validate(request));
}

TEST(request_for_hosts_test, names_a_file_for_their_ticket) {
  run_request request;
  request.scaling = {.num_workers = 2, .agents = 1};
  auto ok = validate(request);
  ASSERT_FALSE(ok);
  EXPECT_THAT(ok.error().message, HasSubstr("agent_ticket"));
  request.run.agent_ticket = "ticket";
  EXPECT_TRUE(validate(request));
}

TEST(request_for_hosts_test,
     has_no_more_agents_than_ranks_if_it_asks_for_them) {
  run_request request;
  request.scaling = {.num_workers = 1, .agents = 1};
  request.run.agent_ticket = "ticket";
  auto ok = validate(request);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code, ec::invalid_config);
  EXPECT_EQ(ok.error().message, "scaling.agents is 1, so that the run has 2 "
                                "hosts, but only 1 worker");
}

TEST(request_for_hosts_test, has_no_ranks_for_the_last_agents_that_were_found) {
  const char* program[] = {"train"};
  run_request request;
  run_request asking;
  asking.scaling.agents = 3;
  {
    environment_guard guard{
      {{"TROUPE_DRIVER", "localhost:4444"}, {"TROUPE_AGENTS", "3"}}};
    find_launch(1, program);
    request.scaling.num_workers = 2;
    EXPECT_TRUE(find_hosts(request));
    EXPECT_TRUE(find_hosts(asking));
  }
  find_launch(1, program);
  EXPECT_TRUE(validate(request));
  EXPECT_THAT(shares_of(request),
              testing::ElementsAre(host_share{0, 1}, host_share{1, 1},
                                   host_share{2, 0}, host_share{2, 0}));
  EXPECT_EQ(request.unused_hosts, 2);
  auto ok = validate(asking);
  ASSERT_FALSE(ok);
  EXPECT_THAT(ok.error().message, HasSubstr("only 1 worker"));
}

// Variables that contradict each other do not matter, if agents come by
// themselves; but each of several processes would be a driver of the run.
TEST(request_for_hosts_test, whose_agents_come_has_one_driver) {
  run_request request;
  request.scaling = {.num_workers = 2, .agents = 1};
  const char* program[] = {"train"};
  auto find = [&](const std::map<std::string, std::string>& variables) {
    environment_guard guard{variables};
    find_launch(1, program);
    return find_hosts(request);
  };
  EXPECT_TRUE(find({{"SLURM_JOB_ID", "7"}}));
  EXPECT_TRUE(find({{"PMI_RANK", "one"}, {"PMI_SIZE", "2"}}));
  auto several = find({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  find_launch(1, program);
  ASSERT_FALSE(several);
  EXPECT_EQ(several.error().code, ec::invalid_config);
  EXPECT_THAT(several.error().message,
              HasSubstr("rank 1 of 2 of an mpiexec without PMIx"));
}

TEST(request_for_hosts_test, starts_agents_or_waits_for_them_but_not_both) {
  run_request request;
  request.scaling.agents = 1;
  request.scaling.hosts = {"host-a", "host-b"};
  auto found = find_hosts(request);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ec::invalid_config);
  EXPECT_THAT(found.error().message, HasSubstr("use one of them"));
  request.scaling.hosts.clear();
  request.scaling.workers_per_host = 3;
  ASSERT_TRUE(find_hosts(request));
  EXPECT_EQ(count_text(request.scaling.num_workers), "6");
  EXPECT_FALSE(request.hosts);
}

TEST(request_for_hosts_test, of_threads_is_refused_if_other_hosts_are_given) {
  run_request inline_one;
  inline_one.scaling = {.num_workers = 0, .hosts = {"host-a"}};
  run_request threads;
  threads.scaling = {.num_workers = 2, .where = placement::in_process};
  threads.scaling.hosts = {"host-a", "host-b"};
  auto one = find_hosts(inline_one);
  auto two = find_hosts(threads);
  ASSERT_FALSE(one);
  ASSERT_FALSE(two);
  EXPECT_EQ(one.error().code, ec::invalid_config);
  EXPECT_EQ(one.error().message,
            "the host host-a is given, but with scaling.num_workers = 0 the "
            "loop runs inline: other hosts have ranks that are processes only");
  EXPECT_EQ(two.error().code, ec::invalid_config);
  EXPECT_THAT(two.error().message, HasSubstr("the hosts host-a, host-b are"));
  threads.scaling.hosts = {"localhost"};
  EXPECT_TRUE(find_hosts(threads));
  EXPECT_EQ(threads.unused_hosts, 0);
}

TEST(request_for_hosts_test, of_threads_notices_a_mistake_in_the_hosts) {
  const char* program[] = {"train", "--hosts", "n[1-"};
  run_request request;
  request.scaling.num_workers = 0;
  find_launch(3, program);
  auto found = find_hosts(request);
  find_launch(1, program);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ec::invalid_config);
  EXPECT_TRUE(find_hosts(request));
}

TEST(request_for_hosts_test, of_threads_counts_the_hosts_that_were_found) {
  const char* program[] = {"train"};
  run_request request;
  request.scaling.num_workers = 0;
  {
    environment_guard guard{
      {{"TROUPE_DRIVER", "localhost:4444"}, {"TROUPE_AGENTS", "3"}}};
    find_launch(1, program);
    EXPECT_TRUE(find_hosts(request));
  }
  EXPECT_EQ(request.unused_hosts, 3);
  {
    environment_guard guard{{{"SLURM_JOB_ID", "7"}}};
    find_launch(1, program);
    EXPECT_TRUE(find_hosts(request));
  }
  find_launch(1, program);
  EXPECT_EQ(request.unused_hosts, 3);
}

TEST(request_for_hosts_test, further_hosts_need_a_file_for_their_ticket) {
  run_request request;
  request.scaling.workers_per_host = 2;
  request.scaling.max_hosts = 3;
  request.scaling.hosts = {"host-a", "host-b"};
  ASSERT_TRUE(find_hosts(request));
  EXPECT_EQ(count_text(request.scaling.num_workers), "4");
  auto ok = validate(request);
  ASSERT_FALSE(ok);
  EXPECT_THAT(ok.error().message, HasSubstr("agent_ticket must name a file"));
  request.hosts.reset();
  request.run.agent_ticket = "ticket";
  ASSERT_TRUE(find_hosts(request));
  EXPECT_EQ(count_text(request.scaling.num_workers), "4 to 6");
  run_request alone;
  alone.scaling = {.workers_per_host = 2, .max_hosts = 3, .hosts = {"host-a"}};
  ASSERT_TRUE(find_hosts(alone));
  EXPECT_THAT(validate(alone).error().message, HasSubstr("has 1 host:"));
}

TEST(request_for_hosts_test, numbers_are_checked_before_they_are_multiplied) {
  constexpr auto most = std::numeric_limits<int>::max();
  for (scaling_config scaling :
       {scaling_config{.workers_per_host = 2, .agents = most},
        scaling_config{.workers_per_host = most, .hosts = {"a", "b"}},
        scaling_config{
          .workers_per_host = 2, .max_hosts = most, .hosts = {"a", "b"}}}) {
    run_request request;
    request.scaling = std::move(scaling);
    request.run.agent_ticket = "ticket";
    auto found = find_hosts(request);
    ASSERT_FALSE(found);
    EXPECT_THAT(found.error().message, HasSubstr("at most"));
  }
}

TEST(request_for_hosts_test,
     guests_may_bring_the_ranks_that_slots_do_not_allow) {
  run_request request;
  request.scaling.num_workers = {2, 8};
  request.scaling.hosts = {"host-a", "host-b"};
  request.run.agent_ticket = "ticket";
  ASSERT_TRUE(find_hosts(request));
  EXPECT_EQ(count_text(request.scaling.num_workers), "2 to 8");
}

INSTANTIATE_TEST_SUITE_P(
  what_lies_in_this_process, run_request_test,
  testing::Values(
    local_case{"closure",
               [] {
                 return request_of(train_loop::make(
                   in_process_loop{[n = 0](train_context&) { (void) n; }},
                   no_backend{}, no_config{}));
               },
               "in_process_loop"},
    local_case{"closure_as_hook",
               [] {
                 auto request = plain_request();
                 request.run.rank_hooks.on_report =
                   [n = 0](train_context&, const metrics&,
                           const std::optional<checkpoint>&) { (void) n; };
                 return request;
               },
               "run.rank_hooks.on_report"},
    local_case{"large_config",
               [] {
                 return request_of(train_loop::make(
                   [](train_context&, const std::string&) {}, no_backend{},
                   std::string(max_config_bytes, 'x')));
               },
               "the limit is 3145728"}),
  [](auto& x) { return x.param.name; });

TEST(run_request_test, holds_no_null_pointers) {
  ASSERT_TRUE(validate(plain_request()));
  auto callback = plain_request();
  callback.run.callbacks = {nullptr};
  auto tracker = plain_request();
  tracker.run.trackers = {nullptr};
  auto actor = plain_request();
  actor.run.callback_actors = {nullptr};
  for (auto x : {&callback, &tracker, &actor}) {
    auto ok = validate(*x);
    ASSERT_FALSE(ok);
    EXPECT_EQ(ok.error().code, ec::invalid_config);
  }
}

TEST(prepare_test, finds_the_hosts_and_resolves_the_config) {
  auto request = plain_request();
  request.scaling = {.workers_per_host = 1, .hosts = {"host-a", "host-b"}};
  request.run.stop_timeout = std::chrono::milliseconds::max();
  auto prepared = prepare(request);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(count_text(prepared->scaling.num_workers), "2");
  EXPECT_TRUE(prepared->hosts);
  EXPECT_LT(prepared->run.stop_timeout, request.run.stop_timeout);
}

TEST(prepare_test, refuses_what_is_not_valid) {
  auto request = plain_request();
  request.run.callbacks = {nullptr};
  auto prepared = prepare(request);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ec::invalid_config);
}

} // namespace troupe::internal::test
