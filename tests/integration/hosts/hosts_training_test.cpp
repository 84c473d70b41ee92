// Models trained by ranks on several hosts: the gradients between them.

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "tests/integration/hosts/hosts_fixture.hpp"
#include "troupe/trainers/init.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

int be_elastic_driver(const std::string& folder, bool loses, bool waits);

namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// What the loop does. Travels to the ranks.
struct training_plan {
  std::string folder;    ///< Of the test.
  std::string gradients; ///< File for the gradients of rank 0.
  int absent = -1;   ///< The rank that stays away from the first attempt's last
                     ///< step, in which the others wait for it.
  bool adds = false; ///< Ranks add numbers until the file `enough` is there.

  template <class Archive>
  void serialize(Archive& ar) {
    ar(folder, gradients, absent, adds);
  }
};

/// All gradients of *model*, one after the other.
template <class Model>
at::Tensor gradients_of(const Model& model) {
  std::vector<at::Tensor> all;
  for (auto& x : model.parameters())
    all.push_back(x.grad().flatten());
  return at::cat(all);
}

/// Adds numbers that are different in each round, over and over.
void add_numbers(train_context& context, const training_plan& plan) {
  auto ranks = context.world_size();
  auto has_enough = 0.0;
  for (int round = 1; has_enough == 0.0; ++round) {
    auto x = at::full({500'000}, round % 1000 + context.rank(), at::kDouble);
    auto sum = ranks * (round % 1000) + ranks * (ranks - 1) / 2.0;
    x[0] = fs::exists(plan.folder + "/enough") ? 1.0 : 0.0;
    all_reduce(context, x);
    has_enough = x[0].item<double>();
    if (!x.slice(0, 1).eq(sum).all().item<bool>())
      throw std::runtime_error{"a sum is wrong"};
    if (round == 10)
      tell(plan.folder,
           concat("adds ", context.attempt(), ' ', context.rank()));
  }
  context.report({{"done", 1}});
}

void train(train_context& context, const training_plan& plan) {
  auto attempt = static_cast<int>(context.attempt());
  hold_life(plan.folder, attempt, context.rank());
  auto& facts = rank_access{context}.facts();
  tell(plan.folder,
       concat("rank ", attempt, ' ', facts.rank, ' ', facts.node_rank, ' ',
              facts.local_world_size, ' ', ::getpid(), ' ',
              parent_of(::getppid()), ' ', facts.host, ' ', facts.host_address,
              ' ',
              data_plane(context)->group->getDefaultBackend()->getBackendName(),
              ' ', std::getenv("NCCL_SOCKET_IFNAME")));
  if (plan.adds)
    return add_numbers(context, plan);
  torch::manual_seed(7);
  // Tensors that fit into one message and such that need several chunks.
  auto model =
    prepare_model(context, torch::nn::Sequential(torch::nn::Linear(64, 4000),
                                                 torch::nn::Tanh(),
                                                 torch::nn::Linear(4000, 64),
                                                 torch::nn::Linear(64, 2)));
  torch::optim::SGD optimizer{model.parameters(), 0.1};
  torch::manual_seed(100 + static_cast<std::uint64_t>(facts.rank));
  std::string written;
  for (int step = 0; step < 3; ++step) {
    if (step == 2 && attempt == 0 && facts.rank == plan.absent) {
      tell(plan.folder, "absent");
      for (;;)
        ::pause();
    }
    model.zero_grad();
    model.forward(torch::randn({8, 64})).square().mean().backward();
    auto mine = gradients_of(model);
    for (auto& other : all_gather(context, mine))
      if (!other.equal(mine))
        throw std::runtime_error{"gradients differ between ranks"};
    written.append(static_cast<const char*>(mine.data_ptr()), mine.nbytes());
    optimizer.step();
    context.report({{"step", step}});
  }
  if (facts.rank == 0)
    write_bytes(plan.gradients, written);
}

/// A rank as it introduced itself.
struct seen_rank {
  int node = -1;
  int local_ranks = -1;
  pid_t pid = -1;
  pid_t agent = -1;
  std::string host;
  std::string address;
  std::string backend;
  std::string interface; ///< For NCCL.

  friend std::istream& operator>>(std::istream& in, seen_rank& x) {
    return in >> x.node >> x.local_ranks >> x.pid >> x.agent >> x.host
           >> x.address >> x.backend >> x.interface;
  }
};

} // namespace

/// The driver of a test in *folder*.
int be_driver(const std::string& folder, int workers, int agents, backend kind,
              int absent, const std::string& gradients,
              const std::string& network, int join_ms) {
  torch_options options;
  options.scaling.num_workers = workers;
  options.scaling.agents = agents;
  options.scaling.network_interface = network;
  options.scaling.join_timeout = std::chrono::milliseconds{join_ms};
  options.run = run_with_agents(folder);
  options.run.name = gradients;
  options.run.failure.max_failures = 1;
  options.torch.backend = kind;
  training_plan plan{folder, folder + '/' + gradients, absent, false};
  if (auto* limit = std::getenv("TROUPE_TEST_LOST_AFTER_MS")) {
    options.scaling.lost_after = std::chrono::milliseconds{std::stoi(limit)};
    plan.adds = true;
  }
  if (auto* limit = std::getenv("TROUPE_TEST_HANG_AFTER_MS"))
    options.run.hang_timeout = std::chrono::milliseconds{std::stoi(limit)};
  if (auto* limit = std::getenv("TROUPE_TEST_GROUP_TIMEOUT_MS"))
    options.torch.timeout = std::chrono::milliseconds{std::stoi(limit)};
  options.torch.encrypt_gradients = !std::getenv("TROUPE_TEST_IN_CLEAR");
  auto outcome = torch_trainer{train, plan, options}.fit();
  tell_result(folder, outcome);
  return 0;
}

namespace {

class hosts_training_test : public hosts_test {
protected:
  struct order {
    int workers = 2;
    int agents = 1;
    backend kind = backend::automatic;
    int absent = -1;
    std::string gradients = "run";
    std::string network;
    int join_ms = 120'000;
    std::vector<std::string> variables; ///< Of the driver.
  };

  std::shared_ptr<program> start_driver(const order& x) {
    std::vector<std::string> command{"/usr/bin/env"};
    command.insert(command.end(), x.variables.begin(), x.variables.end());
    command.insert(command.end(),
                   {own_program(), "--driver", folder_.path().string(),
                    std::to_string(x.workers), std::to_string(x.agents),
                    std::to_string(static_cast<int>(x.kind)),
                    std::to_string(x.absent), x.gradients, x.network,
                    std::to_string(x.join_ms)});
    return start(0, std::move(command));
  }

  /// Starts the driver and an agent on each of the other hosts.
  void start_all(const order& x) {
    hosts_ = {start_driver(x)};
    for (int host = 1; host <= x.agents; ++host)
      hosts_.push_back(start_agent(host));
  }

  void expect_end(const std::string& result) {
    EXPECT_EQ(result_line(), result);
    for (auto& x : hosts_)
      EXPECT_EQ(x->wait(), 0);
  }

  /// The number of the host of *x*.
  std::size_t host_of(const seen_rank& x) const {
    for (std::size_t i = 1; i < hosts_.size(); ++i)
      if (GetParam() == where::namespaces ? x.host == concat('h', i + 1)
                                          : x.agent == hosts_[i]->pid)
        return i;
    throw std::runtime_error{"no host " + x.host};
  }

  void await_line(const std::string& wanted) {
    for (;;) {
      auto line = next_line();
      if (line == wanted)
        return;
      if (line.starts_with("result"))
        throw std::runtime_error{line};
    }
  }

  at::Tensor gradients(const std::string& name) {
    auto bytes = bytes_of(folder_ / name);
    auto count = static_cast<std::int64_t>(bytes.size() / sizeof(float));
    return torch::from_blob(bytes.data(), {count}).clone();
  }

  std::vector<std::shared_ptr<program>> hosts_; ///< The driver's first.
};

TEST_P(hosts_training_test, gradients_are_the_same_on_all_and_those_of_gloo) {
  // Hosts with 2, 2 and 1 ranks.
  start_all({.workers = 5, .agents = 2, .gradients = "ours"});
  std::set<std::string> addresses, interfaces;
  for (auto& [rank, x] : introduced<seen_rank>(0, 5)) {
    EXPECT_EQ(x.node, rank / 2);
    EXPECT_EQ(x.local_ranks, rank == 4 ? 1 : 2);
    EXPECT_EQ(x.backend, "hierarchical");
    addresses.insert(x.address);
    interfaces.insert(x.interface);
  }
  std::set<std::string> known{"198.18.0.1", "198.18.0.2", "198.18.0.3"};
  if (GetParam() == where::namespaces) {
    EXPECT_EQ(addresses, known);
    EXPECT_EQ(interfaces, std::set<std::string>{"=eth0"});
  }
  expect_end("result finished 1 ");
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo to compare with";
  start_all(
    {.workers = 5, .agents = 2, .kind = backend::gloo, .gradients = "gloo"});
  expect_end("result finished 1 ");
  auto ours = gradients("ours");
  auto theirs = gradients("gloo");
  ASSERT_GT(ours.numel(), 1000);
  EXPECT_TRUE(ours.allclose(theirs, 1e-4, 1e-6)) << (ours - theirs).abs().max();
}

// As on every new Debian.
TEST_P(hosts_training_test, gloo_does_not_look_up_the_names_of_hosts) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "the names of this machine stay";
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  for (auto host : {0, 1}) {
    auto file = folder_ / concat("hosts_of_h", host + 1);
    write_bytes(file,
                concat("127.0.0.1 localhost\n127.0.1.1 h", host + 1, '\n'));
    ASSERT_EQ(start(host, {"/bin/mount", "--bind", file.string(), "/etc/hosts"})
                ->wait(),
              0);
  }
  start_all({.workers = 4, .agents = 1, .kind = backend::gloo});
  for (auto& [rank, x] : introduced<seen_rank>(0, 4))
    EXPECT_EQ(x.backend, "gloo");
  expect_end("result finished 1 ");
}

TEST_P(hosts_training_test, ranks_talk_on_the_network_that_was_chosen) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "this machine keeps its addresses";
  for (auto host : {0, 1})
    ASSERT_EQ(
      start(host, {"/bin/sh", "-c",
                   concat("ip link add link eth0 name eth1 type macvlan mode "
                          "bridge && ip link set eth1 up && ip address add "
                          "fd00:7::",
                          host + 1, "/64 dev eth1 nodad")})
        ->wait(),
      0);
  for (auto kind : {backend::automatic, backend::gloo}) {
    if (kind == backend::gloo && !has_gloo())
      continue;
    for (std::string network : {"eth1", "fd00:7::/64"}) {
      start_all({.workers = 4,
                 .agents = 1,
                 .kind = kind,
                 .gradients = concat(to_string(kind), network.size()),
                 .network = network});
      for (auto& [rank, x] : introduced<seen_rank>(0, 4)) {
        EXPECT_EQ(x.address, concat("fd00:7::", rank / 2 + 1));
        EXPECT_EQ(x.interface, "=eth1");
      }
      expect_end("result finished 1 ");
    }
  }
}

