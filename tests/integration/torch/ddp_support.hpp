#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/script.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/train_context.hpp"

#include "tests/support/memory_link.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/torch_ranks.hpp"

namespace troupe::internal::test {

/// Where the ranks of a test live, and over what they meet.
struct placement {
  bool local;
  bool processes;
  int size;
  bool hierarchical = false;

  std::string name() const {
    return std::string{hierarchical ? "hierarchical_"
                       : local      ? "local_"
                                    : "gloo_"}
           + (processes ? "processes_" : "threads_") + std::to_string(size);
  }

  friend void PrintTo(const placement& x, std::ostream* out) {
    *out << x.name();
  }

  std::unique_ptr<meeting_place> make_meeting_place() const {
    if (hierarchical)
      return std::make_unique<hierarchical_meeting_place>(size, processes);
    if (local)
      return std::make_unique<local_meeting_place>(size);
    return std::make_unique<gloo_meeting_place>(processes);
  }
};

/// One rank of a test.
struct rank_of_test {
  rank_of_test(meeting_place& place, int rank, int size)
    : place(&place), rank(rank), size(size) {}

  /// The same rank in a world of *size*, over the next group.
  rank_of_test(const rank_of_test& other, int size)
    : place(other.place), rank(other.rank), size(size) {}

  /// This rank's group, nullptr in a world of one. Each number is another one.
  group_ptr group(int number = 0, std::optional<int> ranks = {}) {
    auto n = ranks.value_or(size);
    if (n == 1)
      return nullptr;
    auto& known = number == 0 ? first : second;
    if (!known)
      known = place->group(number, rank, n);
    return known;
  }

  /// The rows of *x* that belong to *of* or to this rank.
  at::Tensor share(const at::Tensor& x, std::optional<int> of = {}) const {
    return x.chunk(size)[static_cast<size_t>(of.value_or(rank))];
  }

  meeting_place* place;
  int rank;
  int size;
  group_ptr first;
  group_ptr second;
};

/// The context of one rank, whose reports end in memory.
struct context_of_test {
  explicit context_of_test(rank_of_test& self) {
    rank_facts facts;
    facts.rank = self.rank;
    facts.world_size = self.size;
    facts.run_path = folder.path().string();
    fs::create_directory(folder / "checkpoints");
    context.emplace(facts, make_memory_link(), std::nullopt);
    rank_access{*context}.data_plane() = std::make_shared<torch_data_plane>(
      torch_data_plane{self.group(), at::kCPU});
  }

  void report() { context->report({{"loss", 1.0}}); }

  temporary_folder folder;
  std::optional<train_context> context;
};

/// Prepares the module of *model* again, over the next group of the ranks and
/// with the weights and gradients that it has.
template <class Module>
void prepare_again(rank_of_test& self, context_of_test& run,
                   data_parallel_model<Module>& model,
                   data_parallel_options options = {}) {
  rank_access{*run.context}.data_plane() = std::make_shared<torch_data_plane>(
    torch_data_plane{self.group(1), at::kCPU});
  model = prepare_model(*run.context, model.ptr(), std::move(options));
}

inline std::vector<std::string>
run_ranks(const placement& where,
          const std::function<void(rank_of_test&)>& body) {
  auto place = where.make_meeting_place();
  auto run = [&](int rank) {
    rank_of_test self{*place, rank, where.size};
    body(self);
  };
  return where.processes ? run_processes(where.size, run)
                         : run_threads(where.size, run);
}

/// A suite that runs with ranks at each of some placements.
class test_on_ranks : public testing::TestWithParam<placement> {
protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }

  /// Runs *body* on every rank; what a rank throws fails the test.
  void on_ranks(const std::function<void(rank_of_test&)>& body) {
    auto failures = run_ranks(GetParam(), body);
    for (size_t rank = 0; rank < failures.size(); ++rank)
      EXPECT_EQ(failures[rank], "") << "on rank " << rank;
  }
};

inline auto small_groups() {
  return testing::Values(placement{false, false, 2}, placement{true, false, 2},
                         placement{true, false, 3},
                         placement{true, false, 3, true});
}

inline auto all_groups() {
  return testing::Values(placement{false, false, 1}, placement{false, false, 2},
                         placement{false, false, 3}, placement{false, true, 2},
                         placement{false, true, 3}, placement{true, false, 2},
                         placement{true, false, 3}, placement{true, true, 2},
                         placement{true, true, 3},
                         placement{true, false, 3, true},
                         placement{true, true, 3, true});
}

inline std::string name_of(const testing::TestParamInfo<placement>& x) {
  return x.param.name();
}

