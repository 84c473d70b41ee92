#include "troupe/runtime/config/scaling_config.hpp"

#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal {

TEST(scaling_config_test, names_the_gpus_that_cuda_shows) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(visible_gpus(std::nullopt, 4), ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(visible_gpus("", 4), IsEmpty());
  EXPECT_THAT(visible_gpus("2", 4), ElementsAre("2"));
  EXPECT_THAT(visible_gpus("3,1", 4), ElementsAre("3", "1"));
  EXPECT_THAT(visible_gpus(" 3, 1 ,02x", 4), ElementsAre("3", "1", "2"));
  EXPECT_THAT(visible_gpus("1, 1", 4), IsEmpty());
  EXPECT_THAT(visible_gpus("-1", 4), IsEmpty());
  EXPECT_THAT(visible_gpus("0,9,1", 4), ElementsAre("0"))
    << "the rest of the list is ignored";
  EXPECT_THAT(visible_gpus("0,0", 4), IsEmpty());
  EXPECT_THAT(visible_gpus("GPU-8932f937-d72c,GPU-a8f2", 2),
              ElementsAre("GPU-8932f937-d72c", "GPU-a8f2"));
  EXPECT_THAT(visible_gpus("MIG-a8f2,MIG-b091", 1), ElementsAre("MIG-a8f2"))
    << "a process sees one slice";
  EXPECT_THAT(visible_gpus("0", 0), IsEmpty());
  EXPECT_THAT(visible_gpus("0,x", 2), ElementsAre("0"));
  EXPECT_THAT(visible_gpus("99999999999999999999", 2), IsEmpty());
}

TEST(scaling_config_test, asks_the_driver_for_gpus_that_have_no_files) {
  test::temporary_folder devices;
  std::ofstream{(devices / "nvidiactl").string()};
  EXPECT_EQ(count_cards(devices.path().string(), [] { return 2; }), 2);
  EXPECT_EQ(count_cards((devices / "none").string(), [] { return 0; }), 0);
  std::ofstream{(devices / "nvidia0").string()};
  EXPECT_EQ(count_cards(devices.path().string(), [] { return 2; }), 1);
}

TEST(scaling_config_test, gives_each_rank_gpus_of_its_own) {
  scaling_config x{.num_workers = 2, .use_gpu = true};
  EXPECT_THAT(gpus_of(x, 0), ::testing::ElementsAre(0));
  EXPECT_THAT(gpus_of(x, 1), ::testing::ElementsAre(1));
  x.resources_per_worker.gpus = 2;
  EXPECT_THAT(gpus_of(x, 1), ::testing::ElementsAre(2, 3));
  EXPECT_THAT(gpus_of({}, 1), ::testing::IsEmpty());
}

TEST(scaling_config_test, spreads_ranks_evenly_over_hosts) {
  using testing::ElementsAre;
  EXPECT_THAT(spread_ranks({.num_workers = 3}), ElementsAre(host_share{0, 3}));
  EXPECT_THAT(spread_ranks({.num_workers = 0}), ElementsAre(host_share{0, 1}));
  EXPECT_THAT(
    spread_ranks({.num_workers = 5, .agents = 2}),
    ElementsAre(host_share{0, 2}, host_share{2, 2}, host_share{4, 1}));
}

TEST(scaling_config_test, refuses_hosts_that_could_not_have_ranks) {
  host_resources host{4, 0};
  scaling_config x{.num_workers = 8, .agents = 1};
  x.resources_per_worker.cpus = 1;
  EXPECT_TRUE(validate(x, host)) << "four of them are here";
  auto refusal = [&host](const scaling_config& bad) {
    auto ok = validate(bad, host);
    return ok ? std::string{} : ok.error().message;
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal({.num_workers = 2, .agents = -1}), HasSubstr(">= 0"));
  EXPECT_THAT(
    refusal({.num_workers = 2, .where = placement::in_process, .agents = 1}),
    HasSubstr("processes only"));
}

