// What cannot work is said in one sentence.

#include "tests/integration/torch/loop/loop_test.hpp"

namespace troupe::internal::test {

namespace {

auto batches(train_context& context, std::int64_t samples = 8) {
  return prepare_data_loader(context, curve{samples}, {.batch_size = 4});
}

template <class Module = curve_module>
std::function<void(train_context&)>
fit(loop_options options = {},
    std::vector<epoch_loop::callback_ptr> callbacks = {}) {
  return [=](train_context& context) {
    epoch_loop loop{context, options, callbacks};
    loop.fit(std::make_shared<Module>(), batches(context), batches(context));
  };
}

struct without_optimizer : curve_module {
  loop_optimizer configure_optimizers() override { return {}; }
};

struct with_no_callback : curve_module {
  std::vector<std::shared_ptr<loop_callback>> configure_callbacks() override {
    return {nullptr};
  }
};

struct with_null_optimizer : curve_module {
  loop_optimizer configure_optimizers() override {
    return std::shared_ptr<fused_adam>{};
  }
};

struct without_validation : training_module<batch> {
  at::Tensor training_step(batch& x, std::int64_t) override {
    return torch::mse_loss(layer(x.first), x.second);
  }
  loop_optimizer configure_optimizers() override {
    return std::make_shared<fused_sgd>(parameters());
  }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 1));
};

struct without_loss : curve_module {
  at::Tensor training_step(batch& x, std::int64_t) override {
    return net->forward(x.first); // one per sample
  }
};

struct logs_vectors : curve_module {
  void validation_step(batch& x, std::int64_t) override { log("y", x.second); }
};

struct logs_too_early : curve_module {
  void on_fit_start() override { log("x", 1); }
};

struct logs_both_ways : curve_module {
  void validation_step(batch&, std::int64_t index) override {
    log("x", 1, {.sync_dist = index > 0});
  }
};

struct stateful : loop_callback {
  metrics state_dict() const override { return {{"x", 1}}; }
  std::string state_key() const override { return "twin"; }
  void on_train_epoch_start(epoch_loop&) override {
    throw std::runtime_error{"an epoch begins"};
  }
};

/// Has a weight that its base does not know.
struct unregistered : curve_module {
  loop_optimizer configure_optimizers() override {
    auto all = parameters();
    all.push_back(temperature);
    return std::make_shared<fused_sgd>(all);
  }
  torch::Tensor temperature = torch::ones({1}).requires_grad_();
};

struct saves_too_early : loop_callback {
  void on_train_batch_end(epoch_loop& loop, const at::Tensor&,
                          std::int64_t) override {
    loop.save_checkpoint(fs::temp_directory_path());
  }
};

} // namespace

