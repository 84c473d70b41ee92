// Hosts that cannot have ranks: of another build, with fewer cores, or with
// another storage than the driver.

#include <gmock/gmock.h>

#include "tests/integration/hosts/many_hosts_fixture.hpp"
#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/loaded_modules.hpp"
#include "troupe/runtime/process/usable_cores.hpp"

namespace troupe::internal::test {

namespace {

using testing::HasSubstr;

/// The program or library *original* with another build id than *id*.
std::string other_build(const temporary_folder& folder,
                        const std::string& original, const std::string& id) {
  auto bytes = bytes_of(original);
  std::string raw;
  for (std::size_t i = 0; i + 1 < id.size(); i += 2)
    raw += static_cast<char>(std::stoi(id.substr(i, 2), nullptr, 16));
  auto at = bytes.find(raw);
  EXPECT_NE(at, std::string::npos);
  if (at != std::string::npos)
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  auto path = folder / fs::path{original}.filename().string();
  write_bytes(path, bytes);
  fs::permissions(path, fs::owner_all);
  return path.string();
}

TEST_P(many_hosts_test, refuses_a_host_with_less_than_its_ranks_claim) {
  auto cores = own_cores().numbers;
  if (GetParam() != where::here || cores.size() < 2)
    GTEST_SKIP() << "an agent gets one of two cores";
  auto driver =
    start(0, {"/usr/bin/env", "TROUPE_TEST_CPUS=2", own_program(), "--driver",
              folder_.path().string(), "2", "1", "0", "120000", "4", "0"});
  auto small =
    start(0, {"/usr/bin/taskset", "--cpu-list", std::to_string(cores.front()),
              "/usr/bin/env", "TROUPE_TICKET=" + (folder_ / "ticket").string(),
              own_program(), "--node-agent"});
  EXPECT_EQ(small->wait(), 78);
  auto agent = start_agent(0);
  EXPECT_EQ(introduced<seen_rank>(0, 2)[1].agent, agent->pid);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, an_agent_of_another_build_is_refused) {
  auto driver = start_driver(2, 1, 0);
  auto self = fs::canonical("/proc/self/exe").string();
  EXPECT_EQ(
    start_agent(1, other_build(folder_, self, program_build_id()))->wait(), 78);
  // The run waits for the right one.
  auto agent = start_agent(1);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, an_agent_with_another_build_of_a_library_is_refused) {
  loaded_module library;
  visit_modules([&](const loaded_module& x) {
    auto is_it = x.path.find("/libcaf_core.so") != x.path.npos;
    if (is_it)
      library = x;
    return !is_it;
  });
  if (library.path.empty())
    GTEST_SKIP() << "CAF is a part of this program";
  auto driver = start_driver(2, 1, 0);
  temporary_folder libraries;
  other_build(libraries, library.path, library.build_id);
  auto other =
    start(1, {"/usr/bin/env", "LD_LIBRARY_PATH=" + libraries.path().string(),
              "TROUPE_TICKET=" + (folder_ / "ticket").string(), own_program(),
              "--node-agent"});
  EXPECT_EQ(other->wait(), 78);
  auto agent = start_agent(1);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, an_agent_of_a_host_without_the_storage_is_refused) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "one machine has one storage";
  auto driver = start_driver(2, 1, 0, 5000);
  auto storage = (folder_ / "storage").string();
  // Only this program sees the empty folder.
  auto agent = start(
    1, {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
        concat("mount -t tmpfs none '", storage,
               "' && exec env TROUPE_TICKET='", (folder_ / "ticket").string(),
               "' '", own_program(), "' --node-agent")});
  EXPECT_EQ(agent->wait(), 78);
  EXPECT_THAT(result_line(), HasSubstr("is not the driver's on this host"));
  EXPECT_EQ(driver->wait(), 0);
}

// It asks again until the driver ends, which cannot wait any longer.
TEST_P(many_hosts_test, an_agent_whose_storage_is_full_is_to_come_again) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "one machine has one storage";
  auto driver = start_driver(2, 1, 0, 20'000);
  ticket_of_driver();
  auto logs = (folder_ / "storage/run/logs").string();
  auto said = (folder_ / "said").string();
  // It has room for its root only.
  auto agent = start(
    1, {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
        concat("mount -t tmpfs -o nr_inodes=1 none '", logs,
               "' && exec env TROUPE_TICKET='", (folder_ / "ticket").string(),
               "' '", own_program(), "' --node-agent 2>'", said, "'")});
  EXPECT_THAT(result_line(), HasSubstr("No space left on device"));
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 75);
  EXPECT_THAT(bytes_of(said), HasSubstr("waits up to 120 s for a place: "));
}

TEST_P(many_hosts_test, a_rank_that_cannot_read_the_runs_folder_says_why) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "one machine has one storage";
  auto driver = start_driver(2, 1, 1);
  auto agent = start(1, {"/usr/bin/unshare", "--mount", "/usr/bin/env",
                         "TROUPE_TICKET=" + (folder_ / "ticket").string(),
                         own_program(), "--node-agent"});
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  // From now on that host has another file there than the driver.
  write_bytes(folder_ / "other", std::string(16, '0'));
  auto hidden = start(1, {"/usr/bin/nsenter",
                          concat("--mount=/proc/", ranks[1].agent, "/ns/mnt"),
                          "/bin/mount", "--bind", (folder_ / "other").string(),
                          (folder_ / "storage/run/ranks").string()});
  ASSERT_EQ(hidden->wait(), 0);
  kill(1, ranks[1].pid);
  EXPECT_THAT(result_line(),
              HasSubstr("has another attempt on this host than the driver"));
  EXPECT_EQ(driver->wait(), 0);
  agent->wait();
}

} // namespace

} // namespace troupe::internal::test
