// The order of all hooks, as Lightning calls them.

#include <sstream>

#include "tests/integration/torch/loop/loop_test.hpp"

namespace troupe::internal::test {

namespace {

using names = std::vector<std::string>;

/// Notes every hook as "c <name>".
struct noting_callback : loop_callback {
  noting_callback(names& out, callback_phase phase, std::string who = "c ")
    : out(out), phase_(phase), who(std::move(who)) {}

  void note(const char* name) { out.push_back(who + name); }

  void setup(epoch_loop&) override { note("setup"); }
  void on_fit_start(epoch_loop&) override { note("on_fit_start"); }
  void on_sanity_check_start(epoch_loop& x) override {
    EXPECT_TRUE(x.sanity_checking());
    note("on_sanity_check_start");
  }
  void on_sanity_check_end(epoch_loop&) override {
    note("on_sanity_check_end");
  }
  void on_train_start(epoch_loop& x) override {
    EXPECT_FALSE(x.sanity_checking());
    // Values of the sanity check are dropped; saved ones exist.
    EXPECT_EQ(x.callback_metrics().empty(), x.current_epoch() == 0);
    note("on_train_start");
  }
  void on_train_epoch_start(epoch_loop&) override {
    note("on_train_epoch_start");
  }
  void on_train_batch_start(epoch_loop&, std::int64_t) override {
    note("on_train_batch_start");
  }
  void on_before_zero_grad(epoch_loop&, loop_optimizer&) override {
    note("on_before_zero_grad");
  }
  void on_before_backward(epoch_loop&, const at::Tensor&) override {
    note("on_before_backward");
  }
  void on_after_backward(epoch_loop&) override { note("on_after_backward"); }
  void on_before_optimizer_step(epoch_loop&, loop_optimizer&) override {
    note("on_before_optimizer_step");
  }
  void on_train_batch_end(epoch_loop&, const at::Tensor& loss,
                          std::int64_t) override {
    EXPECT_FALSE(loss.requires_grad());
    note("on_train_batch_end");
  }
  void on_validation_start(epoch_loop&) override {
    note("on_validation_start");
  }
  void on_validation_epoch_start(epoch_loop&) override {
    note("on_validation_epoch_start");
  }
  void on_validation_batch_start(epoch_loop&, std::int64_t) override {
    note("on_validation_batch_start");
  }
  void on_validation_batch_end(epoch_loop&, std::int64_t) override {
    note("on_validation_batch_end");
  }
  void on_validation_epoch_end(epoch_loop&) override {
    note("on_validation_epoch_end");
  }
  void on_validation_end(epoch_loop&) override { note("on_validation_end"); }
  void on_train_epoch_end(epoch_loop&) override { note("on_train_epoch_end"); }
  void on_train_end(epoch_loop&) override { note("on_train_end"); }
  void on_fit_end(epoch_loop&) override { note("on_fit_end"); }
  void teardown(epoch_loop&) override { note("teardown"); }
  void on_exception(epoch_loop&, const std::exception_ptr& what) override {
    try {
      std::rethrow_exception(what);
    } catch (const std::exception& e) {
      out.push_back(who + "on_exception " + e.what());
    }
  }
  void on_save_checkpoint(epoch_loop&, loop_checkpoint& x) override {
    x.values["said"] = "by callback";
    note("on_save_checkpoint");
  }
  void on_load_checkpoint(epoch_loop&, const loop_checkpoint& x) override {
    EXPECT_EQ(x.values.at("said"), metric_value{"by callback"});
    note("on_load_checkpoint");
  }
  metrics state_dict() const override {
    out.push_back(who + "state_dict");
    return {{"x", 1}};
  }
  void load_state_dict(const metrics& x) override {
    EXPECT_EQ(x.at("x"), metric_value{1});
    note("load_state_dict");
  }
  std::string state_key() const override { return who; }
  callback_phase phase() const override { return phase_; }

  names& out;
  callback_phase phase_;
  std::string who;
};

/// Notes every hook as "m <name>".
struct noting_module : training_module<batch> {
  explicit noting_module(names& out) : out(out) {}

  void note(const char* name) { out.push_back(std::string{"m "} + name); }

