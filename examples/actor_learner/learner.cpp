// Double Q-learning with a target network that follows slowly, data-parallel:
// each rank draws its own batches.

#include "learner.hpp"

#include <algorithm>
#include <stdexcept>

#include <torch/torch.h>

#include <caf/scoped_actor.hpp>

#include <troupe/torch.hpp>

#include "policy.hpp"

namespace {

torch::nn::Sequential make_network() {
  using torch::nn::Linear, torch::nn::ReLU;
  return torch::nn::Sequential{Linear{4, hidden}, ReLU{},
                               Linear{hidden, hidden}, ReLU{},
                               Linear{hidden, 2}};
}

/// Moves the weights of *to* towards those of *from*.
void follow(torch::nn::SequentialImpl& to, torch::nn::SequentialImpl& from,
            double part) {
  torch::NoGradGuard no_gradients;
  auto targets = to.parameters(), sources = from.parameters();
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i].lerp_(sources[i], part);
}

/// All weights, layer by layer, as a `policy` takes them.
std::vector<float> flat_weights(const torch::nn::SequentialImpl& network) {
  std::vector<float> result;
  for (auto& x : network.parameters()) {
    auto values = x.detach().cpu().contiguous();
    result.insert(result.end(), values.data_ptr<float>(),
                  values.data_ptr<float>() + values.numel());
  }
  return result;
}

/// A batch as tensors on *device*.
struct batch {
  batch(const transition* xs, std::int64_t n, torch::Device device)
    : from(torch::empty({n, 4})), to(torch::empty({n, 4})),
      action(torch::empty({n, 1}, torch::kLong)), reward(torch::empty({n})),
      discount(torch::empty({n})) {
    for (std::int64_t i = 0; i < n; ++i) {
      auto& x = xs[i];
      std::copy(x.from.begin(), x.from.end(), from.data_ptr<float>() + 4 * i);
      std::copy(x.to.begin(), x.to.end(), to.data_ptr<float>() + 4 * i);
      action.data_ptr<std::int64_t>()[i] = x.action;
      reward.data_ptr<float>()[i] = x.reward / 100; // values around 1
      discount.data_ptr<float>()[i] = x.discount;
    }
    for (auto x : {&from, &to, &action, &reward, &discount})
      *x = x->to(device);
  }

  torch::Tensor from, to, action, reward, discount;
};

/// A rank's way to the replay, which arrives in the rank's mailbox.
class replay_client {
public:
  explicit replay_client(troupe::train_context& context)
    : mailbox_(context), self_(troupe::actor_system_of(context)),
      replay_(mailbox_.receive<use_replay>().value.replay) {}

  std::vector<transition> draw(std::uint64_t count) {
    std::vector<transition> result;
    self_->request(replay_, std::chrono::minutes{1}, draw_transitions{count})
      .receive([&](drawn_transitions& x) { result = std::move(x.all); },
               [](const caf::error& why) {
                 throw std::runtime_error{"no transitions from the replay: "
                                          + troupe::from_caf(why).message};
               });
    return result;
  }

private:
  troupe::rank_mailbox mailbox_;
  caf::scoped_actor self_;
  exchange_actor replay_;
};

/// Gives the replay to each learner that has opened its mailbox: after a
/// restart to the new ones.
troupe::rank_observer_actor::behavior_type
introducer(troupe::rank_observer_actor::pointer self,
           const exchange_actor& replay, const troupe::run_control_actor& run) {
  // The answer is a `ranks_changed`, too.
  self->send(run, troupe::follow_ranks{}, troupe::rank_observer_actor{self});
  return {
    [replay](const troupe::ranks_changed& x) {
      for (auto& [rank, learner] : x.ranks)
        caf::anon_send(learner, use_replay{replay});
    },
  };
}

void learn(troupe::train_context& context, const learner_config& cfg) {
  torch::manual_seed(cfg.seed);
  auto device = troupe::device(context);
  auto model = troupe::prepare_model(context, make_network());
  auto target = make_network();
  target->to(device);
  follow(*target, model.module(), 1);
  troupe::fused_adam optimizer{model.parameters(), {.lr = cfg.lr}};
  int updates = 0;
  std::vector<float> policy; // the target network's weights
  troupe::train_state state{{"model", model},
                            {"target", target},
                            {"optimizer", optimizer},
                            {"updates", updates},
                            {"policy", policy}};
  context.resume(state);

  replay_client replay{context};
  while (updates < cfg.updates && !context.stop_requested()) {
    constexpr int batches = 10; // in one message
    auto drawn =
      replay.draw(static_cast<std::uint64_t>(batches * cfg.batch_size));
    double loss_sum = 0;
    for (int i = 0; i < batches; ++i, ++updates) {
      batch x{drawn.data() + i * cfg.batch_size, cfg.batch_size, device};
      torch::Tensor wanted;
      {
        torch::NoGradGuard no_gradients;
        auto best = model->forward(x.to).argmax(1, true);
        auto worth = target->forward(x.to).gather(1, best).squeeze(1);
        wanted = x.reward + x.discount * worth;
      }
      optimizer.zero_grad();
      auto found = model.forward(x.from).gather(1, x.action).squeeze(1);
      auto loss = torch::smooth_l1_loss(found, wanted);
      loss.backward();
      optimizer.step();
      follow(*target, model.module(), 0.01);
      loss_sum += loss.item<double>();
    }
    if (updates % cfg.report_every == 0) {
      policy = flat_weights(*target);
      context.report({{"updates", updates}, {"loss", loss_sum / batches}},
                     state);
    }
  }
}

} // namespace

troupe::expected<troupe::run_handle>
start_learners(caf::actor_system& system, const exchange_actor& replay,
               const learner_config& cfg,
               const troupe::train_options& options) {
  auto run =
    troupe::torch_trainer{
      learn, cfg, {.scaling = options.scaling, .run = options.run}}
      .start(system);
  if (run)
    system.spawn(introducer, replay, run->control());
  return run;
}