/// The samples of one rank in a step.
constexpr std::int64_t batch = 8;

/// Every way in which the Reducer learns what is used.
inline std::vector<data_parallel_options> ways_to_train() {
  std::vector<data_parallel_options> result(4);
  result[1].find_unused_parameters = true;
  result[2].static_graph = true;
  result[3].gradient_as_bucket_view = false;
  result[3].sync_buffers = false;
  return result;
}

/// Makes a gradient fail on its way to *x*.
struct failing {
  explicit failing(const at::Tensor& x) : x(x), hook(x.register_hook(fail)) {}
  ~failing() { x.remove_hook(hook); }

  static at::Tensor fail(const at::Tensor&) {
    throw std::runtime_error{"no memory"};
  }

  at::Tensor x;
  unsigned hook;
};

/// Sums without dividing.
class summing_hook final : public c10d::CommHookInterface {
public:
  explicit summing_hook(group_ptr group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future>
  runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> gradients{bucket.getBuffer()};
    return group_->allreduce(gradients)->getFuture();
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

private:
  group_ptr group_;
};

/// What Reducers with a `counting_hook` have done on this rank.
struct reducer_counts {
  int made = 0;
  int buckets = 0; ///< Averaged.
};

/// Averages like a Reducer without a hook. There is one for each Reducer.
class counting_hook final : public c10d::CommHookInterface {
public:
  counting_hook(group_ptr group, reducer_counts& counts)
    : size_(group->getSize()), sum_(std::move(group)), counts_(counts) {
    ++counts_.made;
  }

  c10::intrusive_ptr<c10::ivalue::Future>
  runHook(c10d::GradBucket& bucket) override {
    ++counts_.buckets;
    bucket.getBufferRef().div_(size_);
    return sum_.runHook(bucket);
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return sum_.parseHookResult(result);
  }

private:
  int size_;
  summing_hook sum_;
  reducer_counts& counts_;
};

/// *options*, with a `counting_hook`.
inline data_parallel_options counted(reducer_counts& counts,
                                     data_parallel_options options = {}) {
  options.comm_hook = [&counts](const group_ptr& group) {
    return std::make_unique<counting_hook>(group, counts);
  };
  return options;
}

/// Sums, and then fails on this rank while *fails*.
class failing_hook final : public c10d::CommHookInterface {
public:
  failing_hook(group_ptr group, const bool& fails)
    : sum_(std::move(group)), fails_(fails) {}

  c10::intrusive_ptr<c10::ivalue::Future>
  runHook(c10d::GradBucket& bucket) override {
    auto result = sum_.runHook(bucket);
    if (!fails_)
      return result;
    result->wait();
    auto failed =
      c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    failed->setError(
      std::make_exception_ptr(std::runtime_error{"lost a rank"}));
    return failed;
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return sum_.parseHookResult(result);
  }

private:
  summing_hook sum_;
  const bool& fails_;
};

/// A model whose weights are a function of *seed*, also beside other threads:
/// the generator is the process's.
template <class Model>
std::shared_ptr<Model> seeded(int seed) {
  auto model = std::make_shared<Model>();
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 + seed);
  at::NoGradGuard no_grad;
  for (auto& x : model->parameters())
    x.uniform_(-0.3, 0.3, generator);
  return model;
}

inline void set_trainable(const torch::nn::Module& module, bool on) {
  for (auto& x : module.parameters())
    x.set_requires_grad(on);
}

/// *n* rows of features and their classes (of 5), a function of *number*.
inline std::pair<at::Tensor, at::Tensor> samples(std::int64_t n, int number,
                                                 std::int64_t width = 20) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1 + number);
  return {torch::randn({n, width}, generator),
          torch::randint(5, {n}, generator, at::kLong)};
}

inline at::Tensor indices(std::int64_t n, int number) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1 + number);
  return torch::randint(50, {n, 4}, generator, at::kLong);
}

inline torch::optim::SGDOptions sgd() {
  return torch::optim::SGDOptions{0.1}.momentum(0.9);
}

/// A prepared model on one rank, with the same weights on all, and its
/// optimizer.
template <class Model>
struct subject {
  explicit subject(rank_of_test& self, data_parallel_options options = {})
    : self(self), run(self),
      model(prepare_model(*run.context, seeded<Model>(0), std::move(options))),
      optimizer(model.parameters(), sgd()) {}

  /// Of this rank's share of the samples *number*.
  void backward(int number = 0, std::int64_t width = 20) {
    auto [x, y] = samples(self.size * batch, number, width);
    x = x.to(model.parameters().front().dtype());
    torch::nn::functional::cross_entropy(model.forward(self.share(x)),
                                         self.share(y))
      .backward();
  }