class bad_input_test : public loop_test {
protected:
  void expect(body_type body, const std::vector<std::string>& parts) {
    auto message = failure_of(std::move(body));
    for (auto& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
};

TEST_F(bad_input_test, a_value_that_is_never_logged_cannot_be_monitored) {
  expect(
    fit({}, {std::make_shared<early_stopping_callback>(
              early_stopping_options{.monitor = "val_acc"})}),
    {"early_stopping monitors 'val_acc', which no rank has logged; rank 0 has "
     "logged: loss=",
     "val_loss="});
}

TEST_F(bad_input_test, a_module_needs_an_optimizer) {
  expect(fit<without_optimizer>(),
         {"configure_optimizers of module ", "without_optimizer",
          " returned no optimizer"});
  expect(fit<with_null_optimizer>(), {" returned no optimizer"});
}

TEST_F(bad_input_test, a_callback_is_not_null) {
  expect(fit({}, {nullptr}), {"a callback of the loop is null"});
  expect(fit<with_no_callback>(), {"a callback of the loop is null"});
}

TEST_F(bad_input_test, an_optimizer_has_parameters_of_its_module) {
  expect(fit<unregistered>(),
         {"the optimizer has a parameter that module ",
          "unregistered does not have", "register_parameter"});
}

TEST_F(bad_input_test, a_sum_over_ranks_passes_no_gradient) {
  expect(
    [](train_context& context) {
      all_reduce(context, torch::ones({1}).requires_grad_() * 2);
    },
    {"all_reduce was given a tensor that requires a gradient",
     "x.detach().clone()"});
}

TEST_F(bad_input_test, a_loader_for_validation_needs_a_step) {
  expect(fit<without_validation>(),
         {"fit() was given a loader for validation, but module ",
          "without_validation has no validation_step"});
}

TEST_F(bad_input_test, a_loss_is_one_number) {
  expect(fit<without_loss>(),
         {"training_step of module ",
          "without_loss returned no loss for batch 0: it must be one number "
          "that depends on the parameters"});
}

TEST_F(bad_input_test, a_logged_value_is_one_number) {
  expect(fit<logs_vectors>(),
         {"'y' is logged with 4 elements, but a logged value is one number"});
}

TEST_F(bad_input_test, values_are_logged_in_epochs) {
  expect(fit<logs_too_early>(), {"'x' is logged outside of the epochs"});
}

TEST_F(bad_input_test, a_mean_is_over_all_ranks_or_not) {
  expect(fit<logs_both_ways>(),
         {"'x' is logged both with and without sync_dist"});
}

TEST_F(bad_input_test, options_are_checked_before_anything_is_done) {
  expect(fit({.accumulate_grad_batches = 0}),
         {"loop_options::accumulate_grad_batches is 0, but must be at least "
          "1"});
  expect(fit({.gradient_clip_val = -1.0}),
         {"loop_options::gradient_clip_val is -1, but must be positive"});
  expect([](train_context&) { early_stopping_callback{{}}; },
         {"early_stopping was given no value to monitor"});
}

TEST_F(bad_input_test, states_of_two_callbacks_need_two_names) {
  expect(fit({}, {std::make_shared<stateful>(), std::make_shared<stateful>(),
                  std::make_shared<train_report_callback>()}),
         {"two callbacks have the state key 'twin': override state_key()"});
  expect(fit({}, {std::make_shared<stateful>(), std::make_shared<stateful>()}),
         {"an epoch begins"});
}

TEST_F(bad_input_test, a_checkpoint_is_of_a_whole_epoch) {
  expect(fit({}, {std::make_shared<saves_too_early>()}),
         {"save_checkpoint() is called in the middle of an epoch"});
}

TEST_F(bad_input_test, every_rank_needs_equally_many_batches) {
  auto uneven = [](train_context& context) {
    std::vector<batch> all(static_cast<std::size_t>(context.rank() + 1),
                           {torch::ones({2, 3}), torch::ones({2, 1})});
    epoch_loop{context}.fit(std::make_shared<curve_module>(), all);
  };
  auto x = run(2, uneven);
  ASSERT_TRUE(x.error);
  EXPECT_NE(
    x.error->message.find("rank 1 has 2 batches for training but rank 0 has 1"),
    std::string::npos)
    << x.error->message;
  expect(
    [](train_context& context) {
      std::vector<batch> none;
      epoch_loop{context}.fit(std::make_shared<curve_module>(), none);
    },
    {"rank 0: the loader for training has no batches"});
}

TEST_F(bad_input_test, ranks_divide_the_same_order) {
  for (auto validation : {false, true}) {
    auto x = run(
      2,
      [validation](train_context& context) {
        auto loader = [&](bool own) {
          return prepare_data_loader(
            context, curve{8},
            {.batch_size = 2,
             .shuffle = true,
             .seed = own ? static_cast<std::uint64_t>(context.rank()) : 7});
        };
        epoch_loop{context}.fit(std::make_shared<curve_module>(),
                                loader(!validation), loader(validation));
      },
      validation ? "validation" : "training");
    ASSERT_TRUE(x.error);
    EXPECT_NE(
      x.error->message.find(
        std::string{"rank 1: the loader for "}
        + (validation ? "validation" : "training")
        + " divides 8 samples in the order of seed 1, but rank 0's 8 samples "
          "in the order of seed 0"),
      std::string::npos)
      << x.error->message;
  }
}

TEST_F(bad_input_test, a_backward_never_meets_a_report) {
  auto body = [](train_context& context) {
    auto model = prepare_model(context, torch::nn::Linear{3, 1});
    auto step = [&] { model.forward(torch::ones({4, 3})).sum().backward(); };
    step();
    if (context.rank() == 0)
      step();
    context.report({{"step", 0}});
  };
  auto limited = options(2);
  limited.scaling.where = placement::in_process;
  limited.run.hang_timeout = std::chrono::milliseconds{600};
  auto x = torch_trainer{in_process_loop{body}, std::move(limited)}.fit();
  ASSERT_TRUE(x.error);
  EXPECT_NE(x.error->message.find("Ranks 0, 1: misuse: the ranks are in "
                                  "different calls: rank 0 in collective"),
            std::string::npos)
    << x.error->message;
  EXPECT_NE(x.error->message.find("rank 1 in report 0"), std::string::npos)
    << x.error->message;
}

TEST_F(bad_input_test, a_mean_is_over_all_ranks_on_each) {
  auto x = run(2, [](train_context& context) {
    struct one_sided : curve_module {
      void validation_step(batch&, std::int64_t) override {
        log("x", 1, {.sync_dist = loop().context().rank() == 1});
      }
    };
    epoch_loop{context}.fit(std::make_shared<one_sided>(), batches(context),
                            batches(context));
  });
  ASSERT_TRUE(x.error);
  EXPECT_NE(x.error->message.find("rank 0 logged 'x' without sync_dist, but "
                                  "another rank with it"),
            std::string::npos)
    << x.error->message;
}

} // namespace troupe::internal::test