  std::vector<std::shared_ptr<loop_callback>> configure_callbacks() override {
    note("configure_callbacks");
    return {};
  }
  void prepare_data() override { note("prepare_data"); }
  void setup() override { note("setup"); }
  void configure_model() override {
    note("configure_model");
    layer = register_module("layer", torch::nn::Linear(3, 1));
  }
  loop_optimizer configure_optimizers() override {
    note("configure_optimizers");
    return std::make_shared<fused_sgd>(parameters());
  }
  void teardown() override { note("teardown"); }
  void on_fit_start() override { note("on_fit_start"); }
  void on_fit_end() override { note("on_fit_end"); }
  void on_train_start() override { note("on_train_start"); }
  void on_train_end() override { note("on_train_end"); }
  void on_train_epoch_start() override { note("on_train_epoch_start"); }
  void on_train_epoch_end() override { note("on_train_epoch_end"); }
  void on_validation_start() override {
    EXPECT_FALSE(is_training());
    note("on_validation_start");
  }
  void on_validation_end() override { note("on_validation_end"); }
  void on_validation_epoch_start() override {
    note("on_validation_epoch_start");
  }
  void on_validation_epoch_end() override { note("on_validation_epoch_end"); }
  void on_before_zero_grad(loop_optimizer&) override {
    note("on_before_zero_grad");
  }
  void on_before_backward(const at::Tensor&) override {
    EXPECT_FALSE(layer->weight.grad().defined()); // zeroed before
    note("on_before_backward");
  }
  void on_after_backward() override {
    EXPECT_TRUE(layer->weight.grad().defined());
    note("on_after_backward");
  }
  void on_before_optimizer_step(loop_optimizer& x) override {
    before_step = layer->weight.detach().clone();
    EXPECT_NE(x.as<fused_sgd>(), nullptr);
    note("on_before_optimizer_step");
  }
  void on_save_checkpoint(loop_checkpoint& x) override {
    x.tensors["kept"] = torch::full({2}, 7.0);
    note("on_save_checkpoint");
  }
  void on_load_checkpoint(const loop_checkpoint& x) override {
    EXPECT_TRUE(torch::equal(x.tensors.at("kept"), torch::full({2}, 7.0)));
    note("on_load_checkpoint");
  }
  void transfer_batch(batch& x, at::Device device) override {
    note("transfer");
    training_module::transfer_batch(x, device);
  }
  void transfer_validation_batch(batch& x, at::Device device) override {
    note("transfer");
    training_module::transfer_validation_batch(x, device);
  }
  void on_train_batch_start(batch&, std::int64_t) override {
    note("on_train_batch_start");
  }
  at::Tensor training_step(batch& x, std::int64_t index) override {
    note("training_step");
    if (index == throw_at)
      throw std::runtime_error("no more");
    return torch::mse_loss(layer(x.first), x.second);
  }
  void on_train_batch_end(const at::Tensor&, batch&, std::int64_t) override {
    EXPECT_FALSE(torch::equal(before_step, layer->weight));
    note("on_train_batch_end");
  }
  void on_validation_batch_start(batch&, std::int64_t) override {
    note("on_validation_batch_start");
  }
  void validation_step(batch& x, std::int64_t) override {
    EXPECT_FALSE(layer(x.first).requires_grad());
    log("val", 1);
    note("validation_step");
  }
  void on_validation_batch_end(batch&, std::int64_t) override {
    note("on_validation_batch_end");
  }

  names& out;
  std::int64_t throw_at = -1;
  at::Tensor before_step;
  torch::nn::Linear layer = nullptr;
};

/// One name a line; "cm <name>" is the callback's hook and then the module's.
names lines(const std::string& text) {
  names result;
  std::istringstream in{text};
  for (std::string who, name; in >> who >> name;) {
    for (auto x : who)
      result.push_back(std::string{x} + ' ' + name);
  }
  return result;
}

names operator+(names x, const names& y) {
  x.insert(x.end(), y.begin(), y.end());
  return x;
}

const auto start = lines(R"(
  m  configure_callbacks
  m  prepare_data
  cm setup
  m  configure_model
  m  configure_optimizers
  cm on_fit_start)");

const auto validation = lines(R"(
  cm on_validation_start
  cm on_validation_epoch_start
  m  transfer
  cm on_validation_batch_start
  m  validation_step
  cm on_validation_batch_end
  cm on_validation_epoch_end
  cm on_validation_end)");

const auto sanity_check = lines("c on_sanity_check_start") + validation
                          + lines("c on_sanity_check_end");

const auto until_step = lines(R"(
  m  transfer
  cm on_train_batch_start
  m  training_step)");

const auto train_batch = until_step + lines(R"(
  cm on_before_zero_grad
  cm on_before_backward
  cm on_after_backward
  cm on_before_optimizer_step
  cm on_train_batch_end)");

const auto train_start = lines("cm on_train_start");
const auto epoch_start = lines("cm on_train_epoch_start");
const auto epoch_end = lines("cm on_train_epoch_end");
const auto end = lines(R"(
  cm on_train_end
  cm on_fit_end
  cm teardown)");

struct hook_order_test : loop_test {
  names order(loop_options options, callback_phase phase,
              std::int64_t throw_at = -1, const std::string& run_name = "run") {
    names out;
    outcome = run(
      0,
      [&](train_context& context) {
        auto module = std::make_shared<noting_module>(out);
        module->throw_at = throw_at;
        auto train = prepare_data_loader(context, curve{8}, {.batch_size = 4});
        auto validation =
          prepare_data_loader(context, curve{4}, {.batch_size = 4});
        std::vector<epoch_loop::callback_ptr> callbacks{
          std::make_shared<noting_callback>(out, phase)};
        if (with_report)
          callbacks.insert(callbacks.begin(),
                           std::make_shared<train_report_callback>());
        epoch_loop loop{context, options, callbacks};
        loop.fit(module, train, validation);
      },
      run_name);
    return out;
  }