  /// Likewise; the gradients stay with this rank.
  void backward_alone() {
    auto guard = model.no_sync();
    backward();
  }

  rank_of_test& self;
  context_of_test run;
  data_parallel_model<Model> model;
  torch::optim::SGD optimizer;
};

/// Defined gradients, dense, in the order of parameters.
template <class Module>
std::vector<at::Tensor> gradients(const Module& module) {
  std::vector<at::Tensor> result;
  for (const auto& x : module.parameters())
    if (x.grad().defined())
      result.push_back(x.grad().to_dense());
  return result;
}

inline double largest_of(const std::vector<at::Tensor>& xs) {
  double result = 0;
  for (auto& x : xs)
    result = std::max(result, x.abs().max().item<double>());
  return result;
}

inline double largest_difference(const std::vector<at::Tensor>& xs,
                                 const std::vector<at::Tensor>& ys) {
  check(xs.size() == ys.size(), std::to_string(xs.size()) + " tensors, not "
                                  + std::to_string(ys.size()));
  std::vector<at::Tensor> differences;
  for (size_t i = 0; i < xs.size(); ++i)
    differences.push_back(xs[i].detach() - ys[i].detach());
  return largest_of(differences);
}

inline void check_close(const std::vector<at::Tensor>& xs,
                        const std::vector<at::Tensor>& ys, double bound) {
  check(!xs.empty(), "nothing to compare");
  auto difference = largest_difference(xs, ys);
  check(difference <= bound, "difference " + std::to_string(difference * 1e6)
                               + "e-6, allowed " + std::to_string(bound * 1e6)
                               + "e-6");
}

/// Whether *tensors* have the same bytes on all ranks.
inline bool equal_on_ranks(rank_of_test& self,
                           const std::vector<at::Tensor>& tensors) {
  if (self.size == 1)
    return true;
  std::vector<at::Tensor> flat;
  for (auto& x : tensors)
    flat.push_back(x.detach().to_dense().to(at::kDouble).flatten());
  std::vector<at::Tensor> mine{torch::cat(flat)};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < self.size; ++rank)
    all[0].push_back(torch::empty_like(mine[0]));
  self.group()->allgather(all, mine)->wait();
  auto bytes = mine[0].nbytes();
  for (auto& theirs : all[0])
    if (std::memcmp(theirs.data_ptr(), all[0][0].data_ptr(), bytes) != 0)
      return false;
  return true;
}

inline void check_equal_on_ranks(rank_of_test& self,
                                 const std::vector<at::Tensor>& tensors) {
  check(equal_on_ranks(self, tensors), "ranks differ");
}

/// The mean over the ranks of the gradients that each would have alone with
/// rank 0's first weights. *more* gives further arguments of a rank's forward.
template <class Model, class More = std::tuple<> (*)(int)>
std::vector<at::Tensor> mean_of_ranks(
  const rank_of_test& self, const at::Tensor& x, const at::Tensor& y,
  More more = [](int) { return std::tuple<>{}; }) {
  auto model = seeded<Model>(0);
  for (int rank = 0; rank < self.size; ++rank) {
    auto arguments =
      std::tuple_cat(std::tuple{self.share(x, rank)}, more(rank));
    auto output = std::apply(
      [&](auto&&... xs) { return model->forward(xs...); }, arguments);
    torch::nn::functional::cross_entropy(output, self.share(y, rank))
      .backward();
  }
  auto result = gradients(*model);
  for (auto& gradient : result)
    gradient = gradient / self.size;
  return result;
}

/// The message of the `train_error` that *f* throws.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const train_error& e) {
    check(e.reason().code == ec::invalid_argument, "another code");
    return e.what();
  }
  throw std::runtime_error("it was not refused");
}

/// A scripted module of two layers that returns a tuple.
inline torch::jit::Module scripted(int seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 + seed);
  auto weight = [&](std::int64_t rows, std::int64_t columns) {
    return torch::empty({rows, columns})
      .uniform_(-0.3, 0.3, generator)
      .requires_grad_();
  };
  torch::jit::Module result{"scripted_model"};
  result.register_parameter("first", weight(16, 20), false);
  result.register_parameter("second", weight(5, 16), false);
  result.register_parameter("unused", weight(3, 16), false);
  result.define(R"(
    def forward(self, x):
        y = torch.relu(torch.matmul(x, self.first.t()))
        return torch.matmul(y, self.second.t()), torch.matmul(y, self.unused.t())
  )");
  return result;
}

} // namespace troupe::internal::test
