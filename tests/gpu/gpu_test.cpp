// What only a GPU can show. Each test skips itself where CUDA shows none, but
// fails if TROUPE_EXPECT_GPU is set.

#include <cstdlib>
#include <memory>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/torch.h>

#include <troupe/torch.hpp>

#include "troupe/trainers/torch/data/device_transfer.hpp"
#include "troupe/trainers/torch/data_parallel/replica_comparison.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"

#include "tests/support/temporary_folder.hpp"
#include "tests/support/torch_ranks.hpp"

namespace troupe::internal::test {

namespace {

int current_gpu() {
  return c10::impl::VirtualGuardImpl{at::kCUDA}.getDevice().index();
}

void seed(train_context&) {
  torch::manual_seed(1);
}

void names_its_device(train_context& context) {
  auto here = device(context);
  // Without an index: the current device of this thread.
  auto plain = torch::ones({2}, torch::kCUDA);
  context.report({{"is_cuda", here.is_cuda()},
                  {"device", here.index()},
                  {"current", current_gpu()},
                  {"plain", plain.device().index()},
                  {"sum", plain.sum().item<double>()}});
}

void trains(train_context& context) {
  torch::manual_seed(7);
  auto model = prepare_model(context, torch::nn::Linear(8, 2));
  fused_sgd optimizer{model.parameters(), {.lr = 0.1}};
  auto x = torch::randn({16, 8}).to(device(context));
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    auto loss = model.forward(x).pow(2).mean();
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    first = step == 0 ? last : first;
  }
  context.report({{"first", first}, {"last", last}});
}

/// A training with an optimizer of LibTorch, on one device.
struct libtorch_training {
  explicit libtorch_training(at::Device x) : device(x) {
    model->to(device);
    averages.emplace("weight", torch::zeros({2, 3}, device));
  }

  void step() {
    optimizer.zero_grad();
    model->forward(torch::ones({1, 3}, device)).sum().backward();
    optimizer.step();
    averages.at("weight").lerp_(model->weight.detach(), 0.5);
  }

  at::Device device;
  torch::nn::Linear model{3, 2};
  torch::optim::Adam optimizer{model->parameters(),
                               torch::optim::AdamOptions(0.1)};
  tensor_map averages;
  train_state state{
    {"model", model}, {"optimizer", optimizer}, {"averages", averages}};
};

/// One NCCL rank on the first GPU.
c10::intrusive_ptr<c10d::ProcessGroup>
nccl_of_one(c10::intrusive_ptr<c10d::Backend>& member) {
  load_cuda(0);
  auto store = c10::make_intrusive<c10d::HashStore>();
  at::Device device{at::kCUDA, 0};
  member = make_nccl_group(store, 0, 1, device, std::chrono::seconds{60});
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
  group->setBoundDeviceId(device);
  group->setBackend(at::kCUDA, c10d::ProcessGroup::NCCL, member);
  group->setDefaultBackend(c10d::ProcessGroup::NCCL);
  return group;
}

} // namespace

class gpu_test : public ::testing::Test {
protected:
  void SetUp() override {
    if (gpu_count() > 0)
      return;
    if (std::getenv("TROUPE_EXPECT_GPU"))
      FAIL() << "CUDA shows this process no GPU";
    GTEST_SKIP() << "CUDA shows this process no GPU";
  }

  result run(void (*loop)(train_context&), scaling_config scaling) {
    run_config config{.name = "gpu", .storage_path = folder_.path()};
    config.quiet = true;
    config.rank_hooks.before_loop = &seed;
    return torch_trainer{loop, {.scaling = scaling, .run = config}}.fit();
  }

  temporary_folder folder_;
};

TEST_F(gpu_test, a_rank_computes_on_its_gpu_though_a_hook_set_a_seed) {
  auto outcome = run(names_its_device, {.num_workers = 1, .use_gpu = true});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("is_cuda").number(), 1);
  EXPECT_EQ(outcome.metrics.at("device").number(), 0);
  EXPECT_EQ(outcome.metrics.at("current").number(), 0);
  EXPECT_EQ(outcome.metrics.at("plain").number(), 0);
  EXPECT_EQ(outcome.metrics.at("sum").number(), 2);
}

