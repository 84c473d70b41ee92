// A model trained by ranks on several hosts while these are lost, come back, or
// have a bad network: no sample is lost or used twice, and the weights are
// those of the samples that the reports name.

#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "tests/integration/hosts/hosts_fixture.hpp"
#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/files/object_formats.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t samples = 22; // Of an epoch: 3 ranks leave a rest.
constexpr std::int64_t epochs = 2;
constexpr double rate = 0.1;

/// What disturbs the ranks. Travels to them.
struct elastic_training_plan {
  std::string folder; ///< Of the test.
  bool loses = false; ///< Rank 2 stays in its third backward of the first
                      ///< attempt; the ranks of the second one train two steps,
                      ///< then only report until they are asked to leave.
  bool waits = false; ///< After two steps, until the test says go.

  template <class Archive>
  void serialize(Archive& ar) {
    ar(folder, loses, waits);
  }
};

/// Its samples know their number.
struct numbered_samples {
  std::int64_t size() const { return samples; }

  std::pair<at::Tensor, std::int64_t> get(std::int64_t index) const {
    return {torch::sin(torch::arange(1.0f, 9.0f)
                       * static_cast<float>(1 + index % samples)),
            index};
  }
};

torch::nn::Sequential two_layers() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(8, 64), torch::nn::Tanh(),
                               torch::nn::Linear(64, 64), torch::nn::Tanh(),
                               torch::nn::Linear(64, 2));
}

/// The loss of a rank without a sample is 0: its gradients are, too.
at::Tensor loss_of(const at::Tensor& output, bool has_sample) {
  return has_sample ? (output - 1).square().mean() : (output * 0).sum();
}

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (auto& x : tensors)
    all.push_back(x.detach().flatten());
  return at::cat(all);
}

/// Rank 2 never leaves this backward, in which the others wait for it. The
/// gradients of the later layers may already be on their way.
void stay_in_backward(const elastic_training_plan& plan,
                      const at::Tensor& first_weight) {
  first_weight.register_hook([folder = plan.folder](const at::Tensor&) {
    tell(folder, "absent");
    for (;;)
      ::pause();
  });
}

void train_elastic(train_context& context, const elastic_training_plan& plan) {
  auto attempt = static_cast<int>(context.attempt());
  auto world = context.world_size();
  hold_life(plan.folder, attempt, context.rank());
  auto& facts = rank_access{context}.facts();
  tell(
    plan.folder,
    concat("rank ", attempt, ' ', facts.rank, ' ', world, ' ',
           parent_of(::getppid()), ' ', own_host(), ' ',
           data_plane(context)->group->getDefaultBackend()->getBackendName()));
  auto loader =
    prepare_data_loader(context, numbered_samples{},
                        {.shuffle = true, .seed = 3, .tail = tail::no_padding});
  // Several buckets: each is a collective.
  auto model = prepare_model(context, two_layers(), {.bucket_bytes = 1024});
  torch::optim::SGD optimizer{model.parameters(), rate};
  std::int64_t epoch = 0, done = 0;
  train_state state{
    {"model", model}, {"loader", loader}, {"epoch", epoch}, {"done", done}};
  (void) context.resume(state);
  auto steps = 0;
  for (; epoch < epochs; ++epoch, done = 0) {
    loader.set_epoch(static_cast<std::uint64_t>(epoch));
    auto next = loader.begin();
    auto is_first = true;
    while (done < samples) {
      if (context.stop_requested())
        return;
      if (plan.waits && steps == 2) {
        tell(plan.folder, concat("waits ", attempt, ' ', context.rank()));
        unique_fd{::open((plan.folder + "/go").c_str(), O_RDONLY | O_CLOEXEC)};
      }
      if (plan.loses && attempt == 1 && steps >= 2) {
        if (steps++ == 2)
          tell(plan.folder, concat("small ", attempt, ' ', context.rank()));
        context.report(metrics{}, state);
        continue;
      }
      if (plan.loses && attempt == 0 && steps == 2 && context.rank() == 2)
        stay_in_backward(plan, model.parameters().front());
      if (!std::exchange(is_first, false))
        ++next; // Not before: a batch that was read is in the loader's state.
      metrics values;
      auto has_sample = next != loader.end();
      auto input = torch::zeros({1, 8});
      if (has_sample) {
        input = (*next).first;
        values["sample"] =
          epoch * samples + (*next).second.item<std::int64_t>();
      }
      model.zero_grad();
      loss_of(model.forward(input), has_sample).backward();
      optimizer.step();
      model.check_replicas();
      ++steps;
      done += world;
      context.report(values, state);
    }
  }
  auto weights = flat(model.parameters());
  if (context.rank() == 0)
    write_bytes(plan.folder + "/weights",
                std::string{static_cast<const char*>(weights.data_ptr()),
                            weights.nbytes()});
}

} // namespace

/// The driver of a test in *folder*, of a run that may have no failure.
int be_elastic_driver(const std::string& folder, bool loses, bool waits) {
  torch_options options;
  options.scaling.num_workers = {2, 3};
  options.scaling.agents = 2;
  options.run = run_with_agents(folder);
  options.run.failure.max_failures = 0;
  options.run.checkpoint.num_to_keep = 2;
  auto outcome =
    torch_trainer{train_elastic, elastic_training_plan{folder, loses, waits},
                  options}
      .fit();
  tell_result(folder, outcome);
  return 0;
}

namespace {

/// A rank of an elastic training as it introduced itself.
struct elastic_rank {
  int world = -1;
  pid_t agent = -1;
  std::string host;
  std::string backend;

