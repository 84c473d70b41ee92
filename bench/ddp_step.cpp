#include <cstddef>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/torch.h>

#include "bare_group.hpp"
#include "numbers.hpp"
#include "resnet18.hpp"
#include "shared_numbers.hpp"
#include "takes.hpp"
#include "troupe/trainers/torch/data_parallel/reducer_factory.hpp"
#include <troupe/torch.hpp>

namespace troupe::internal::bench {

namespace {

constexpr int warm_up = 3;
constexpr std::size_t rounds = 12;
constexpr std::size_t per_round = 3;
constexpr std::size_t samples = rounds * per_round;

struct config {
  std::string store;
  std::string times;
  bool bare_reducer = false; ///< The reference; else our model over bare Gloo.

  TROUPE_FIELDS(store, times, bare_reducer)
};

/// A model, its optimizer and a batch of 32 images, shared by both sides of a
/// comparison.
template <class Forward>
class stepper {
public:
  stepper(std::vector<torch::Tensor> parameters, Forward forward)
    : optimizer_(std::move(parameters)), forward_(std::move(forward)) {}

  void operator()() {
    optimizer_.zero_grad();
    auto loss = torch::cross_entropy_loss(forward_(images_), labels_);
    loss.backward();
    optimizer_.step();
  }

private:
  fused_adam optimizer_;
  Forward forward_;
  torch::Tensor images_ = torch::rand({32, 1, 28, 28});
  torch::Tensor labels_ = torch::randint(10, {32});
};

/// The minimum of data-parallel training: a Reducer, and rank 0's buffers
/// before each forward.
struct bare_forward {
  std::shared_ptr<resnet18_impl> model;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<c10d::Reducer> reducer;
  std::vector<torch::Tensor> buffers;

  bare_forward(std::shared_ptr<resnet18_impl> module,
               c10::intrusive_ptr<c10d::ProcessGroup> ranks)
    : model(std::move(module)), group(std::move(ranks)),
      reducer(make_reducer(tensors_of(*model).parameters, group, {})),
      buffers(model->buffers()) {}

  torch::Tensor operator()(const torch::Tensor& images) {
    reducer->prepare_for_forward();
    reducer->rebuild_buckets();
    {
      torch::NoGradGuard no_grad;
      c10d::broadcast_coalesced(group, buffers, 250 << 20);
    }
    auto result = model->forward(images);
    reducer->prepare_for_backward({});
    return result;
  }
};

template <class F>
void time_round(F& step, shared_numbers& times, std::size_t at) {
  for (std::size_t i = 0; i < per_round; ++i) {
    auto before = now();
    step();
    times[at + i] = now() - before;
  }
}

/// Rounds of the two in turn. For each rank, `times` holds the seconds of our
/// steps, then those of the reference.
template <class Ours, class Reference>
void compare(train_context& context, const config& cfg, Ours ours,
             Reference reference) {
  shared_numbers times{cfg.times, 4 * samples};
  for (int i = 0; i < warm_up; ++i) {
    ours();
    reference();
  }
  auto begin = 2 * samples * static_cast<std::size_t>(context.rank());
  for (std::size_t round = 0; round < rounds; ++round) {
    auto at = begin + round * per_round;
    time_round(ours, times, at);
    time_round(reference, times, at + samples);
  }
}

void loop(train_context& context, const config& cfg) {
  torch::manual_seed(0);
  auto gloo = bare_gloo_group(cfg.store, context.rank(), context.world_size());
  auto stepper_of = [](auto& model) {
    auto forward = [&](const torch::Tensor& x) { return model.forward(x); };
    return stepper{model.parameters(), forward};
  };
  auto model = prepare_model(context, resnet18(1, 10));
  if (cfg.bare_reducer) {
    auto bare = resnet18(1, 10);
    compare(context, cfg, stepper_of(model),
            stepper{bare->parameters(), bare_forward{bare, gloo}});
  } else {
    auto over_gloo = make_ddp(resnet18(1, 10), gloo);
    compare(context, cfg, stepper_of(model), stepper_of(over_gloo));
  }
}

figure run(workplace& place, backend kind, bool bare_reducer) {
  config cfg{place.new_path("store"), place.new_path("times"), bare_reducer};
  shared_numbers times{cfg.times, 4 * samples};
  torch_trainer{loop,
                cfg,
                {.scaling = {.num_workers = 2},
                 .run = place.new_run(),
                 .torch = {.backend = kind}}}
    .fit()
    .value_or_throw();
  auto both_ranks = [&](std::size_t begin) {
    auto result = times.part(begin, samples);
    auto second = times.part(begin + 2 * samples, samples);
    result.insert(result.end(), second.begin(), second.end());
    return result;
  };
  return {median(both_ranks(0)) * 1e3, median(both_ranks(samples)) * 1e3};
}

} // namespace

figure ddp_step(workplace& place) {
  return run(place, backend::gloo, true);
}

figure ddp_step_local(workplace& place) {
  return run(place, backend::local, false);
}

} // namespace troupe::internal::bench
