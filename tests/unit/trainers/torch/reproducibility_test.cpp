#include "troupe/trainers/torch/reproducibility.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/memory_link.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/files/safetensors.hpp"
#include "troupe/trainers/torch/optim/fused_optimizer.hpp"

using namespace troupe;
using namespace troupe::internal;

namespace {

struct noise_dataset {
  int size() const { return 64; }

  std::pair<at::Tensor, at::Tensor> get(std::size_t i,
                                        at::Generator random) const {
    auto x = at::linspace(0, 1, 3 * 8 * 8).view({3, 8, 8});
    return {x.sin() * static_cast<double>(i) + at::rand({3, 8, 8}, random),
            at::scalar_tensor(i % 4, at::kLong)};
  }
};

/// Trains a small network with dropout and writes its weights to *path*.
void train(std::uint64_t seed, const fs::path& path) {
  enable_reproducibility(seed);
  train_context context{{}, test::make_memory_link(), std::nullopt};
  torch::nn::Sequential model{
    torch::nn::Conv2d{torch::nn::Conv2dOptions(3, 8, 3)},
    torch::nn::BatchNorm2d{8},
    torch::nn::ReLU{},
    torch::nn::Flatten{},
    torch::nn::Dropout{0.3},
    torch::nn::Linear{288, 4}};
  fused_adam optimizer{model->parameters()};
  auto loader = prepare_data_loader(
    context, noise_dataset{},
    {.batch_size = 16, .shuffle = true, .seed = seed, .workers = 2});
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& [images, labels] : loader) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(model->forward(images), labels)
        .backward();
      optimizer.step();
    }
  }
  save_safetensors(path, model);
}

/// Runs `train` in a process of its own: this program, asked for the disabled
/// test below.
void train_elsewhere(const char* seed, const fs::path& path) {
  ::setenv("TROUPE_TEST_SEED", seed, 1);
  ::setenv("TROUPE_TEST_OUTPUT", path.c_str(), 1);
  auto self = fs::read_symlink("/proc/self/exe").string();
  auto command = "'" + self
                 + "' --gtest_also_run_disabled_tests "
                   "--gtest_filter='*DISABLED_trains_once' >/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
}

} // namespace

// The body of the child processes of the next test.
TEST(reproducibility_test, DISABLED_trains_once) {
  const auto* seed = std::getenv("TROUPE_TEST_SEED");
  const auto* path = std::getenv("TROUPE_TEST_OUTPUT");
  ASSERT_TRUE(seed && path);
  train(std::stoull(seed), path);
}

TEST(reproducibility_test, gives_the_same_bytes_in_two_runs) {
  test::temporary_folder folder;
  train_elsewhere("7", folder / "a");
  train_elsewhere("7", folder / "b");
  train_elsewhere("8", folder / "c");
  auto a = test::bytes_of(folder / "a");
  EXPECT_GT(a.size(), 1000u);
  EXPECT_EQ(a, test::bytes_of(folder / "b"));
  EXPECT_NE(a, test::bytes_of(folder / "c"));
}

TEST(reproducibility_test, asks_for_deterministic_algorithms) {
  enable_reproducibility();
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  at::globalContext().setDeterministicAlgorithms(false, false);
}