TEST_P(hosts_training_test, a_host_without_the_chosen_network_is_named) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "this machine keeps its addresses";
  start_all({.workers = 2, .agents = 1, .network = "10.9.0.0/24"});
  EXPECT_THAT(result_line(),
              HasSubstr("scaling.network_interface: this host has no network "
                        "interface or address 10.9.0.0/24; it has lo "
                        "(127.0.0.1), eth0 (198.18.0.1)"));
  EXPECT_EQ(hosts_[0]->wait(), 0);
  ::kill(hosts_[1]->pid, SIGTERM); // It looks for a driver.
  hosts_[1]->wait();
  ASSERT_EQ(
    start(0, {"/bin/sh", "-c", "ip address add 10.9.0.1/24 dev eth0"})->wait(),
    0);
  start_all(
    {.workers = 2, .agents = 1, .network = "10.9.0.0/24", .join_ms = 10'000});
  auto line = result_line();
  EXPECT_THAT(line, HasSubstr("h2"));
  EXPECT_THAT(line, HasSubstr("10.9.0.0/24; it has lo (127.0.0.1), eth0 "
                              "(198.18.0.2)"));
  EXPECT_EQ(hosts_[0]->wait(), 0);
  EXPECT_EQ(hosts_[1]->wait(), 78);
}

TEST_P(hosts_training_test, resumes_after_a_rank_in_a_collective_was_killed) {
  start_all({.workers = 4, .agents = 1, .absent = 3});
  auto ranks = introduced<seen_rank>(0, 4);
  await_line("absent");
  kill(1, ranks[3].pid);
  for (int rank = 0; rank < 4; ++rank)
    await_end(0, rank);
  introduced<seen_rank>(1, 4);
  expect_end("result finished 2 ");
  auto failures = journal();
  EXPECT_THAT(failures, HasSubstr("SIGKILL"));
  EXPECT_THAT(failures, Not(HasSubstr("has left the group")))
    << "others are not to blame";
}

TEST_P(hosts_training_test, names_the_host_that_was_lost_while_others_wait) {
  start_all({.workers = 5, .agents = 2, .absent = 3});
  auto ranks = introduced<seen_rank>(0, 5);
  await_line("absent");
  auto lost = host_of(ranks[3]);
  kill(static_cast<int>(lost), ranks[3].agent);
  for (int rank = 0; rank < 5; ++rank)
    await_end(0, rank);
  hosts_[lost]->wait();
  hosts_[lost] = start_agent(static_cast<int>(lost));
  introduced<seen_rank>(1, 5);
  expect_end("result finished 2 ");
  auto failures = journal();
  EXPECT_THAT(failures, HasSubstr("host " + ranks[3].host + " is lost"));
  EXPECT_THAT(failures, Not(HasSubstr("has left the group")))
    << "its neighbors are not to blame";
}

// The ranks of the other host have taken some steps of the all-reduce.
TEST_P(hosts_training_test, a_rank_that_never_comes_is_ended_alone) {
  order x{.workers = 4, .agents = 1, .absent = 0};
  x.variables = {"TROUPE_TEST_HANG_AFTER_MS=3000"};
  start_all(x);
  introduced<seen_rank>(0, 4);
  await_line("absent");
  for (int rank = 0; rank < 4; ++rank)
    await_end(0, rank);
  introduced<seen_rank>(1, 4);
  expect_end("result finished 2 ");
  EXPECT_THAT(journal(), HasSubstr("\"reason\":\"Rank 0: "));
}

// By default both leaders would have given up the connection between them.
TEST_P(hosts_training_test, gradients_outlive_a_cut_shorter_than_lost_after) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "hosts with cables of their own are needed";
  for (std::string name : {"encrypted", "in_clear"}) {
    order x{.workers = 4, .agents = 1, .gradients = name};
    x.variables = {"TROUPE_TEST_LOST_AFTER_MS=20000"};
    if (name == "in_clear")
      x.variables.push_back("TROUPE_TEST_IN_CLEAR=1");
    start_all(x);
    introduced<seen_rank>(0, 4, "adds");
    EXPECT_EQ(
      std::system(
        concat(tool_, " cut h2 && sleep 12 && ", tool_, " plug h2").c_str()),
      0);
    write_bytes(folder_ / "enough", "");
    expect_end("result finished 1 ");
    fs::remove(folder_ / "enough");
  }
}