  friend std::istream& operator>>(std::istream& in, elastic_rank& x) {
    return in >> x.world >> x.agent >> x.host >> x.backend;
  }
};

class elastic_training_test : public hosts_test {
protected:
  /// Starts the driver and an agent on each of the other hosts.
  void start_all(bool loses, bool waits) {
    hosts_ = {
      start(0, {own_program(), "--elastic-driver", folder_.path().string(),
                std::to_string(loses), std::to_string(waits)})};
    for (auto host : {1, 2})
      hosts_.push_back(start_agent(host));
  }

  /// The number of the host of *x*.
  int host_of(const elastic_rank& x) const {
    if (GetParam() == where::namespaces)
      return x.host.back() - '1';
    return x.agent == hosts_[1]->pid ? 1 : 2;
  }

  /// Has `hosts.sh` do *what*.
  void hosts(const std::string& what) {
    EXPECT_EQ(std::system((tool_ + ' ' + what).c_str()), 0) << what;
  }

  void expect_end(const std::string& result) {
    EXPECT_EQ(result_line(), result);
    for (auto& x : hosts_)
      EXPECT_EQ(x->wait(), 0);
  }

  /// The samples of each rank, step by step, as the reports name them; -1 for a
  /// rank without one.
  std::vector<std::vector<std::int64_t>> reported_samples() const {
    std::vector<std::vector<std::int64_t>> result;
    for (auto& batch : batches()) {
      auto& step = result.emplace_back();
      for (auto& values : batch.values)
        step.push_back(
          static_cast<std::int64_t>(values.find_number("sample").value_or(-1)));
      if (std::ranges::count(step, -1) == std::ssize(step))
        result.pop_back(); // The ranks only reported.
    }
    return result;
  }

  /// Expects each sample of each epoch once in all reports, in steps of
  /// *worlds* ranks, and the weights that these steps make of the first ones.
  void expect_each_sample_once(const std::set<std::size_t>& worlds) {
    auto model = two_layers();
    auto weights = model->parameters();
    std::vector<int> seen(static_cast<std::size_t>(samples * epochs));
    std::set<std::size_t> seen_worlds;
    for (auto& step : reported_samples()) {
      seen_worlds.insert(step.size());
      auto loss = torch::zeros({});
      for (auto sample : step)
        if (sample >= 0) {
          ++seen.at(static_cast<std::size_t>(sample));
          auto input = numbered_samples{}.get(sample % samples).first;
          loss += loss_of(model->forward(input), true);
        }
      auto gradients =
        torch::autograd::grad({loss / std::ssize(step)}, weights);
      torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < weights.size(); ++i)
        weights[i].sub_(gradients[i], rate);
    }
    EXPECT_THAT(seen, testing::Each(1));
    EXPECT_EQ(seen_worlds, worlds);
    auto bytes = bytes_of(folder_ / "weights");
    auto expected = flat(weights);
    ASSERT_EQ(bytes.size(), expected.nbytes());
    auto found = torch::from_blob(bytes.data(), expected.sizes());
    EXPECT_TRUE(found.allclose(expected, 1e-4, 1e-5))
      << (found - expected).abs().max();
    EXPECT_FALSE(found.allclose(flat(two_layers()->parameters()), 1e-2, 1e-3));
  }

  std::vector<std::shared_ptr<program>> hosts_; ///< The driver's first.
};

TEST_P(elastic_training_test, trains_each_sample_once_while_a_host_is_away) {
  start_all(true, false);
  auto ranks = introduced<elastic_rank>(0, 3);
  EXPECT_EQ(ranks[0].backend, "hierarchical");
  while (next_line() != "absent") {
  }
  auto lost = host_of(ranks[2]);
  if (GetParam() == where::namespaces)
    hosts(concat("crash h", lost + 1));
  else
    kill(lost, ranks[2].agent);
  auto fewer = introduced<elastic_rank>(1, 2, "small");
  EXPECT_EQ(fewer[1].backend, "hierarchical");
  for (auto rank : {0, 1, 2})
    await_end(0, rank);
  auto& agent = hosts_[static_cast<std::size_t>(lost)];
  agent->wait();
  if (GetParam() == where::namespaces)
    hosts(concat("boot h", lost + 1));
  agent = start_agent(lost);
  introduced<elastic_rank>(2, 3);
  expect_end("result finished 3 ");
  expect_each_sample_once({2, 3});
  EXPECT_THAT(journal(), Not(HasSubstr("has left the group")))
    << "the ranks that waited are not to blame";
}

class lossy_training_test : public elastic_training_test {};

TEST_P(lossy_training_test, a_slow_link_that_loses_packets_costs_no_attempt) {
  start_all(false, true);
  introduced<elastic_rank>(0, 3, "waits");
  hosts("lose h2 5");
  hosts("delay h2 50");
  unique_fd go{::open((folder_ / "go").c_str(), O_WRONLY | O_CLOEXEC)};
  expect_end("result finished 1 ");
  expect_each_sample_once({3});
  EXPECT_THAT(journal(), Not(HasSubstr("host_lost")));
}

INSTANTIATE_TEST_SUITE_P(hosts, elastic_training_test,
                         testing::Values(where::here, where::namespaces),
                         name_of);

INSTANTIATE_TEST_SUITE_P(hosts, lossy_training_test,
                         testing::Values(where::namespaces), name_of);

} // namespace

} // namespace troupe::internal::test