TEST_F(gpu_test, every_rank_selects_a_gpu_of_its_own) {
  if (gpu_count() < 2)
    GTEST_SKIP() << "needs two GPUs, CUDA shows " << gpu_count();
  auto outcome = run(names_its_device, {.num_workers = 2, .use_gpu = true});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto history = outcome.metrics_history();
  ASSERT_TRUE(history);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(history->at(0).values.at(rank).at("current").number(), rank);
}

TEST_F(gpu_test, the_callers_thread_computes_on_a_gpu) {
  auto outcome = run(names_its_device, {.num_workers = 0, .use_gpu = true});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("is_cuda").number(), 1);
}

TEST_F(gpu_test, the_callers_thread_has_its_gpu_again_after_a_run) {
  if (gpu_count() < 2)
    GTEST_SKIP() << "needs two GPUs, CUDA shows " << gpu_count();
  const c10::DeviceGuard mine{at::Device{at::kCUDA, 1}};
  auto outcome = run(names_its_device, {.num_workers = 0, .use_gpu = true});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("current").number(), 0);
  EXPECT_EQ(current_gpu(), 1);
}

TEST_F(gpu_test, a_world_of_one_trains_on_a_gpu) {
  auto outcome = run(trains, {.num_workers = 1, .use_gpu = true});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_LT(outcome.metrics.at("last").number(),
            outcome.metrics.at("first").number());
}

TEST_F(gpu_test, ddp_averages_gradients_of_one_gpu_over_gloo) {
  gloo_meeting_place place{false};
  std::vector<at::Tensor> gradients(2);
  auto failures = run_threads(2, [&](int rank) {
    auto group = place.group(0, rank, 2);
    // The same backend carries CUDA tensors through host memory.
    group->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::GLOO,
                      group->getBackend(at::kCPU));
    auto inner = std::make_shared<torch::nn::LinearImpl>(4, 1);
    inner->to(at::Device{at::kCUDA, 0});
    auto model = make_ddp(inner, group);
    model.forward(torch::full({2, 4}, rank + 1.0, torch::kCUDA))
      .sum()
      .backward();
    gradients[static_cast<std::size_t>(rank)] = inner->weight.grad().cpu();
  });
  EXPECT_EQ(failures, (std::vector<std::string>{"", ""}));
  EXPECT_TRUE(gradients[0].equal(torch::full({1, 4}, 3.0))) << gradients[0];
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
}

TEST_F(gpu_test, nccl_reduces_and_ends_in_order) {
  c10::intrusive_ptr<c10d::Backend> member;
  auto group = nccl_of_one(member);
  std::vector<at::Tensor> x{torch::full({1024}, 3.0, torch::kCUDA)};
  group->allreduce(x)->wait();
  EXPECT_EQ(x[0].sum().item<double>(), 3072);
  auto inner = std::make_shared<torch::nn::LinearImpl>(4, 1);
  inner->to(at::Device{at::kCUDA, 0});
  {
    auto model = make_ddp(inner, group);
    model.forward(torch::ones({2, 4}, torch::kCUDA)).sum().backward();
  }
  EXPECT_TRUE(inner->weight.grad().cpu().equal(torch::full({1, 4}, 2.0)));
  group.reset();
  member->shutdown();
  EXPECT_EQ(member->getError(), c10d::ErrorType::SUCCESS);
}

TEST_F(gpu_test, nccl_aborts_with_a_kernel_in_flight) {
  c10::intrusive_ptr<c10d::Backend> member;
  auto group = nccl_of_one(member);
  auto busy = torch::rand({4096, 4096}, torch::kCUDA);
  std::vector<at::Tensor> x{busy};
  for (int i = 0; i < 50; ++i) {
    busy = busy.mm(busy).div(4096);
    x[0] = busy;
    group->allreduce(x);
  }
  member->abort();
  group.reset();
  // The device still works.
  EXPECT_EQ(torch::ones({8}, torch::kCUDA).sum().item<double>(), 8);
}

