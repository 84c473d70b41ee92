#include "troupe/trainers/torch/files/object_formats.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/mentions.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainers/torch/data/loader_fixture.hpp"
#include "troupe/trainers/torch/data/distributed_sampler.hpp"
#include "troupe/trainers/torch/metrics/aggregation.hpp"
#include "troupe/trainers/torch/metrics/metric_collection.hpp"
#include "troupe/trainers/torch/metrics/regression/errors.hpp"
#include "troupe/trainers/torch/optim/fused_optimizer.hpp"
#include "troupe/trainers/torch/optim/lr_scheduler.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;

// What `metric_value` refuses is what LibTorch calls a tensor.
static_assert(tensor_like<at::Tensor>);
static_assert(!tensor_like<std::string>);

/// All that a training may consist of.
struct training {
  explicit training(int inputs = 3)
    : model(inputs, 2), optimizer(model->parameters(), {.lr = 0.1}),
      old(model->parameters(), torch::optim::AdamOptions(0.01)),
      schedule(optimizer, step_lr{}), plateau(optimizer),
      sampler(8, {.batch_size = 2, .shuffle = true}),
      state{{"model", model},     {"optimizer", optimizer},
            {"old", old},         {"schedule", schedule},
            {"plateau", plateau}, {"sampler", sampler},
            {"average", average}, {"tensors", tensors},
            {"shared", pointer}} {}

  void step() {
    optimizer.zero_grad();
    model->forward(torch::ones({1, model->options.in_features()}))
      .sum()
      .backward();
    optimizer.step();
    old.step();
    schedule.step();
    plateau.step(1);
    sampler.start();
    (void) sampler.next();
    average = average.defined() ? average + 1 : torch::ones({2});
    tensors["x"] = average.clone();
  }

  torch::nn::Linear model;
  fused_adam optimizer;
  torch::optim::Adam old;
  lr_scheduler schedule;
  reduce_lr_on_plateau plateau;
  distributed_sampler sampler;
  torch::Tensor average;
  tensor_map tensors;
  std::shared_ptr<torch::nn::LinearImpl> pointer = model.ptr();
  train_state state;
};

/// An optimizer as LibTorch's, with a state of its only parameter.
struct small_optimizer {
  explicit small_optimizer(at::Device where)
    : groups{torch::optim::OptimizerParamGroup{
      std::vector<at::Tensor>{torch::zeros({2}, where)}}} {}

  void save(torch::serialize::OutputArchive& out) const {
    out.write("state", c10::IValue{state});
  }

  void load(torch::serialize::InputArchive& in) {
    c10::IValue x;
    in.read("state", x);
    state = x.toTensor();
  }

  const std::vector<torch::optim::OptimizerParamGroup>& param_groups() const {
    return groups;
  }

  std::vector<torch::optim::OptimizerParamGroup> groups;
  at::Tensor state = torch::ones({2});
};

class object_formats_test : public testing::Test {
protected:
  void SetUp() override { fs::create_directory(run / "checkpoints"); }

  staged_checkpoint saved(const training& x) {
    auto files = staging::create(run.path(), 0, 0).value();
    x.state.save(files);
    return files;
  }

  static checkpoint read(const staged_checkpoint& x) {
    return checkpoint::from_directory(x.path());
  }

  temporary_folder run;
};

} // namespace

TEST_F(object_formats_test, a_training_continues_as_if_it_had_not_stopped) {
  training first;
  first.step();
  auto files = saved(first);
  EXPECT_THAT(names_below(files.path()),
              ElementsAre("average.safetensors", "model.safetensors", "old.pt",
                          "optimizer.safetensors", "plateau.bin", "sampler.bin",
                          "schedule.bin", "shared.safetensors",
                          "tensors.safetensors"));
  training second;
  second.state.load(read(files));
  EXPECT_EQ(second.schedule.count(), 1);
  EXPECT_EQ(second.sampler.state(), first.sampler.state());
  for (auto x : {&first, &second})
    x->step();
  EXPECT_TRUE(torch::equal(first.model->weight, second.model->weight));
  EXPECT_TRUE(torch::equal(first.average, second.average));
  EXPECT_TRUE(torch::equal(first.tensors.at("x"), second.tensors.at("x")));
  EXPECT_EQ(first.plateau.state(), second.plateau.state());
  EXPECT_EQ(first.optimizer.lr(), second.optimizer.lr());
}