// Both reach the driver. Leaders wait for longer than a rank may hang, since
// only they know the address.
TEST_P(hosts_training_test, hosts_that_cannot_reach_each_other_are_named) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "hosts with cables of their own are needed";
  ASSERT_EQ(std::system((tool_ + " part h2 h3").c_str()), 0);
  order x{.workers = 6, .agents = 2};
  x.variables = {"TROUPE_TEST_HANG_AFTER_MS=3000",
                 "TROUPE_TEST_GROUP_TIMEOUT_MS=20000"};
  start_all(x);
  EXPECT_THAT(result_line(), StartsWith("result errored 2 "));
  EXPECT_EQ(hosts_[0]->wait(), 0);
  EXPECT_EQ(hosts_[1]->wait(), 75);
  EXPECT_EQ(hosts_[2]->wait(), 75);
  EXPECT_THAT(journal(), AnyOf(HasSubstr(" could not be reached at 198.18.0."),
                               HasSubstr(" did not connect to 198.18.0.")));
}

INSTANTIATE_TEST_SUITE_P(hosts, hosts_training_test,
                         testing::Values(where::here, where::namespaces),
                         name_of);

} // namespace

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  if (argc > 9 && std::string{argv[1]} == "--driver")
    return troupe::internal::test::be_driver(
      argv[2], std::atoi(argv[3]), std::atoi(argv[4]),
      static_cast<troupe::backend>(std::atoi(argv[5])), std::atoi(argv[6]),
      argv[7], argv[8], std::atoi(argv[9]));
  if (argc > 4 && std::string{argv[1]} == "--elastic-driver")
    return troupe::internal::test::be_elastic_driver(
      argv[2], std::atoi(argv[3]) != 0, std::atoi(argv[4]) != 0);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