TEST(scaling_config_test, a_number_of_ranks_may_be_a_range) {
  scaling_config x{.num_workers = {2, 8}};
  EXPECT_EQ(x.num_workers.min, 2);
  EXPECT_EQ(x.num_workers, 8);
  EXPECT_EQ(count_text(x.num_workers), "2 to 8");
  EXPECT_EQ(count_text(worker_count{3}), "3");
}

TEST(scaling_config_test, reads_numbers_and_ranges_as_options_have_them) {
  auto text = [](std::string_view given) {
    auto x = parse_count(given);
    return x ? option_text(*x) : "neither";
  };
  EXPECT_EQ(text("0"), "0");
  EXPECT_EQ(text("3"), "3");
  EXPECT_EQ(text("2:8"), "2:8");
  EXPECT_EQ(text("2:2"), "2");
  for (auto bad : {"", ":", "2:", ":8", "8:2", "0:2", "-1", "2:-8", "2:3:4",
                   "2-8", " 2", "99999999999"})
    EXPECT_EQ(text(bad), "neither") << bad;
}

TEST(scaling_config_test, refuses_limits_of_hosts_that_cannot_hold) {
  using namespace std::chrono_literals;
  using testing::HasSubstr;
  auto refusal = [](std::chrono::milliseconds suspect,
                    std::chrono::milliseconds lost) {
    scaling_config x{.num_workers = 2, .agents = 1};
    x.suspect_after = suspect;
    x.lost_after = lost;
    auto ok = validate(x, {4, 0});
    return ok ? std::string{} : ok.error().message;
  };
  EXPECT_EQ(refusal(2s, 2001ms), "");
  EXPECT_EQ(refusal(1999ms, 10s),
            "scaling.suspect_after is 1999 ms, but must be at least 2 s: hosts "
            "send a sign of life each second");
  EXPECT_EQ(refusal(3s, 3s),
            "scaling.lost_after is 3000 ms, but must be longer than "
            "scaling.suspect_after, which is 3000 ms");
  EXPECT_THAT(refusal(3s, std::chrono::milliseconds::max()),
              HasSubstr("ms, but must be at most a day"));
  scaling_config x{.num_workers = 2, .agents = 1};
  x.join_timeout = 24h * 365;
  EXPECT_TRUE(validate(x, {4, 0}));
  x.join_timeout += 1ms;
  auto ok = validate(x, {4, 0});
  ASSERT_FALSE(ok);
  EXPECT_EQ(
    ok.error().message,
    "scaling.join_timeout is 31536000001 ms, but must be at most a year");
  x.join_timeout = 0ms;
  ok = validate(x, {4, 0});
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().message, "scaling.join_timeout must be > 0, got 0 ms");
}

TEST(scaling_config_test, refuses_more_ranks_and_hosts_than_a_run_can_have) {
  auto refusal = [](const scaling_config& bad) {
    auto ok = validate(bad, {4, 0});
    return ok ? std::string{} : ok.error().message;
  };
  constexpr auto most = std::numeric_limits<int>::max();
  EXPECT_EQ(refusal({.workers_per_host = 1025, .agents = 1}),
            "scaling.workers_per_host is 1025, but a host has at most 1024 "
            "ranks");
  EXPECT_EQ(refusal({.num_workers = {2, most}, .agents = 1}),
            "scaling.num_workers is 2147483647, but a run has at most 67108864 "
            "ranks");
  EXPECT_EQ(refusal({.num_workers = 2, .agents = most}),
            "scaling.agents is 2147483647, but a run has at most 65536 agents");
  EXPECT_EQ(refusal({.workers_per_host = 2, .min_hosts = most}),
            "scaling.min_hosts is 2147483647, but a run has at most 65536 "
            "hosts");
  EXPECT_EQ(refusal({.workers_per_host = 2, .max_hosts = 65537}),
            "scaling.max_hosts is 65537, but a run has at most 65536 hosts");
}