TEST_F(object_formats_test, a_model_that_does_not_fit_leaves_all_as_it_was) {
  training small;
  small.step();
  auto files = saved(small);
  training large{4};
  auto weight = large.model->weight.detach().clone();
  try {
    large.state.load(read(files));
    FAIL() << "it was loaded";
  } catch (const train_error& x) {
    EXPECT_TRUE(mentions(x.reason(), "model.safetensors")) << x.what();
    EXPECT_TRUE(mentions(x.reason(), "[2, 3]")) << x.what();
  }
  EXPECT_TRUE(torch::equal(large.model->weight, weight));
  EXPECT_EQ(large.schedule.count(), 0);
  EXPECT_FALSE(large.average.defined());
}

TEST_F(object_formats_test, an_optimizer_that_does_not_fit_is_taken_back) {
  training first;
  first.step();
  auto files = saved(first);
  int epoch = 1;
  files.save("epoch", 2);
  torch::nn::Linear model{3, 2};
  auto weight = model->weight.detach().clone();
  fused_sgd other{model->parameters(), {.lr = 0.1, .momentum = 0.9}};
  train_state state{{"model", model}, {"epoch", epoch}, {"optimizer", other}};
  try {
    state.load(read(files));
    FAIL() << "it was loaded";
  } catch (const train_error& x) {
    EXPECT_TRUE(mentions(x.reason(), "optimizer.safetensors")) << x.what();
  }
  EXPECT_EQ(epoch, 1);
  EXPECT_TRUE(torch::equal(model->weight, weight));
}

// The other device is one without memory: it is there without a GPU.
TEST_F(object_formats_test, the_state_of_an_optimizer_follows_its_parameters) {
  small_optimizer first{at::kCPU}, second{at::kMeta};
  auto files = staging::create(run.path(), 0, 0).value();
  files.save("optimizer", first);
  read(files).load("optimizer", second);
  EXPECT_EQ(second.state.device(), at::Device{at::kMeta});
  EXPECT_EQ(second.state.sizes(), first.state.sizes());
}

TEST_F(object_formats_test, tensors_of_a_map_keep_their_devices) {
  auto files = staging::create(run.path(), 0, 0).value();
  files.save("averages",
             tensor_map{{"x", torch::ones({2})}, {"y", torch::ones({2})}});
  tensor_map averages{{"x", torch::zeros({2}, at::kMeta)},
                      {"z", torch::zeros({2})}};
  read(files).load("averages", averages);
  ASSERT_EQ(averages.size(), 2u);
  EXPECT_EQ(averages.at("x").device(), at::Device{at::kMeta});
  EXPECT_TRUE(averages.at("y").equal(torch::ones({2})));
}

TEST_F(object_formats_test, ranks_share_no_metric_with_samples) {
  sum_metric sum;
  metric_collection scores{mean_squared_error{}};
  train_state first{{"sum", sum}}, second{{"scores", scores}};
  sum.update(2);
  scores.update(torch::ones({2}), torch::zeros({2}));
  auto files = staging::create(run.path(), 0, 0).value();
  auto context = make_context(0, 2);
  for (auto* state : {&first, &second})
    EXPECT_THROW(state->save(files), train_error);
  try {
    context.report({}, first);
    FAIL() << "it was reported";
  } catch (const train_error& x) {
    EXPECT_TRUE(mentions(x.reason(), "'sum'")) << x.what();
  }
  sum.reset();
  first.save(files);
  files.save("scores_0", scores); // of one rank
}

TEST_F(object_formats_test, samples_of_a_single_rank_are_loaded_by_rank_0) {
  sum_metric sum;
  train_state state{{"sum", sum}};
  sum.update(2);
  auto files = staging::create(run.path(), 0, 0).value();
  state.save(files);
  for (auto rank : {0, 1}) {
    auto context = make_context(rank, 2);
    state.load(read(files));
    EXPECT_EQ(sum.updates(), rank == 0 ? 1 : 0);
  }
}

} // namespace troupe::internal::test