  bool with_report = false;
  result outcome;
};

} // namespace

TEST_F(hook_order_test, hooks_come_in_lightnings_order) {
  auto epoch = epoch_start + train_batch + train_batch + validation + epoch_end;
  EXPECT_EQ(order({.max_epochs = 2}, callback_phase::usual),
            start + sanity_check + train_start + epoch + epoch + end);
  EXPECT_FALSE(outcome.error);
}

TEST_F(hook_order_test, a_monitor_sees_what_the_module_does_at_the_end) {
  EXPECT_EQ(order({.limit_train_batches = 1, .num_sanity_val_steps = 0},
                  callback_phase::monitor),
            start + train_start + epoch_start + train_batch + validation
              + lines("m on_train_epoch_end\nc on_train_epoch_end") + end);
}

TEST_F(hook_order_test, validation_may_be_rare_but_at_the_end_or_off) {
  auto plain = epoch_start + train_batch + epoch_end;
  auto validated = epoch_start + train_batch + validation + epoch_end;
  EXPECT_EQ(order({.max_epochs = 3,
                   .limit_train_batches = 1,
                   .check_val_every_n_epoch = 2,
                   .num_sanity_val_steps = 0},
                  callback_phase::usual),
            start + train_start + plain + validated + validated + end);
  EXPECT_EQ(order({.limit_train_batches = 1, .limit_val_batches = 0},
                  callback_phase::usual, -1, "other"),
            start + train_start + plain + end);
}

TEST_F(hook_order_test, gradients_of_several_batches_are_zeroed_and_used_once) {
  auto first = until_step + lines(R"(
    cm on_before_zero_grad
    cm on_before_backward
    cm on_after_backward
    cm on_train_batch_end)");
  auto last = until_step + lines(R"(
    cm on_before_backward
    cm on_after_backward
    cm on_before_optimizer_step
    cm on_train_batch_end)");
  names out;
  auto x = run(0, [&](train_context& context) {
    struct accumulating : noting_module {
      using noting_module::noting_module;
      void on_before_backward(const at::Tensor&) override {
        note("on_before_backward");
      }
      void on_train_batch_end(const at::Tensor&, batch&,
                              std::int64_t) override {
        note("on_train_batch_end");
      }
    };
    epoch_loop loop{
      context,
      {.accumulate_grad_batches = 2},
      {std::make_shared<noting_callback>(out, callback_phase::usual)}};
    loop.fit(std::make_shared<accumulating>(out),
             prepare_data_loader(context, curve{8}, {.batch_size = 4}));
    EXPECT_EQ(loop.global_step(), 1);
  });
  EXPECT_FALSE(x.error);
  EXPECT_EQ(out,
            start + train_start + epoch_start + first + last + epoch_end + end);
}

TEST_F(hook_order_test, callbacks_receive_an_exception_and_nothing_after_it) {
  EXPECT_EQ(order({.num_sanity_val_steps = 0}, callback_phase::usual, 1),
            start + train_start + epoch_start + train_batch + until_step
              + names{"c on_exception no more"});
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("no more"), std::string::npos)
    << outcome.error->message;
}

TEST_F(hook_order_test, a_checkpoint_is_saved_last_and_loaded_before_the_fit) {
  with_report = true;
  auto save = lines(R"(
    c state_dict
    c on_save_checkpoint
    m on_save_checkpoint)");
  loop_options options{.limit_train_batches = 1, .num_sanity_val_steps = 0};
  auto epoch = epoch_start + train_batch + validation + epoch_end + save;
  // The run fails after its first epoch, so that it can be resumed.
  names out;
  auto once = [&](int epochs, bool fail) {
    return run(0, [&, epochs, fail](train_context& context) {
      options.max_epochs = epochs;
      auto train = prepare_data_loader(context, curve{8}, {.batch_size = 4});
      auto validation =
        prepare_data_loader(context, curve{4}, {.batch_size = 4});
      epoch_loop loop{
        context,
        options,
        {std::make_shared<train_report_callback>(),
         std::make_shared<noting_callback>(out, callback_phase::usual)}};
      loop.fit(std::make_shared<noting_module>(out), train, validation);
      if (fail)
        throw std::runtime_error("after the fit");
    });
  };
  ASSERT_TRUE(once(1, true).error);
  EXPECT_EQ(out, start + train_start + epoch + end);
  out.clear();
  options.num_sanity_val_steps = 2; // not done when a run is resumed
  auto second = once(2, false);
  ASSERT_FALSE(second.error) << second.error->message;
  EXPECT_EQ(out, lines(R"(
                   m  configure_callbacks
                   m  prepare_data
                   cm setup
                   m  configure_model
                   m  on_load_checkpoint
                   c  on_load_checkpoint
                   c  load_state_dict
                   m  configure_optimizers
                   cm on_fit_start)")
                   + train_start + epoch + end);
}

} // namespace troupe::internal::test