TEST(scaling_config_test, refuses_a_number_of_hosts_that_no_run_can_have) {
  using testing::HasSubstr;
  auto refusal = [](const scaling_config& x, std::size_t hosts) {
    auto ok = validate(x, {4, 0}, std::vector<host_share>(hosts, {0, 2}));
    return ok ? std::string{} : ok.error().message;
  };
  scaling_config x{.num_workers = {4, 8}};
  x.max_hosts = 4;
  EXPECT_THAT(refusal(x, 2), HasSubstr("with scaling.workers_per_host"));
  x.workers_per_host = 2;
  EXPECT_EQ(refusal(x, 2), "");
  EXPECT_THAT(refusal(x, 5), HasSubstr("but the run has 5 hosts"));
  EXPECT_THAT(refusal(x, 1), HasSubstr("but the run has one host"));
  x.agents = 1;
  EXPECT_THAT(refusal(x, 2), HasSubstr("scaling.agents says"));
}

TEST(scaling_config_test, refuses_ranges_that_no_run_can_have) {
  host_resources host{4, 0};
  auto refusal = [&host](const scaling_config& bad) {
    auto ok = validate(bad, host);
    return ok ? std::string{} : ok.error().message;
  };
  using testing::HasSubstr;
  EXPECT_EQ(refusal({.num_workers = {2, 4}, .agents = 1}), "");
  EXPECT_THAT(refusal({.num_workers = {2, 4}}), HasSubstr("has one host"));
  EXPECT_THAT(refusal({.num_workers = {4, 2}, .agents = 1}),
              HasSubstr("is 4 to 2: the first must be >= 1"));
  EXPECT_THAT(refusal({.num_workers = {0, 2}, .agents = 1}),
              HasSubstr("the first must be >= 1"));
  EXPECT_THAT(refusal({.num_workers = {1, 2}, .where = placement::in_process}),
              HasSubstr("one fixed number"));
  EXPECT_THAT(refusal({.num_workers = 2, .min_hosts = 1, .agents = 1}),
              HasSubstr("num_workers is a range"));
  EXPECT_EQ(refusal({.num_workers = 2, .min_hosts = -1}),
            "scaling.min_hosts must be >= 0, got -1");
  EXPECT_THAT(
    refusal(
      {.num_workers = 4, .workers_per_host = 2, .min_hosts = 3, .agents = 1}),
    HasSubstr("but the run has 2 hosts"));
}

TEST(scaling_config_test, refuses_ranks_per_host_that_it_would_not_start) {
  host_resources host{4, 0};
  scaling_config x{.workers_per_host = 4, .where = placement::in_process};
  EXPECT_FALSE(validate(x, host));
  x.num_workers = 4;
  EXPECT_TRUE(validate(x, host));
  x.where = placement::processes;
  x.num_workers = 0;
  auto refused = validate(x, host);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::invalid_config);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("runs inline"));
}

TEST(scaling_config_test, refuses_gpus_that_it_would_not_give) {
  host_resources host{4, 4};
  scaling_config x{.num_workers = 2, .use_gpu = true};
  EXPECT_TRUE(validate(x, host));
  for (double gpus : {0.5, 1.5}) {
    x.resources_per_worker.gpus = gpus;
    auto refused = validate(x, host);
    ASSERT_FALSE(refused) << gpus;
    EXPECT_EQ(refused.error().code, ec::invalid_config);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("whole number"));
  }
  x.resources_per_worker.gpus = 0;
  auto refused = validate(x, host);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("use_gpu"));
  // The caller's thread is a rank as well.
  EXPECT_FALSE(validate({.num_workers = 0, .use_gpu = true}, {4, 0}));
  EXPECT_TRUE(validate({.num_workers = 0, .use_gpu = true}, {4, 1}));
}

} // namespace troupe::internal