TEST_F(gpu_test, nccl_closes_after_what_is_under_way) {
  c10::intrusive_ptr<c10d::Backend> member;
  auto group = nccl_of_one(member);
  auto value = torch::rand({4096, 4096}, torch::kCUDA);
  auto expected = value.clone();
  std::vector<at::Tensor> x{value};
  for (int i = 0; i < 50; ++i)
    group->allreduce(x);
  group.reset();
  close_nccl_group(member, at::Device{at::kCUDA, 0});
  EXPECT_EQ(member->getError(), c10d::ErrorType::SUCCESS);
  EXPECT_TRUE(value.equal(expected)); // a sum over one rank, 50 times
  member.reset();
  EXPECT_TRUE(group_reaper::drain(std::chrono::seconds{20}));
}

// A report must not come before the collectives that the loop has started.
TEST_F(gpu_test, nccl_has_come_to_rest_when_a_report_is_made) {
  if (gpu_count() < 2)
    GTEST_SKIP() << "needs two GPUs, CUDA shows " << gpu_count();
  auto outcome = run(
    [](train_context& context) {
      auto x = torch::rand({4096, 4096}).to(device(context));
      for (int i = 0; i < 50; ++i)
        all_reduce(context, x.div_(2));
      c10::Event ended{at::kCUDA};
      ended.record(
        c10::impl::VirtualGuardImpl{at::kCUDA}.getStream(x.device()));
      (void) context.new_checkpoint();
      context.report({{"ended", ended.query()}});
    },
    {.num_workers = 2, .use_gpu = true});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("ended").number(), 1);
}

// While the device computes for one batch the next one is copied: a stream of
// the compute that is not over holds no copy up.
TEST_F(gpu_test, a_loader_copies_while_the_device_computes) {
  const at::Device device{at::kCUDA, 0};
  const c10::impl::VirtualGuardImpl gpu{at::kCUDA};
  const device_transfer transfer{device};
  { // So that nothing is allocated or pinned for the first time below.
    auto first = torch::arange(1 << 20);
    transfer.arrive(transfer.send({&first}), {&first});
  }
  gpu.synchronizeDevice(0);
  auto busy = torch::rand({4096, 4096}, device);
  for (int i = 0; i < 400; ++i)
    busy = busy.mm(busy).div_(4096);
  c10::Event computed{at::kCUDA};
  computed.record(gpu.getStream(device));
  auto batch = torch::arange(1 << 20);
  auto ticket = transfer.send({&batch});
  ticket->synchronize();
  EXPECT_FALSE(computed.query()) << "the copy waited for the compute stream";
  transfer.arrive(ticket, {&batch});
  EXPECT_TRUE(batch.sum().cpu().equal(torch::arange(1 << 20).sum()));
}

TEST_F(gpu_test, fused_optimizers_step_as_on_the_cpu) {
  auto steps = [](at::Device where) {
    torch::manual_seed(3);
    torch::nn::Linear model(16, 4);
    auto x = torch::randn({8, 16});
    model->to(where);
    fused_adamw optimizer{model->parameters(), {.lr = 0.01}};
    for (int i = 0; i < 5; ++i) {
      optimizer.zero_grad();
      model->forward(x.to(where)).pow(2).sum().backward();
      optimizer.step();
    }
    return model->weight.detach().cpu();
  };
  EXPECT_TRUE(torch::allclose(steps(at::kCUDA), steps(at::kCPU), 1e-4, 1e-5));
}

TEST_F(gpu_test, replicas_are_compared_by_what_the_cpu_would_compute) {
  auto x = torch::randn({3, 1000});
  EXPECT_EQ(sum_by_place(x.to(at::kCUDA)).item<std::int64_t>(),
            sum_by_place(x).item<std::int64_t>());
}

// What rank 0 saved on its GPU, all ranks load.
TEST_F(gpu_test, a_training_resumes_on_its_own_device) {
  fs::create_directory(folder_ / "checkpoints");
  libtorch_training first{at::Device{at::kCUDA, 0}};
  first.step();
  auto files = staging::create(folder_.path(), 0, 0).value();
  first.state.save(files);
  first.step();
  std::vector<at::Device> devices{at::kCPU};
  if (gpu_count() > 1)
    devices.emplace_back(at::kCUDA, 1);
  for (auto device : devices) {
    libtorch_training second{device};
    second.state.load(checkpoint::from_directory(files.path()));
    second.step();
    EXPECT_EQ(second.averages.at("weight").device(), device);
    EXPECT_TRUE(torch::allclose(second.averages.at("weight").cpu(),
                                first.averages.at("weight").cpu(), 1e-4, 1e-5));
  }
}

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
